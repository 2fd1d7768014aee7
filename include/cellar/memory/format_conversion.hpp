// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

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

// What is saved, or sent, in other formats than a memory has.

namespace cellar::detail {

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
