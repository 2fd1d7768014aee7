// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/cache/detail/cell_stream.hpp>
#include <cellar/cache/detail/layer_store.hpp>
#include <cellar/cache/detail/offloaded_rows.hpp>
#include <cellar/cache/detail/tiered_rows.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// How the snapshots of a cache are saved and loaded: numbers, the position of each token, and the planes of the keys
/// and values of each layer, [tokens, kv_heads, units of a head], in the order of the tokens' positions.
template <class State>
class StoredCells {
    using Store = typename State::Store;
    using Rows = TieredRows<Store, typename State::Backend>;
    using HotRows = OffloadedRows<Store, typename State::Backend>;

public:
    explicit StoredCells(State& state) : state_{state}, kind_{state.holds_inputs ? stored_inputs : stored_cache} {}

    /// Adds what a snapshot consists of. `prefix`: of all names.
    void save(const KeptCells& kept, const std::string& prefix, StoredSnapshot& stored) {
        save(kept, std::make_shared<RowPositions>(kept.runs, kept.from, kept.to), prefix, stored);
    }

    /// Adds what a snapshot of s up to position `to` will consist of, once s has got there. Arrays can be read as far
    /// as s has their rows, for as long as s only grows. Inputs are those that s has: no more may come below `to`.
    void save_ahead(Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
        const PositionRuns& runs = state_.book.runs(s);
        const auto& window = state_.book.window();
        const Position oldest = to == Position{0} ? to : window.oldest_kept(to - 1);
        RowPositions::List list;
        const auto add = [&](std::int32_t position) {
            if (position < window.sinks() || position >= oldest.value) list.push_back(position);
        };
        runs.for_each(Position{0}, to, [&](Position position, Cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) add(position.value + i);
        });
        const bool is_ahead = is_cache();
        for (std::int32_t next = state_.book.next(s).value; is_ahead && next < to.value; ++next) add(next);
        const bool is_window = is_ahead && to.value > 0 && oldest.value > window.sinks(); // as prepare_keep
        const std::size_t before = stored.arrays.size();
        KeptCells kept{Position{0}, to, is_window, 0};
        if (const Position altered = state_.book.table().altered_from(s); altered < to) kept.altered = altered;
        save(kept, std::make_shared<RowPositions>(runs, std::move(list)), prefix, stored);
        for (std::size_t i = before; i < stored.arrays.size(); ++i) stored.arrays[i].comes_later = is_ahead;
    }

    /// Makes what a snapshot owns, not filled in yet: offloaded on the host, or, without rows, to be given cells. Adds
    /// where its arrays go.
    Checked<void> prepare_load(const Load& load, KeptCellsPointer& kept, UnownedData<Rows>& rows) {
        auto& source = load.source;
        const std::string& prefix = load.prefix;
        auto& arrays = load.arrays;
        std::uint64_t n = 0;
        if (auto suits = check_numbers(source, prefix, n); !suits) return suits;
        const std::size_t before = arrays.size();
        add_arrays(n, prefix, arrays);
        if (auto suits = check_arrays(source, std::span{arrays}.subspan(before)); !suits) return suits;
        const auto rotation = source.number(prefix + "rotation");
        if ((rotation && *rotation < 0) != (state_.rotation < 0))
            return Problem{state_.rotation < 0
                               ? "its keys were not stored to be rotated on read, as those of this cache"
                               : "its keys were stored to be rotated on read, unlike those of this cache"};
        if (rotation && state_.rotation != 0 && *rotation != state_.rotation)
            return Problem{"its keys are rotated in other pairs of elements than those of this cache"};
        if (source.number(prefix + "factors").value_or(0) != state_.scaling)
            return Problem{"its keys and values are divided by other factors than those of this cache"};
        RowPositions::List positions;
        if (auto made = make_kept(source, prefix, positions, kept); !made) return made;
        if (is_cache() && !state_.book.can_restore(*kept, kept->to))
            return Problem{"its snapshot lacks positions that the window of this cache sees"};
        if (load.to == LoadTo::host) {
            rows.reset(new Rows{state_.backend, state_.stores, static_cast<std::int64_t>(n), OffloadPlace{}});
            set_offloaded_rows(*rows->hot(), arrays, before);
        } else {
            set_cells(std::make_shared<RowPositions>(kept->runs, std::move(positions)), arrays, before);
        }
        return {};
    }

