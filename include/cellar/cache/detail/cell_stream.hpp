// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/memory/device_rows.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The position of each row of a snapshot, in order. Where runs have them all, they are listed when they are first
/// asked for.
class RowPositions {
public:
    using List = TrivialList<std::int32_t>;

    RowPositions(const PositionRuns& runs, List list) : runs_{&runs}, list_{std::move(list)} {}
    RowPositions(const PositionRuns& runs, Position from, Position to)
        : runs_{&runs}, from_{from}, to_{to}, size_{static_cast<std::size_t>(runs.tokens())} {}

    std::size_t size() const { return size_ != 0 ? size_ : list_.size(); }

    List& list() {
        if (list_.size() == size()) return list_;
        list_.reserve(size_);
        runs_->for_each(from_, to_, [&](Position position, Cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) list_.push_back(position.value + i);
        });
        return list_;
    }

    /// The cells of rows [first, first + count), wherever defragmentation has moved them. O(log runs + count), plus the
    /// rows before them at the same position.
    void find_cells(std::uint64_t first, std::uint64_t count, TrivialList<Cell>& cells) {
        cells.clear();
        if (count == 0) return;
        const List& positions = list();
        const std::int32_t begin = positions[static_cast<std::size_t>(first)];
        const std::int32_t end = positions[static_cast<std::size_t>(first + count - 1)] + 1;
        const auto row = std::lower_bound(positions.begin(), positions.end(), begin) - positions.begin();
        std::int64_t skipped = static_cast<std::int64_t>(first) - row;
        auto missing = static_cast<std::int64_t>(count);
        runs_->for_each(Position{begin}, Position{end}, [&](Position, Cell cell, std::int32_t n) {
            const std::int64_t skip = std::min<std::int64_t>(skipped, n);
            const std::int64_t taken = std::min<std::int64_t>(missing, n - skip);
            for (std::int64_t k = 0; k < taken; ++k) cells.push_back(cell + static_cast<Cell>(skip + k));
            skipped -= skip;
            missing -= taken;
        });
    }

private:
    const PositionRuns* runs_;
    Position from_{0};
    Position to_{0};
    std::size_t size_ = 0; // if they are listed later
    List list_;
};

/// Room of a backend's memory.
template <class Backend>
class BackendRoom final : public DeviceRoom {
public:
    // Floats are aligned for all elements, and for checksums.
    BackendRoom(Backend& backend, std::int64_t bytes)
        : backend_{&backend}, memory_{backend.template allocate<float>((bytes + 3) / 4)} {
        backend.fence(); // else it is cleared later, when rows may have arrived
    }

    std::byte* data() override { return reinterpret_cast<std::byte*>(memory_.data()); }
    std::int64_t size() const override { return std::int64_t{sizeof(float)} * memory_.size(); }
    const void* owner() const override { return backend_; }

private:
    const Backend* backend_; // which may be no more
    typename Backend::template Buffer<float> memory_;
};

/// A plane of the keys, or of the values, of one layer in cells.
template <class Backend, class Elements>
class CellStream final : public RowStream, public DeviceRows {
    using E = typename Elements::element_type;
    static constexpr bool are_in_place = contiguous_rows<typename Elements::Mapping> && Backend::host_reaches;
    static constexpr bool are_on_device = !Backend::host_reaches && ComputesChecksums<Backend>;

public:
    CellStream(Backend& backend, Elements& rows, std::shared_ptr<RowPositions> positions)
        : backend_{backend}, rows_{rows}, positions_{std::move(positions)} {}

    bool in_place(std::uint64_t first, std::uint64_t count, const Visit& visit) override {
        if constexpr (are_in_place) {
            backend_.fence();
            find(first, count);
            for (std::size_t i = 0, end = 0; i < cells_.size(); i = end) {
                for (end = i + 1; end < cells_.size() && cells_[end] == cells_[end - 1] + 1;) ++end;
                const CellRange run{cells_[i], static_cast<std::int32_t>(end - i)};
                E* const at = rows_.mapping().view(rows_.memory().data(), run).pointer;
                visit({reinterpret_cast<std::byte*>(at), bytes_of(end - i)});
            }
        }
        return are_in_place;
    }

