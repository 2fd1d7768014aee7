// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/element.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace cellar::detail {

/// How the units of a stored array are encoded. A unit has so many bytes, which are moved as they are. The name says
/// what they mean to those who convert them; where safetensors has a name for it, it is that one.
struct StoredFormat {
    std::string name;
    std::uint64_t unit_bytes = 0;

    bool operator==(const StoredFormat&) const = default;

    static StoredFormat f32() { return {"F32", 4}; }
    static StoredFormat f16() { return {"F16", 2}; }
    static StoredFormat bf16() { return {"BF16", 2}; }
    static StoredFormat i32() { return {"I32", 4}; }
};

/// One value a unit: any two of these are converted.
inline bool is_element(const StoredFormat& format) {
    return format == StoredFormat::f32() || format == StoredFormat::f16() || format == StoredFormat::bf16();
}

/// The format of an element.
template <class E>
StoredFormat stored_format_of() {
    static_assert(Element<E>, "files and messages have names for float, half and bfloat16 only");
    return std::is_same_v<E, half>       ? StoredFormat::f16()
           : std::is_same_v<E, bfloat16> ? StoredFormat::bf16()
                                         : StoredFormat::f32();
}

/// The formats of the units and of the scales of a storage format.
template <StorageFormat F>
StoredFormat stored_units_of() {
    if constexpr (Element<F>) {
        return stored_format_of<F>();
    } else {
        return {std::string{F::name}, sizeof(unit_of<F>)};
    }
}
template <StorageFormat F>
StoredFormat stored_scales_of() {
    if constexpr (Element<scale_of<F>>) {
        return stored_format_of<scale_of<F>>();
    } else {
        return {std::string{F::name} + ".scales", sizeof(scale_of<F>)};
    }
}

} // namespace cellar::detail
