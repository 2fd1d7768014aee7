// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/format_codec.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Keys or values of a layer, and the format that others shall see them in.
struct HeadsToConvert {
    StoredArray units;
    StoredArray scales; ///< without rows if they have none
    const FormatCodec* to;
};

/// A plane of theirs: rows are decoded and encoded, a head at a time, as they are read.
class ConvertedRows final : public RowStream {
public:
    ConvertedRows(std::shared_ptr<const HeadsToConvert> heads, bool are_scales)
        : heads_{std::move(heads)}, are_scales_{are_scales} {}

    bool in_place(std::uint64_t, std::uint64_t, const Visit&) override { return false; }
    void read(std::uint64_t first, std::uint64_t count, std::byte* to) override {
        const auto& [units, scales, codec] = *heads_;
        const std::uint64_t n = count * units.shape[1];
        read(units, first, count, units_);
        read(scales, first, count, scales_);
        other_.resize(static_cast<std::size_t>(n
                                               * (are_scales_ ? codec->units_of(units.dim()) * codec->unit_bytes
                                                              : codec->scales_of(units.dim()) * codec->scale_bytes)));
        convert_heads(*units.codec, {units_.data(), scales_.data()}, *codec,
                      {are_scales_ ? other_.data() : to, are_scales_ ? to : other_.data()}, n, units.dim());
    }

private:
    static void read(const StoredArray& from, std::uint64_t first, std::uint64_t count, std::vector<std::byte>& to) {
        if (from.rows == nullptr) return;
        to.resize(static_cast<std::size_t>(count * from.row_bytes()));
        from.rows->read(first, count, to.data());
    }

    std::shared_ptr<const HeadsToConvert> heads_;
    bool are_scales_;
    std::vector<std::byte> units_; // again for each call, as are these
    std::vector<std::byte> scales_;
    std::vector<std::byte> other_; // the plane of the new format that is not asked for
};

} // namespace cellar::detail
