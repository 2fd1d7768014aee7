// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <type_traits>

namespace cellar::detail {

/// How many of Ts are T.
template <class T, class... Ts>
inline constexpr int times_among = (0 + ... + (std::is_same_v<T, Ts> ? 1 : 0));

/// The place of T among Ts, where it is.
template <class T, class... Ts>
constexpr int index_among() {
    int index = 0;
    static_cast<void>(((std::is_same_v<T, Ts> || (++index, false)) || ...));
    return index;
}

} // namespace cellar::detail
