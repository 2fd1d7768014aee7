// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/cache/detail/cold_rows.hpp>
#include <cellar/cache/detail/offloaded_rows.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/storage_format.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Where the rows of a snapshot go, and in which formats; null: those of the cache.
struct OffloadPlace {
    OffloadTo to = OffloadTo::host;
    StoredAs as{};
};

/// The keys and values of the tokens of a snapshot that is offloaded: in the formats of the cache, or in others. Then
/// rows pass through some rows of the cache's formats on the host, and all functions block.
template <class Store, BackendPolicy Backend>
class TieredRows final : public OffloadedData {
    using Hot = OffloadedRows<Store, Backend>;
    using KeyFormat = typename Store::Keys::Format;
    using ValueFormat = typename Store::Values::Format;

public:
    /// Memory that a copy needs beside the rows.
    struct Transfer {
        UnownedData<Hot> staging{}; ///< null if nothing is converted
        typename Hot::Transfer rows{};
    };

    /// Both at fixed addresses.
    TieredRows(Backend& backend, ReservedList<Store>& stores, std::int64_t tokens, const OffloadPlace& place)
        : backend_{backend}, stores_{stores}, place_{place} {
        if constexpr (HoldsNoData<Backend>) // else nvcc 13 says that the line of the violation is no constant
            CELLAR_EXPECTS(!HoldsNoData<Backend>, "offload: the cache has no keys and values, expected a backend with "
                                                  "memory");
        if (place.as.keys == nullptr && place.as.values == nullptr) {
            hot_.emplace(backend, stores, tokens, place.to);
        } else {
            cold_.emplace(tiers(), tokens);
        }
    }

    std::int64_t bytes() const override { return hot_ ? hot_->bytes() : cold_->bytes(); }
    void finish_work() noexcept override { backend_.fence(); }
    const OffloadPlace& place() const { return place_; }

    /// In the formats of the cache, or null.
    Hot* hot() { return hot_ ? &*hot_ : nullptr; }
    /// In others, or null.
    const ColdRows* cold() const { return cold_ ? &*cold_ : nullptr; }

    /// `room`: of as many cells as will be read or written.
    Transfer prepare_read(const TrivialList<Cell>& room) {
        const auto tokens = static_cast<std::int64_t>(room.capacity());
        if (hot_) return {nullptr, hot_->prepare(tokens)};
        UnownedData<Hot> staging = make_staging(tokens);
        auto rows = staging->prepare(rows_at_once(tokens));
        return {std::move(staging), std::move(rows)};
    }
    Transfer prepare_write(const TrivialList<Cell>& room) {
        if constexpr (ReservesPasses<Backend>)
            backend_.reserve(static_cast<std::int64_t>(room.capacity()), 0); // the list of cells
        return prepare_read(room);
    }

    void read(std::span<const Cell> cells, Transfer transfer) {
        if (hot_) return hot_->read(cells, transfer.rows);
        for_each_part(std::ssize(cells), [&](std::int64_t first, std::int64_t n) {
            transfer.staging->read(part_of(cells, first, n), transfer.rows);
            take_from(*transfer.staging, n, first);
        });
    }
    void write(std::span<const Cell> cells, Transfer transfer) {
        if (hot_) return hot_->write(cells, transfer.rows);
        for_each_part(std::ssize(cells), [&](std::int64_t first, std::int64_t n) {
            give_to(*transfer.staging, first, n);
            transfer.staging->write(part_of(cells, first, n), transfer.rows);
            backend_.fence(); // before the staging is used again
        });
    }

