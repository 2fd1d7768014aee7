// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace cellar::detail {

/// How the units of a stored array are encoded. A unit has so many bytes, which are moved as they are. The name says
/// what they mean to those who convert them; it is the one of safetensors.
struct StoredFormat {
    std::string_view name;
    std::size_t unit_bytes = 0;

    bool operator==(const StoredFormat&) const = default;

    static const StoredFormat f32;
    static const StoredFormat f16;
    static const StoredFormat bf16;
    static const StoredFormat i32;
};
inline constexpr StoredFormat StoredFormat::f32{"F32", 4};
inline constexpr StoredFormat StoredFormat::f16{"F16", 2};
inline constexpr StoredFormat StoredFormat::bf16{"BF16", 2};
inline constexpr StoredFormat StoredFormat::i32{"I32", 4};

/// The format of a stored type.
template <class E>
constexpr StoredFormat stored_format_of() {
    if constexpr (std::is_same_v<E, half>) {
        return StoredFormat::f16;
    } else if constexpr (std::is_same_v<E, bfloat16>) {
        return StoredFormat::bf16;
    } else {
        static_assert(std::is_same_v<E, float>, "files and messages have names for float, half and bfloat16 only");
        return StoredFormat::f32;
    }
}

} // namespace cellar::detail
