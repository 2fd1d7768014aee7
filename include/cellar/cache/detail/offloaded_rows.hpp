// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/offloaded_memory.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/detail/layer_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// A plane of the keys, or of the values, of n tokens in all layers, in one block: layer after layer, each [n, heads,
/// units of a head].
///
/// If the backend cannot reach host memory, rows on the host pass through memory of the backend. That takes as many
/// layers at a time as fit, because long copies to and from the host are faster.
template <class Store, auto RowsOf, BackendPolicy Backend>
class OffloadedBlock {
    using Rows = std::remove_reference_t<decltype((std::declval<Store&>().*RowsOf)())>;
    using E = typename Rows::element_type;
    using Buffer = typename Backend::template Buffer<E>;

public:
    using Staging = std::optional<Buffer>;

    OffloadedBlock(Backend& backend, ReservedList<Store>& stores, std::int64_t tokens, OffloadTo to)
        : tokens_{tokens}, row_{row_of(stores)}, memory_{backend, tokens * row_, to} {
        for (Store& store : stores) longest_row_ = std::max(longest_row_, (store.*RowsOf)().row());
    }

    std::int64_t bytes() const { return tokens_ * row_ * std::int64_t{sizeof(E)}; }

    /// What `read` or `write` of that many tokens needs beside the block.
    Staging allocate_staging(Backend& backend, std::int64_t tokens) const {
        if (!memory_.is_staged()) return std::nullopt;
        constexpr std::int64_t usual = (std::int64_t{8} << 20) / std::int64_t{sizeof(E)};
        return backend.template allocate<E>(std::min(tokens * row_, std::max(usual, longest_row_)));
    }

    /// Reads cells[i] of each layer into row i. Enqueues; blocks if the backend cannot reach the block.
    void read(Backend& backend, ReservedList<Store>& stores, std::span<const Cell> cells, Staging& staging) {
        const std::int64_t n = std::ssize(cells);
        for (Cursor cursor; cursor.store < stores.size();) {
            const std::int64_t first = cursor.block + cursor.token * (stores[cursor.store].*RowsOf)().row();
            std::int64_t count = 0;
            cursor = for_each_part(stores, n, cursor, staging, [&](Rows& rows, const Part& part) {
                E* const to = staging ? staging->data() + part.in_staging : data() + part.in_block;
                backend.gather(rows.mapping(), rows.memory(), part.of(cells), view(rows, to, part.tokens));
                count = part.in_staging + part.tokens * rows.row();
            });
            if (staging)
                backend.copy_to_host(*staging, 0, std::span{memory_.data() + first, static_cast<std::size_t>(count)});
        }
    }

    /// Writes the first rows of each layer to `cells`. Enqueues; blocks as `read` does.
    void write(Backend& backend, ReservedList<Store>& stores, std::span<const Cell> cells, Staging& staging) {
        const std::int64_t n = std::ssize(cells);
        for (Cursor cursor; cursor.store < stores.size();) {
            const Cursor begin = cursor;
            if (staging) {
                const std::int64_t first = cursor.block + cursor.token * (stores[cursor.store].*RowsOf)().row();
                std::int64_t count = 0;
                for_each_part(stores, n, begin, staging, [&](Rows& rows, const Part& part) {
                    count = part.in_staging + part.tokens * rows.row();
                });
                const std::span<const E> from{memory_.data() + first, static_cast<std::size_t>(count)};
                backend.copy_from_host(from, *staging, 0);
            }
            cursor = for_each_part(stores, n, begin, staging, [&](Rows& rows, const Part& part) {
                const E* const from = staging ? staging->data() + part.in_staging : data() + part.in_block;
                backend.scatter(rows.mapping(), rows.memory(), part.of(cells), view(rows, from, part.tokens));
            });
        }
        if (staging) backend.fence(); // before it is destroyed
    }

    /// Copies n rows of each layer of another block, from row `first` on, to those from row `to` on. Enqueues; blocks
    /// if one block is on the host and the other is not, and the backend cannot reach it there.
    void copy_rows(Backend& backend, ReservedList<Store>& stores, OffloadedBlock& from, std::int64_t first,
                   std::int64_t n, std::int64_t to) {
        TrivialList<SlotRows> reachable;
        std::int64_t source = 0;
        std::int64_t target = 0;
        for (Store& store : stores) {
            const std::int64_t row = (store.*RowsOf)().row();
            copy(backend, from, source + first * row, n * row, target + to * row, reachable);
            source += from.tokens_ * row;
            target += tokens_ * row;
        }
        constexpr SlotCopy once{0, 0};
        backend.copy_slots(reachable, {&once, 1});
    }

    /// On the host, or in memory of the backend.
    E* data() { return memory_.data(); }
    bool is_on_host() const { return memory_.is_on_host(); }

    /// Where the rows of a layer begin: the one of stores[i].
    std::int64_t begin_of(ReservedList<Store>& stores, std::size_t i) const {
        std::int64_t begin = 0;
        for (std::size_t before = 0; before < i; ++before) begin += tokens_ * (stores[before].*RowsOf)().row();
        return begin;
    }

    /// Blocks. The block is in memory of the backend.
    void copy_to_host(Backend& backend, std::int64_t first, std::span<E> to) {
        memory_.copy_to_host(backend, first, to);
    }

private:
    /// Where a part begins.
    struct Cursor {
        std::size_t store = 0;
        std::int64_t token = 0;
        std::int64_t block = 0; ///< where the layer begins in the block
    };
    /// Rows of one layer.
    struct Part {
        std::int64_t first = 0;
        std::int64_t tokens = 0;
        std::int64_t in_block = 0;
        std::int64_t in_staging = 0;