    /// Copies n rows of another one, from row `first` on, to those from row `to` on. Enqueues; blocks if they are in
    /// other formats, or one is on the host and the other is not.
    void copy_rows(TieredRows& from, std::int64_t first, std::int64_t n, std::int64_t to) {
        if (hot_ && from.hot_) return hot_->copy_rows(*from.hot_, first, n, to);
        if (cold_ && from.cold_) return cold_->copy(*from.cold_, as_count(first), as_count(n), as_count(to));
        const UnownedData<Hot> staging = make_staging(n);
        for_each_part(n, [&](std::int64_t done, std::int64_t count) {
            if (cold_) {
                staging->copy_rows(*from.hot_, first + done, count, 0);
                take_from(*staging, count, to + done);
            } else {
                from.give_to(*staging, first + done, count);
                hot_->copy_rows(*staging, 0, count, to + done);
                backend_.fence(); // before the staging is used again
            }
        });
    }

private:
    static std::uint64_t as_count(std::int64_t n) { return static_cast<std::uint64_t>(n); }
    static std::span<const Cell> part_of(std::span<const Cell> cells, std::int64_t first, std::int64_t n) {
        return cells.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n));
    }

    /// Keys and values of each layer, by turns.
    std::vector<TierOfRows> tiers() {
        std::vector<TierOfRows> made;
        const auto add = [&](auto& rows, const FormatCodec& own, const FormatCodec* cold) {
            made.push_back({&own, cold == nullptr ? &own : cold, static_cast<std::uint64_t>(rows.mapping().heads()),
                            static_cast<std::uint64_t>(rows.dim())});
        };
        for (Store& store : stores_) {
            add(store.all_keys(), codec_of<KeyFormat>, place_.as.keys);
            add(store.all_values(), codec_of<ValueFormat>, place_.as.values);
        }
        return made;
    }

    /// Rows of the cache's formats that are on their way at a time: about 8 MiB.
    std::int64_t rows_at_once(std::int64_t n) const {
        std::int64_t row = 1;
        for (const Store& store : stores_) row += store.row_bytes();
        return std::min(n, std::max((std::int64_t{8} << 20) / row, std::int64_t{1}));
    }
    UnownedData<Hot> make_staging(std::int64_t n) {
        return UnownedData<Hot>{new Hot{backend_, stores_, rows_at_once(n), OffloadTo::host}};
    }
    template <class Visit>
    void for_each_part(std::int64_t n, Visit visit) {
        const std::int64_t some = rows_at_once(n);
        for (std::int64_t first = 0; first < n; first += some) visit(first, std::min(some, n - first));
    }

    // The first n rows of the staging become those from `first` on.
    void take_from(Hot& staging, std::int64_t n, std::int64_t first) {
        backend_.fence(); // work may still write to it
        for_each_side(staging, [&](std::size_t i, const HeadPlanes<std::byte>& rows) {
            cold_->take(i, {rows.units, rows.scales}, as_count(n), as_count(first));
        });
    }
    void give_to(Hot& staging, std::int64_t first, std::int64_t n) {
        for_each_side(staging, [&](std::size_t i, const HeadPlanes<std::byte>& rows) {
            cold_->give(i, as_count(first), as_count(n), rows);
        });
    }
    // Calls visit(i, first row) for each of the tiers.
    template <class Visit>
    void for_each_side(Hot& staging, Visit visit) {
        for (std::size_t i = 0; i < stores_.size(); ++i) {
            visit(2 * i, side<KeyFormat, &Store::all_keys, &Store::key_scales>(staging, i));
            visit(2 * i + 1, side<ValueFormat, &Store::all_values, &Store::value_scales>(staging, i));
        }
    }
    template <class Format, auto Units, auto Scales>
    HeadPlanes<std::byte> side(Hot& staging, std::size_t i) {
        const auto place = [&](auto& block) {
            return reinterpret_cast<std::byte*>(block.data() + block.begin_of(stores_, i));
        };
        HeadPlanes<std::byte> rows{place(staging.template block<Units>()), nullptr};
        if constexpr (has_scale_plane<Format>) rows.scales = place(staging.template block<Scales>());
        return rows;
    }

    Backend& backend_;
    ReservedList<Store>& stores_;
    OffloadPlace place_;
    std::optional<Hot> hot_;
    std::optional<ColdRows> cold_;
};

} // namespace cellar::detail
