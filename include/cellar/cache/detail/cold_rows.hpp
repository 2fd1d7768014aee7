// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/memory/converted_rows.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The keys or the values of a layer: their format in the cache, and that of their offloaded rows.
struct TierOfRows {
    const FormatCodec* own;
    const FormatCodec* cold;
    std::uint64_t heads;
    std::uint64_t dim; ///< values of a head
};

/// Keys and values of the tokens of a snapshot that is offloaded, in other formats than those of the cache: row i has
/// those of token i. On the host; all functions return when their work is done. Those after the constructor do not
/// throw, except `set_rows`.
class ColdRows {
public:
    ColdRows(const std::vector<TierOfRows>& tiers, std::int64_t tokens) : tokens_{static_cast<std::uint64_t>(tokens)} {
        std::uint64_t size = 0;
        const auto place = [&](std::uint64_t row) { // aligned for all units
            return std::exchange(size, (size + tokens_ * row + 63) / 64 * 64);
        };
        for (const TierOfRows& tier : tiers) {
            Part part{tier, tier.own->units() == tier.cold->units(), row_of(tier, *tier.cold)};
            part.units = place(part.cold_row.units);
            part.scales = place(part.cold_row.scales);
            bytes_ += tokens_ * (part.cold_row.units + part.cold_row.scales);
            parts_.push_back(part);
        }
        memory_ = ZeroedArray<std::byte>{static_cast<std::int64_t>(size)};
    }

    std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

    /// Rows [first, first + n) become what n rows of `from` are, in the formats of the cache. `i`: of the tiers.
    void take(std::size_t i, HeadPlanes<const std::byte> from, std::uint64_t n, std::uint64_t first) noexcept {
        const Part& part = parts_[i];
        if (part.is_copied) return copy_rows(from, at(part, first), n, part.cold_row);
        convert_heads(*part.tier.own, from, *part.tier.cold, at(part, first), n * part.tier.heads, part.tier.dim);
    }
    /// The other way round.
    void give(std::size_t i, std::uint64_t first, std::uint64_t n, HeadPlanes<std::byte> to) const noexcept {
        const Part& part = parts_[i];
        const HeadPlanes<std::byte> own = at(part, first);
        const HeadPlanes<const std::byte> from{own.units, own.scales};
        if (part.is_copied) return copy_rows(from, to, n, part.cold_row);
        convert_heads(*part.tier.cold, from, *part.tier.own, to, n * part.tier.heads, part.tier.dim);
    }

    /// Rows [to, to + n) become copies of those of another one with the same tiers, from row `first` on.
    void copy(const ColdRows& from, std::uint64_t first, std::uint64_t n, std::uint64_t to) noexcept {
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const HeadPlanes<std::byte> source = from.at(from.parts_[i], first);
            copy_rows({source.units, source.scales}, at(parts_[i], to), n, parts_[i].cold_row);
        }
    }

    /// The array of the units of tier i, and of its scales if the cache's format has any, get these rows.
    void set_rows(std::size_t i, StoredArray& units, StoredArray* scales) const {
        const TierOfRows& tier = parts_[i].tier;
        StoredArray cold{units.name, tier.cold->units(), {tokens_, tier.heads, tier.cold->units_of(tier.dim)}};
        StoredArray cold_scales;
        const HeadPlanes<std::byte> all = at(parts_[i], 0);
        cold.codec = tier.cold;
        cold.set_host_rows([all] { return all.units; });
        if (tier.cold->scales != nullptr) {
            cold_scales = {
                scales_name(units.name), tier.cold->scales(), {tokens_, tier.heads, tier.cold->scales_of(tier.dim)}};
            cold_scales.set_host_rows([all] { return all.scales; });
        }
        if (parts_[i].is_copied) {
            units.rows = cold.rows;
            if (scales != nullptr) scales->rows = cold_scales.rows;
            return;
        }
        const auto heads =
            std::make_shared<HeadsToConvert>(HeadsToConvert{std::move(cold), std::move(cold_scales), tier.own});
        units.set_rows(new ConvertedRows{heads, false});
        if (scales != nullptr) scales->set_rows(new ConvertedRows{heads, true});
    }

private:
    /// Bytes of a token.
    struct RowBytes {
        std::uint64_t units;
        std::uint64_t scales;
    };
    struct Part {
        TierOfRows tier;
        bool is_copied; ///< both formats are the same
        RowBytes cold_row;
        std::uint64_t units = 0; ///< where they begin in the memory
        std::uint64_t scales = 0;
    };

    static RowBytes row_of(const TierOfRows& tier, const FormatCodec& format) {
        return {tier.heads * format.units_of(tier.dim) * format.unit_bytes,
                tier.heads * format.scales_of(tier.dim) * format.scale_bytes};
    }
    static void copy_rows(HeadPlanes<const std::byte> from, HeadPlanes<std::byte> to, std::uint64_t n,
                          const RowBytes& row) noexcept {
        if (n * row.units != 0) std::memcpy(to.units, from.units, static_cast<std::size_t>(n * row.units));
        if (n * row.scales != 0) std::memcpy(to.scales, from.scales, static_cast<std::size_t>(n * row.scales));
    }

    HeadPlanes<std::byte> at(const Part& part, std::uint64_t row) const noexcept {
        auto* const memory = const_cast<std::byte*>(memory_.data());
        return {memory + part.units + row * part.cold_row.units, memory + part.scales + row * part.cold_row.scales};
    }

    std::uint64_t tokens_;
    std::uint64_t bytes_ = 0;
    std::vector<Part> parts_;
    ZeroedArray<std::byte> memory_;
};

} // namespace cellar::detail
