// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cellar {

// Not `bf16`: an enumerator of this name shadows `cellar::bf16`, and g++ 12 warns of that.
/// The element types of safetensors that occupy whole bytes.
enum class Dtype { boolean, u8, i8, f8_e4m3, f8_e5m2, u16, i16, f16, bfloat, u32, i32, f32, u64, i64, f64 };

namespace detail {

struct DtypeEntry {
    Dtype dtype;
    std::string_view name;
    std::size_t bytes;
};

inline constexpr std::array<DtypeEntry, 15> dtype_table{{
    {Dtype::boolean, "BOOL", 1},
    {Dtype::u8, "U8", 1},
    {Dtype::i8, "I8", 1},
    {Dtype::f8_e4m3, "F8_E4M3", 1},
    {Dtype::f8_e5m2, "F8_E5M2", 1},
    {Dtype::u16, "U16", 2},
    {Dtype::i16, "I16", 2},
    {Dtype::f16, "F16", 2},
    {Dtype::bfloat, "BF16", 2},
    {Dtype::u32, "U32", 4},
    {Dtype::i32, "I32", 4},
    {Dtype::f32, "F32", 4},
    {Dtype::u64, "U64", 8},
    {Dtype::i64, "I64", 8},
    {Dtype::f64, "F64", 8},
}};

template <class E>
constexpr Dtype dtype_of() {
    if constexpr (std::is_same_v<E, half>) return Dtype::f16;
    if constexpr (std::is_same_v<E, bfloat16>) return Dtype::bfloat;
    if constexpr (std::is_same_v<E, float>) return Dtype::f32;
    if constexpr (std::is_same_v<E, double>) return Dtype::f64;
    if constexpr (std::is_same_v<E, std::uint8_t>) return Dtype::u8;
    if constexpr (std::is_same_v<E, std::int8_t>) return Dtype::i8;
    if constexpr (std::is_same_v<E, std::uint16_t>) return Dtype::u16;
    if constexpr (std::is_same_v<E, std::int16_t>) return Dtype::i16;
    if constexpr (std::is_same_v<E, std::uint32_t>) return Dtype::u32;
    if constexpr (std::is_same_v<E, std::int32_t>) return Dtype::i32;
    if constexpr (std::is_same_v<E, std::uint64_t>) return Dtype::u64;
    if constexpr (std::is_same_v<E, std::int64_t>) return Dtype::i64;
}

} // namespace detail

/// The name in the header of a file.
constexpr std::string_view to_string(Dtype dtype) {
    return detail::dtype_table[static_cast<std::size_t>(dtype)].name;
}

/// Of one element.
constexpr std::size_t bytes_of(Dtype dtype) {
    return detail::dtype_table[static_cast<std::size_t>(dtype)].bytes;
}

/// The opposite of `to_string`; nothing if no type has this name.
constexpr std::optional<Dtype> dtype_named(std::string_view name) {
    for (const detail::DtypeEntry& entry : detail::dtype_table) {
        if (entry.name == name) return entry.dtype;
    }
    return std::nullopt;
}

/// The type of a tensor of these elements: half, bfloat16, float, double, or an integer of fixed size.
template <class E>
inline constexpr Dtype dtype_of = detail::dtype_of<E>();

/// A tensor that is to be written. The last index of the shape is the fastest. A shape without entries is one element.
struct TensorPlan {
    std::string name;
    Dtype dtype{};
    std::vector<std::uint64_t> shape;
};

/// What a file will contain. Its data are the tensors' elements in this order. Names and metadata are UTF-8.
struct FilePlan {
    std::vector<TensorPlan> tensors;
    std::map<std::string, std::string> metadata; ///< of the caller; cellar adds its own keys, `cellar.*`
};

/// A tensor in a file.
struct StoredTensor {
    std::string name;
    Dtype dtype{};
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0; ///< its first byte, counted from the beginning of the data
    std::uint64_t bytes = 0;
};

} // namespace cellar
