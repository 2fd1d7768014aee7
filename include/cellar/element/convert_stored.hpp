// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/stored_element.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace cellar::detail {

constexpr std::size_t bytes_of(StoredElement element) {
    return element == StoredElement::f32 || element == StoredElement::i32 ? 4 : 2;
}

/// Converts elements of any two types, through float where there is no direct way. Spans of equal size.
template <class From, class To>
void convert_elements(std::span<const From> from, std::span<To> to) {
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
    convert_elements(std::span{static_cast<const From*>(from), n}, std::span{static_cast<To*>(to), n});
}

template <class To>
ConvertElements conversion_to(StoredElement from) {
    switch (from) {
    case StoredElement::f32:
        return convert_memory<float, To>;
    case StoredElement::f16:
        return convert_memory<half, To>;
    case StoredElement::bf16:
        return convert_memory<bfloat16, To>;
    case StoredElement::i32:
        break;
    }
    return nullptr;
}

/// The conversion between two types of elements; null if one of them is of integers.
inline ConvertElements conversion_of(StoredElement from, StoredElement to) {
    switch (to) {
    case StoredElement::f32:
        return conversion_to<float>(from);
    case StoredElement::f16:
        return conversion_to<half>(from);
    case StoredElement::bf16:
        return conversion_to<bfloat16>(from);
    case StoredElement::i32:
        break;
    }
    return nullptr;
}

} // namespace cellar::detail