private:
    // Unless they are offloaded, the rows are in the cells of the runs of `positions`.
    void save(const KeptCells& kept, const std::shared_ptr<RowPositions>& positions, const std::string& prefix,
              StoredSnapshot& stored) {
        stored.numbers.emplace_back(prefix + "kind", kind_);
        stored.numbers.emplace_back(prefix + "layers", layers());
        stored.numbers.emplace_back(prefix + "from", kept.from.value);
        stored.numbers.emplace_back(prefix + "to", kept.to.value);
        stored.numbers.emplace_back(prefix + "is_window", kept.is_window ? 1 : 0);
        if (is_cache() && kept.altered != to_end) stored.numbers.emplace_back(prefix + "altered", kept.altered.value);
        if (state_.rotation != 0) stored.numbers.emplace_back(prefix + "rotation", state_.rotation);
        if (state_.scaling != 0) stored.numbers.emplace_back(prefix + "factors", state_.scaling);
        StoredArray list{prefix + "positions", StoredFormat::i32(), {positions->size()}};
        list.set_host_rows([positions] { return positions->list().data(); });
        stored.arrays.push_back(std::move(list));
        const std::size_t before = stored.arrays.size();
        add_arrays(positions->size(), prefix, stored.arrays);
        if (kept.is_offloaded()) return set_tiered_rows(static_cast<Rows&>(*kept.data), stored.arrays, before);
        set_cells(positions, stored.arrays, before);
    }

    bool is_cache() const { return kind_ == stored_cache; } // not of inputs

    // Those that have memory of their own.
    std::int64_t layers() const { return static_cast<std::int64_t>(state_.stores.size()); }

    /// The planes of each layer, without rows.
    void add_arrays(std::uint64_t tokens, const std::string& prefix, std::vector<StoredArray>& arrays) {
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            const std::string layer = prefix + "layers." + std::to_string(state_.stores.owner(i));
            Store& store = state_.stores[i];
            const auto add = [&](const auto& plane, std::string name, StoredFormat format) -> StoredArray& {
                const auto heads = static_cast<std::uint64_t>(plane.mapping().heads());
                const auto units = static_cast<std::uint64_t>(plane.mapping().dim());
                return arrays.emplace_back(StoredArray{std::move(name), std::move(format), {tokens, heads, units}});
            };
            const auto add_both = [&]<class RowStore>(RowStore& rows, const std::string& name) {
                using Format = typename RowStore::Format;
                add(rows, name, stored_units_of<Format>()).codec = &codec_of<Format>;
                if constexpr (has_scale_plane<Format>)
                    add(rows.scales(), scales_name(name), stored_scales_of<Format>());
            };
            add_both(store.all_keys(), layer + ".keys");
            add_both(store.all_values(), layer + ".values");
        }
    }

    // The arrays from `first` on are those of `add_arrays`.
    void set_cells(const std::shared_ptr<RowPositions>& positions, std::vector<StoredArray>& arrays,
                   std::size_t first) {
        for (Store& store : state_.stores)
            for_each_plane(store, Store::planes(), [&]<class Plane>(Plane& plane) {
                using Stream = CellStream<typename State::Backend, Plane>;
                arrays[first++].set_rows(new Stream{state_.backend, plane, positions});
            });
    }
    void set_tiered_rows(Rows& rows, std::vector<StoredArray>& arrays, std::size_t first) {
        if (rows.hot() != nullptr) return set_offloaded_rows(*rows.hot(), arrays, first);
        for (std::size_t tier = 0; first < arrays.size(); ++tier) {
            StoredArray& units = arrays[first++];
            rows.cold()->set_rows(tier, units, units.codec->scales == nullptr ? nullptr : &arrays[first++]);
        }
    }
    void set_offloaded_rows(HotRows& rows, std::vector<StoredArray>& arrays, std::size_t first) {
        for (std::size_t i = 0; i < state_.stores.size(); ++i)
            set_offloaded_rows(rows, arrays, first, i, Store::planes());
    }
    template <auto... Members>
    void set_offloaded_rows(HotRows& rows, std::vector<StoredArray>& arrays, std::size_t& first, std::size_t i,
                            PlaneList<Members...>) {
        const auto set = [&]<class Block>(Block& block, std::int64_t row) {
            const std::int64_t begin = block.begin_of(state_.stores, i);
            auto& backend = state_.backend;
            StoredArray& array = arrays[first++];
            if (!block.is_on_host()) {
                using Stream = OffloadedStream<Block, typename State::Backend>;
                return array.set_rows(new Stream{block, backend, begin, row});
            }
            array.set_host_rows([&block, &backend, begin] {
                backend.fence(); // work may still write to it
                return block.data() + begin;
            });
        };
        (set(rows.template block<Members>(), (state_.stores[i].*Members)().row()), ...);
    }

    // `tokens`: how many the source has.
    Checked<void> check_numbers(const StoredSource& source, const std::string& prefix, std::uint64_t& tokens) const {
        if (source.number(prefix + "kind") != kind_)
            return Problem{is_cache() ? "it has no snapshot of a cache" : "it has no snapshot of an encoder memory"};
        const auto from = source.number(prefix + "from");
        const auto to = source.number(prefix + "to");
        const auto is_window = source.number(prefix + "is_window");
        const auto shape = source.shape(prefix + "positions");
        if (!from || !to || !is_window || !shape || shape->size() != 1 || *from < 0 || *to < *from || *to > INT32_MAX)
            return Problem{"its snapshot has no valid range of positions"};
        if (const auto altered = source.number(prefix + "altered"); altered && (*altered < *from || *altered >= *to))
            return Problem{"its snapshot is altered from a position on that it does not have"};
        tokens = (*shape)[0];
        if (tokens > static_cast<std::uint64_t>(INT32_MAX)) return Problem{"its snapshot has too many tokens"};
        return check_layers(source.number(prefix + "layers"), layers());
    }

    // The source has these numbers.
    static Checked<void> make_kept(StoredSource& source, const std::string& prefix, RowPositions::List& positions,
                                   KeptCellsPointer& kept) {
        const auto from = static_cast<std::int32_t>(*source.number(prefix + "from"));
        const auto to = static_cast<std::int32_t>(*source.number(prefix + "to"));
        positions.resize(static_cast<std::size_t>((*source.shape(prefix + "positions"))[0]));
        if (!source.read(prefix + "positions", positions))
            return Problem{"the positions of its snapshot cannot be read"};
        std::int64_t runs = 2;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::int32_t before = i == 0 ? from : positions[i - 1];
            if (positions[i] < before || positions[i] >= to)
                return Problem{"the positions of its snapshot are not in order"};
            runs += i == 0 || positions[i] != before + 1 ? 1 : 0;
        }
        kept.reset(new KeptCells{Position{from}, Position{to}, *source.number(prefix + "is_window") != 0, runs});
        if (const auto altered = source.number(prefix + "altered"))
            kept->altered = Position{static_cast<std::int32_t>(*altered)};
        for (std::size_t i = 0, end = 0; i < positions.size(); i = end) {
            for (end = i + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;) ++end;
            kept->runs.insert(Position{positions[i]}, static_cast<Cell>(i), static_cast<std::int32_t>(end - i));
        }
        return {};
    }

    State& state_;
    std::int64_t kind_;
};

} // namespace cellar::detail
