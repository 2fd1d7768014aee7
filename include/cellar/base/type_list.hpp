// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <type_traits>

namespace cellar::detail {

/// How many of the types Ts are T.
template <class T, class... Ts>
inline constexpr int times_among = (0 + ... + (std::is_same_v<T, Ts> ? 1 : 0));

/// The index of T among Ts, which contain it.
template <class T, class... Ts>
constexpr int index_among() {
    int index = 0;
    static_cast<void>(((std::is_same_v<T, Ts> || (++index, false)) || ...));
    return index;
}

} // namespace cellar::detail
