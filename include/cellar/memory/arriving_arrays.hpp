// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/element/convert_stored.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cellar::detail {

/// Keys or values of a layer that arrive in another format than they are stored in. Rows are converted and written as
/// soon as their units, and their scales if there are any, have arrived; until then, their bytes are kept.
class ArrivingHeads {
public:
    /// `target`: the units, and the scales or null. All outlive it.
    ArrivingHeads(const FormatCodec& from, const StoredArray& target, const StoredArray* target_scales)
        : from_{from},
          target_{target},
          target_scales_{target_scales},
          units_{{}, row_of(from.units_of(target.dim()) * from.unit_bytes)},
          scales_{{}, row_of(from.scales_of(target.dim()) * from.scale_bytes)} {}

    /// The next bytes of the units, or of the scales.
    void take(std::span<const std::byte> bytes, bool are_scales) {
        std::vector<std::byte>& kept = (are_scales ? scales_ : units_).bytes;
        kept.insert(kept.end(), bytes.begin(), bytes.end());
        std::uint64_t rows = units_.rows();
        if (from_.scales != nullptr) rows = std::min(rows, scales_.rows());
        const std::uint64_t at_once =
            std::max<std::uint64_t>(piece / std::max<std::uint64_t>(target_.row_bytes(), 1), 1);
        for (; rows > 0; rows -= std::min(rows, at_once)) convert(std::min(rows, at_once));
        units_.drop_used();
        scales_.drop_used();
    }

private:
    static constexpr std::uint64_t piece = std::uint64_t{1} << 20; // bytes that are converted at a time

    /// What has arrived of a plane.
    struct Plane {
        std::vector<std::byte> bytes;
        std::uint64_t row;      ///< bytes of one
        std::uint64_t used = 0; ///< bytes that are converted

        std::uint64_t rows() const { return row == 0 ? 0 : (bytes.size() - used) / row; }
        const std::byte* next() const { return bytes.data() + used; }
        // If these are at least half: each byte is then moved once, on average.
        void drop_used() {
            if (2 * used < bytes.size()) return;
            bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used));
            used = 0;
        }
    };

    std::uint64_t row_of(std::uint64_t head_bytes) const { return target_.shape[1] * head_bytes; }

    void convert(std::uint64_t rows) {
        const FormatCodec& to = *target_.codec;
        converted_.resize(static_cast<std::size_t>(rows * target_.row_bytes()));
        if (target_scales_ != nullptr)
            converted_scales_.resize(static_cast<std::size_t>(rows * target_scales_->row_bytes()));
        convert_heads(from_, {units_.next(), scales_.next()}, to, {converted_.data(), converted_scales_.data()},
                      rows * target_.shape[1], target_.dim());
        target_.rows->write(written_, rows, converted_.data());
        if (target_scales_ != nullptr) target_scales_->rows->write(written_, rows, converted_scales_.data());
        written_ += rows;
        units_.used += rows * units_.row;
        scales_.used += rows * scales_.row;
    }

    const FormatCodec& from_;
    const StoredArray& target_;
    const StoredArray* target_scales_;
    Plane units_;
    Plane scales_;
    std::uint64_t written_ = 0; // rows
    std::vector<std::byte> converted_;
    std::vector<std::byte> converted_scales_;
};

/// Where the units of an array go that arrives: as they are, converted one by one, or as whole heads.
struct ArrivingArray {
    StoredFormat from{};
    const StoredArray* to = nullptr; ///< null for heads
    ConvertElements convert = nullptr;
    std::shared_ptr<ArrivingHeads> heads = nullptr;
    bool are_scales = false; ///< of the heads

    bool is_copied() const { return to != nullptr && from == to->format; }
};

/// By their names, the arrays of the source that make these, which were checked (`check_arrays`), and outlive the
/// result. A problem if one has a format that is not taken.
inline Checked<std::map<std::string, ArrivingArray>> arriving_arrays(const StoredSource& source,
                                                                     std::span<const StoredArray> arrays) {
    std::map<std::string, ArrivingArray> all;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const StoredArray& own = arrays[i];
        const StoredFormat found = source.format(own.name).value_or(StoredFormat{"none"});
        const auto from = source.conversion(own);
        if (!from) return from.error();
        if (*from == nullptr) {
            const ConvertElements convert = conversion_of(found, own.format);
            if (found != own.format && convert == nullptr)
                return other_type(own.name, found.name, types_for(own.format));
            all.emplace(own.name, ArrivingArray{found, &own, convert});
            continue;
        }
        const StoredArray* const own_scales = own.codec->scales == nullptr ? nullptr : &arrays[++i];
        const auto heads = std::make_shared<ArrivingHeads>(**from, own, own_scales);
        all.emplace(own.name, ArrivingArray{.from = found, .heads = heads});
        if ((*from)->scales == nullptr) continue;
        const std::string scales = scales_name(own.name);
        const StoredFormat of_scales = source.format(scales).value_or(StoredFormat{"none"});
        if (of_scales != (*from)->scales()) return other_type(scales, of_scales.name, (*from)->scales().name);
        all.emplace(scales, ArrivingArray{.from = of_scales, .heads = heads, .are_scales = true});
    }
    return all;
}

} // namespace cellar::detail
