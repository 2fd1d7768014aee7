// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/in_quotes.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/converted_rows.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What is saved, or sent, in other formats than a memory has, and what may be taken in others.

namespace cellar::detail {

/// What is saved has another format than is expected. The name of a type may be any text, so one that safetensors does
/// not have is in quotes.
inline Problem other_type(const std::string& name, const std::string& found, const std::string& expected) {
    const bool is_plain = found.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
    return {"its " + name + " has elements of type " + (is_plain || found == "none" ? found : in_quotes(found))
            + ", expected " + expected};
}
/// What is taken where a memory stores `own`.
inline std::string types_for(const StoredFormat& own) {
    return is_element(own) ? "F32, F16 or BF16" : own.name;
}

/// What an array of keys or values in the format `found` is converted from to `own`: see `StoredSource::conversion`.
/// `known`: the formats that may be converted.
inline Checked<const FormatCodec*> find_conversion(FormatList known, const std::string& name, const StoredFormat& found,
                                                   const StoredFormat& own) {
    if (found == own || (is_element(found) && is_element(own))) return nullptr;
    for (const FormatCodec& codec : known)
        if (codec.units() == found) return &codec;
    return other_type(name, found.name, types_for(own));
}

/// Adds what `units`, and `scales` if they have any, are in the format `to`.
inline void add_converted(StoredArray units, StoredArray scales, const FormatCodec& to,
                          std::vector<StoredArray>& arrays) {
    const std::uint64_t dim = units.dim();
    const auto heads = std::make_shared<HeadsToConvert>(HeadsToConvert{std::move(units), std::move(scales), &to});
    const auto add = [&](std::string name, StoredFormat format, std::uint64_t of_head, bool is_scales) {
        const std::vector<std::uint64_t>& shape = heads->units.shape;
        StoredArray array{std::move(name), std::move(format), {shape[0], shape[1], of_head}};
        array.comes_later = heads->units.comes_later;
        array.set_rows(new ConvertedRows{heads, is_scales});
        arrays.push_back(std::move(array));
    };
    add(heads->units.name, to.units(), to.units_of(dim), false);
    if (to.scales != nullptr) add(scales_name(heads->units.name), to.scales(), to.scales_of(dim), true);
}

/// Replaces keys and values that have another format than `as`. A problem, with nothing changed, if heads do not suit.
inline Checked<void> convert_arrays(std::vector<StoredArray>& arrays, const StoredAs& as) {
    if (as.keys == nullptr && as.values == nullptr) return {};
    const auto format_for = [&](const StoredArray& array) -> const FormatCodec* {
        if (array.codec == nullptr) return nullptr;
        const FormatCodec* const to = array.name.ends_with(".keys") ? as.keys : as.values;
        return to == nullptr || to->units() == array.format ? nullptr : to;
    };
    for (const StoredArray& array : arrays)
        if (const FormatCodec* const to = format_for(array); to != nullptr && !to->suits(array.dim()))
            return Problem{"its " + array.name + " have heads of " + std::to_string(array.dim())
                           + " values, which the format " + to->units().name + " does not take"};
    std::vector<StoredArray> converted;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        StoredArray& array = arrays[i];
        const FormatCodec* const to = format_for(array);
        if (to == nullptr) {
            converted.push_back(std::move(array));
        } else {
            StoredArray scales;
            if (array.codec->scales != nullptr) scales = std::move(arrays[++i]);
            add_converted(std::move(array), std::move(scales), *to, converted);
        }
    }
    arrays = std::move(converted);
    return {};
}

} // namespace cellar::detail
