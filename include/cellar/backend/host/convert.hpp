// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/convert.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// Converts or copies [from, from + n) to [to, to + n), which must not overlap.
template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
    const auto size = static_cast<std::size_t>(n);
    if constexpr (std::is_same_v<From, To>) {
        if (n > 0) std::memcpy(to, from, size * sizeof(To));
    } else {
        cellar::convert(std::span{from, size}, std::span{to, size});
    }
}

} // namespace cellar::detail
