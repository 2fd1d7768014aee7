// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <type_traits>

namespace cellar::detail {

/// The element types of stored arrays.
enum class StoredElement { f32, f16, bf16, i32 };

template <class E>
constexpr StoredElement stored_element_of() {
    if constexpr (std::is_same_v<E, half>) return StoredElement::f16;
    if constexpr (std::is_same_v<E, bfloat16>) return StoredElement::bf16;
    static_assert(std::is_same_v<E, float> || std::is_same_v<E, half> || std::is_same_v<E, bfloat16>,
                  "files and messages have a name for float, half and bfloat16 only");
    return StoredElement::f32;
}

} // namespace cellar::detail