    void read(std::uint64_t first, std::uint64_t count, std::byte* to) override {
        find(first, count);
        auto* const elements = reinterpret_cast<E*>(to);
        if constexpr (Backend::host_reaches) {
            gather_to(elements);
            backend_.fence();
        } else {
            gather_to(reserve_staging(count));
            backend_.copy_to_host(*staging_, 0, std::span{elements, elements_of(count)});
        }
    }

    void write(std::uint64_t first, std::uint64_t count, const std::byte* from) override {
        find(first, count);
        const auto* const elements = reinterpret_cast<const E*>(from);
        if constexpr (Backend::host_reaches) {
            put_from(elements);
        } else {
            const E* const staged = reserve_staging(count);
            backend_.copy_from_host(std::span{elements, elements_of(count)}, *staging_, 0);
            put_from(staged);
        }
        backend_.fence();
    }

    DeviceRows* on_device() override { return are_on_device ? this : nullptr; }
    const void* owner() const override { return &backend_; }
    std::unique_ptr<DeviceRoom> make_room(std::int64_t bytes) override {
        return std::make_unique<BackendRoom<Backend>>(backend_, bytes);
    }
    std::uint32_t gather(std::uint64_t first, std::uint64_t count, std::byte* to) override {
        find(first, count);
        gather_to(reinterpret_cast<E*>(to));
        return checksum(to, count);
    }
    std::uint32_t scatter(std::uint64_t first, std::uint64_t count, const std::byte* from) override {
        find(first, count);
        put_from(reinterpret_cast<const E*>(from));
        return checksum(from, count);
    }

private:
    void find(std::uint64_t first, std::uint64_t count) { positions_->find_cells(first, count, cells_); }

    std::size_t elements_of(std::uint64_t count) const {
        return static_cast<std::size_t>(count) * static_cast<std::size_t>(rows_.row());
    }
    std::size_t bytes_of(std::uint64_t count) const { return elements_of(count) * sizeof(E); }

    // Both are of the cells that were found.
    void gather_to(E* to) { backend_.gather(rows_.mapping(), rows_.memory(), std::span<const Cell>{cells_}, view(to)); }
    void put_from(const E* from) {
        backend_.scatter(rows_.mapping(), rows_.memory(), std::span<const Cell>{cells_}, view(from));
    }

    template <class T>
    StridedView<T, 3> view(T* data) const {
        return contiguous_view(data, cells_.size(), rows_.mapping().heads(), rows_.mapping().dim());
    }

    std::uint32_t checksum(const std::byte* bytes, std::uint64_t count) {
        if constexpr (are_on_device) return backend_.crc32(bytes, static_cast<std::int64_t>(bytes_of(count)));
        return 0;
    }

    E* reserve_staging(std::uint64_t count) {
        const auto n = static_cast<std::int64_t>(elements_of(count));
        if (!staging_ || staging_->size() < n) staging_.emplace(backend_.template allocate<E>(n));
        return staging_->data();
    }

    Backend& backend_;
    Elements& rows_;
    std::shared_ptr<RowPositions> positions_;
    TrivialList<Cell> cells_;                                     // again for each call
    std::optional<typename Backend::template Buffer<E>> staging_; // so is this
};

/// The same of a snapshot that is offloaded to memory that the host does not reach. They are only read.
template <class Block, class Backend>
class OffloadedStream final : public RowStream {
public:
    /// `begin`, `row`: in elements of the block.
    OffloadedStream(Block& block, Backend& backend, std::int64_t begin, std::int64_t row)
        : block_{block}, backend_{backend}, begin_{begin}, row_{row} {}

    bool in_place(std::uint64_t, std::uint64_t, const Visit&) override { return false; }
    void read(std::uint64_t first, std::uint64_t count, std::byte* to) override {
        using E = std::remove_pointer_t<decltype(block_.data())>;
        block_.copy_to_host(
            backend_, begin_ + static_cast<std::int64_t>(first) * row_,
            std::span{reinterpret_cast<E*>(to), static_cast<std::size_t>(count) * static_cast<std::size_t>(row_)});
    }

private:
    Block& block_;
    Backend& backend_;
    std::int64_t begin_;
    std::int64_t row_;
};

} // namespace cellar::detail
