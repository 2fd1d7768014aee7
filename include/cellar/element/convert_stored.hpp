// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/stored_format.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace cellar::detail {

/// Converts elements of any two types, through float where there is no direct way. Spans of equal size.
template <class From, class To>
void convert_stored(std::span<const From> from, std::span<To> to) {
    if constexpr (std::is_same_v<From, To>) {
        if (!from.empty()) std::memcpy(to.data(), from.data(), from.size_bytes());
    } else if constexpr (std::is_same_v<From, float> || std::is_same_v<To, float>) {
        convert(from, to);
    } else {
        std::array<float, 1024> wide{};
        while (!from.empty()) {
            const std::size_t n = std::min(from.size(), wide.size());
            convert(from.first(n), std::span{wide}.first(n));
            convert(std::span<const float>{wide}.first(n), to.first(n));
            from = from.subspan(n);
            to = to.subspan(n);
        }
    }
}

/// Converts n elements in memory that is aligned for them.
using ConvertElements = void (*)(const void* from, void* to, std::size_t n);

template <class From, class To>
void convert_memory(const void* from, void* to, std::size_t n) {
    convert_stored(std::span{static_cast<const From*>(from), n}, std::span{static_cast<To*>(to), n});
}

template <class To>
ConvertElements conversion_to(const StoredFormat& from) {
    return from == StoredFormat::f32()    ? convert_memory<float, To>
           : from == StoredFormat::f16()  ? convert_memory<half, To>
           : from == StoredFormat::bf16() ? convert_memory<bfloat16, To>
                                          : nullptr;
}

/// The conversion between two formats of one value a unit; null if there is none.
inline ConvertElements conversion_of(const StoredFormat& from, const StoredFormat& to) {
    return to == StoredFormat::f32()    ? conversion_to<float>(from)
           : to == StoredFormat::f16()  ? conversion_to<half>(from)
           : to == StoredFormat::bf16() ? conversion_to<bfloat16>(from)
                                        : nullptr;
}

} // namespace cellar::detail