        std::span<const Cell> of(std::span<const Cell> cells) const {
            return cells.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens));
        }
    };

    // Calls `visit(rows, part)` for the first n rows of each layer from the cursor on; with staging memory, only for
    // those that fit into it and are neighbours in the block. Returns the cursor behind them.
    template <class Visit>
    Cursor for_each_part(ReservedList<Store>& stores, std::int64_t n, Cursor cursor, const Staging& staging,
                         Visit visit) const {
        std::int64_t staged = 0;
        while (cursor.store < stores.size()) {
            Rows& rows = (stores[cursor.store].*RowsOf)();
            const std::int64_t row = rows.row();
            std::int64_t tokens = n - cursor.token;
            if (staging && row != 0) tokens = std::min(tokens, (staging->size() - staged) / row);
            if (tokens != 0 && row != 0)
                visit(rows, Part{cursor.token, tokens, cursor.block + cursor.token * row, staged});
            staged += tokens * row;
            cursor.token += tokens;
            if (cursor.token < n) return cursor; // the staging memory is full
            cursor = {cursor.store + 1, 0, cursor.block + tokens_ * row};
            if (staging && n != tokens_) return cursor;
        }
        return cursor;
    }

    // Units [first, first + count) of another block; what the backend reaches on both sides is added to `reachable`.
    void copy(Backend& backend, OffloadedBlock& from, std::int64_t first, std::int64_t count, std::int64_t to,
              TrivialList<SlotRows>& reachable) {
        if (count == 0) return;
        const auto size = static_cast<std::size_t>(count);
        const bool any_staged = from.memory_.is_staged() || memory_.is_staged();
        if (any_staged && from.is_on_host() && is_on_host()) {
            if (from.memory_.is_staged() != memory_.is_staged()) backend.fence(); // work may use pinned memory
            std::copy_n(from.data() + first, size, data() + to);
        } else if (memory_.is_staged()) {
            from.memory_.copy_to_host(backend, first, std::span{data() + to, size});
        } else if (any_staged) {
            memory_.copy_from_host(backend, std::span<const E>{from.data() + first, size}, to);
        } else {
            reachable.push_back({reinterpret_cast<const std::byte*>(from.data() + first),
                                 reinterpret_cast<std::byte*>(data() + to), 0, 0, count * std::int64_t{sizeof(E)}});
        }
    }

    template <class T>
    static StridedView<T, 3> view(const Rows& rows, T* data, std::int64_t tokens) {
        return contiguous_view(data, tokens, rows.mapping().heads(), rows.mapping().dim());
    }

    static std::int64_t row_of(ReservedList<Store>& stores) {
        std::int64_t row = 0;
        for (Store& store : stores) row += (store.*RowsOf)().row();
        return row;
    }

    std::int64_t tokens_;
    std::int64_t row_; // units of a token in all layers
    std::int64_t longest_row_ = 0;
    OffloadedMemory<E, Backend> memory_;
};

/// The keys and values of the tokens of a snapshot that is offloaded, a block for each plane: row i has those of
/// token i.
template <class Store, BackendPolicy Backend, class Planes>
class OffloadedPlanes;
template <class Store, BackendPolicy Backend, auto... Members>
class OffloadedPlanes<Store, Backend, PlaneList<Members...>> final : public OffloadedData {
public:
    /// Memory that copies need beside the rows. It must outlive them.
    using Transfer = std::tuple<typename OffloadedBlock<Store, Members, Backend>::Staging...>;

    /// Both at fixed addresses.
    OffloadedPlanes(Backend& backend, ReservedList<Store>& stores, std::int64_t tokens, OffloadTo to)
        : backend_{backend},
          stores_{stores},
          blocks_{OffloadedBlock<Store, Members, Backend>{backend, stores, tokens, to}...} {}

    std::int64_t bytes() const override { return (std::get<Block<Members>>(blocks_).bytes() + ...); }
    void finish_work() noexcept override { backend_.fence(); }

    /// For as many tokens as will be read or written at a time.
    Transfer prepare(std::int64_t tokens) const {
        return {std::get<Block<Members>>(blocks_).allocate_staging(backend_, tokens)...};
    }

    void read(std::span<const Cell> cells, Transfer& transfer) {
        for_each([&]<std::size_t I>(auto& block) { block.read(backend_, stores_, cells, std::get<I>(transfer)); });
    }
    void write(std::span<const Cell> cells, Transfer& transfer) {
        for_each([&]<std::size_t I>(auto& block) { block.write(backend_, stores_, cells, std::get<I>(transfer)); });
    }

    /// Copies n rows of another one, from row `first` on, to those from row `to` on. Enqueues; blocks if one is on the
    /// host and the other is not.
    void copy_rows(OffloadedPlanes& from, std::int64_t first, std::int64_t n, std::int64_t to) {
        for_each([&]<std::size_t I>(auto& block) {
            block.copy_rows(backend_, stores_, std::get<I>(from.blocks_), first, n, to);
        });
    }

    /// `RowsOf`: one of the members of `Store::planes()`.
    template <auto RowsOf>
    auto& block() {
        return std::get<Block<RowsOf>>(blocks_);
    }

private:
    template <auto RowsOf>
    using Block = OffloadedBlock<Store, RowsOf, Backend>;

    template <class F>
    void for_each(F f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (f.template operator()<I>(std::get<I>(blocks_)), ...);
        }
        (std::index_sequence_for<Block<Members>...>{});
    }

    Backend& backend_;
    ReservedList<Store>& stores_;
    std::tuple<Block<Members>...> blocks_;
};
template <class Store, BackendPolicy Backend>
using OffloadedRows = OffloadedPlanes<Store, Backend, decltype(Store::planes())>;

} // namespace cellar::detail
