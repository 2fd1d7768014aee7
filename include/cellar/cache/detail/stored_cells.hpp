// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/cache/detail/device_cells.hpp>
#include <cellar/cache/detail/paged_rows.hpp>
#include <cellar/element/stored_element.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// How the snapshots of a cache are saved and loaded: numbers, the position of each token, and the keys and values of
/// each layer, [tokens, kv_heads, dim], in the order of the tokens' positions.
template <class State>
class StoredCells {
    using Store = typename State::Store;
    using Backend = typename State::Backend;
    using Rows = PagedRows<Store, Backend>;

public:
    StoredCells(State& state, Resuming resuming)
        : state_{state}, kind_{resuming == Resuming::checked ? stored_cache : stored_inputs} {}

    /// Adds what a snapshot consists of. `prefix`: of all names.
    void save(const KeptCells& kept, const std::string& prefix, StoredSnapshot& stored) {
        auto positions = std::make_shared<Numbers>();
        kept.runs.for_each(kept.from, kept.to, [&](Position position, Cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) positions->push_back(position.value + i);
        });
        save(kept, kept.runs, positions, prefix, stored);
    }

    /// Adds what a snapshot of s up to position `to` will consist of, once s has got there. Arrays can be read as far
    /// as s has their rows, for as long as s only grows. Inputs are those that s has: no more may come below `to`.
    void save_ahead(Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
        const PositionRuns& runs = state_.book.runs(s);
        const auto& window = state_.book.window();
        const Position oldest = to == Position{0} ? to : window.oldest_kept(to - 1);
        auto positions = std::make_shared<Numbers>();
        const auto add = [&](std::int32_t position) {
            if (position < window.sinks() || position >= oldest.value) positions->push_back(position);
        };
        runs.for_each({0}, to, [&](Position position, Cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) add(position.value + i);
        });
        if (kind_ == stored_inputs) return save(KeptCells{{0}, to, false, 0}, runs, positions, prefix, stored);
        for (std::int32_t next = state_.book.next(s).value; next < to.value; ++next) add(next);
        const bool is_window = to.value > 0 && oldest.value > window.sinks(); // as prepare_keep
        const std::size_t before = stored.arrays.size();
        save(KeptCells{{0}, to, is_window, 0}, runs, positions, prefix, stored);
        for (std::size_t i = before; i < stored.arrays.size(); ++i) stored.arrays[i].comes_later = true;
    }

    /// Makes what a snapshot owns, not filled in yet: paged out on the host, or, without rows, to be given cells. Adds
    /// where its arrays go. Returns why the memory does not take it; else an empty string.
    std::string prepare_load(StoredSource& source, const std::string& prefix, LoadTo to, KeptCellsPointer& kept,
                             UnownedData<Rows>& rows, std::vector<StoredArray>& arrays) {
        auto positions = std::make_shared<Numbers>();
        std::uint64_t n = 0;
        std::string problem = problem_of_numbers(source, prefix, n);
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            if (problem.empty()) problem = mismatch<&Store::all_keys>(source, n, i, prefix, ".keys");
            if (problem.empty()) problem = mismatch<&Store::all_values>(source, n, i, prefix, ".values");
        }
        if (problem.empty()) problem = make_kept(source, prefix, *positions, kept);
        if (!problem.empty()) return problem;
        if (to == LoadTo::host)
            rows.reset(new Rows{state_.backend, state_.stores, static_cast<std::int64_t>(n), PageTo::host});
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            if (to == LoadTo::host) {
                arrays.push_back(to_load<&Store::all_keys>(*rows, n, i, prefix, ".keys"));
                arrays.push_back(to_load<&Store::all_values>(*rows, n, i, prefix, ".values"));
            } else {
                arrays.push_back(to_write<&Store::all_keys>(*kept, positions, i, prefix, ".keys"));
                arrays.push_back(to_write<&Store::all_values>(*kept, positions, i, prefix, ".values"));
            }
        }
        return "";
    }

private:
    using Numbers = TrivialList<std::int32_t>;
    using Positions = std::shared_ptr<const Numbers>; // of all rows

    // `runs` has the cells of what is in place.
    void save(const KeptCells& kept, const PositionRuns& runs, const Positions& positions, const std::string& prefix,
              StoredSnapshot& stored) {
        stored.numbers.emplace_back(prefix + "kind", kind_);
        stored.numbers.emplace_back(prefix + "layers", layers());
        stored.numbers.emplace_back(prefix + "from", kept.from.value);
        stored.numbers.emplace_back(prefix + "to", kept.to.value);
        stored.numbers.emplace_back(prefix + "is_window", kept.is_window ? 1 : 0);
        stored.arrays.push_back(
            {prefix + "positions",
             StoredElement::i32,
             {positions->size()},
             [positions](std::uint64_t first, std::uint64_t) { return positions->data() + first; }});
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            stored.arrays.push_back(to_save<&Store::all_keys>(kept, runs, positions, i, prefix, ".keys"));
            stored.arrays.push_back(to_save<&Store::all_values>(kept, runs, positions, i, prefix, ".values"));
        }
    }

    // Those that have memory of their own.
    std::int64_t layers() const { return static_cast<std::int64_t>(state_.stores.size()); }

    // `tokens`: how many the source has.
    std::string problem_of_numbers(const StoredSource& source, const std::string& prefix, std::uint64_t& tokens) const {
        if (source.number(prefix + "kind") != kind_)
            return kind_ == stored_cache ? "it has no snapshot of a cache" : "it has no snapshot of an encoder memory";
        const auto from = source.number(prefix + "from");
        const auto to = source.number(prefix + "to");
        const auto is_window = source.number(prefix + "is_window");
        const auto* const shape = source.shape(prefix + "positions");
        if (!from || !to || !is_window || shape == nullptr || shape->size() != 1 || *from < 0 || *to < *from
            || *to > INT32_MAX)
            return "its snapshot has no valid range of positions";
        if ((*shape)[0] > static_cast<std::uint64_t>(INT32_MAX)) return "its snapshot has too many tokens";
        tokens = (*shape)[0];
        return mismatch_of_layers(source.number(prefix + "layers"), layers());
    }

    // The source has these numbers.
    std::string make_kept(StoredSource& source, const std::string& prefix, Numbers& positions, KeptCellsPointer& kept) {
        const auto from = static_cast<std::int32_t>(*source.number(prefix + "from"));
        const auto to = static_cast<std::int32_t>(*source.number(prefix + "to"));
        positions.resize(static_cast<std::size_t>((*source.shape(prefix + "positions"))[0]));
        if (!source.read(prefix + "positions", positions)) return "the positions of its snapshot cannot be read";
        std::int64_t runs = 2;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::int32_t before = i == 0 ? from : positions[i - 1];
            if (positions[i] < before || positions[i] >= to) return "the positions of its snapshot are not in order";
            runs += i == 0 || positions[i] != before + 1 ? 1 : 0;
        }
        kept.reset(new KeptCells{{from}, {to}, *source.number(prefix + "is_window") != 0, runs});
        for (std::size_t i = 0, end = 0; i < positions.size(); i = end) {
            for (end = i + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;) ++end;
            kept->runs.insert({positions[i]}, static_cast<Cell>(i), static_cast<std::int32_t>(end - i));
        }
        return "";
    }

    template <auto RowsOf>
    StoredArray array(std::uint64_t tokens, std::size_t i, const std::string& prefix, const char* what) {
        using Elements = std::remove_reference_t<decltype((state_.stores[i].*RowsOf)())>;
        const auto& mapping = (state_.stores[i].*RowsOf)().mapping();
        const auto heads = static_cast<std::uint64_t>(mapping.heads());
        const auto dim = static_cast<std::uint64_t>(mapping.dim());
        return {prefix + "layers." + std::to_string(state_.owners[i]) + what,
                stored_element_of<typename Elements::element_type>(),
                {tokens, heads, dim}};
    }

    /// Why a saved array does not fit; else an empty string.
    template <auto RowsOf>
    std::string mismatch(const StoredSource& source, std::uint64_t tokens, std::size_t i, const std::string& prefix,
                         const char* what) {
        const StoredArray expected = array<RowsOf>(tokens, i, prefix, what);
        const auto* const found = source.shape(expected.name);
        if (found == nullptr) return "it has no " + expected.name + ", expected " + text_of(expected.shape);
        if (*found == expected.shape) return "";
        return "its " + expected.name + " is " + text_of(*found) + ", expected " + text_of(expected.shape);
    }
    template <auto RowsOf>
    StoredArray to_load(Rows& rows, std::uint64_t tokens, std::size_t i, const std::string& prefix, const char* what) {
        StoredArray loaded = array<RowsOf>(tokens, i, prefix, what);
        auto& block = rows.template block<RowsOf>();
        loaded.data = block.data() + block.begin_of(state_.stores, i);
        return loaded;
    }

    /// Memory that the reads, or the writes, of one array use again.
    template <class E>
    struct Working {
        TrivialList<Cell> cells{};
        std::vector<E> on_host{};
        std::optional<typename Backend::template Buffer<E>> on_backend{};
    };

    template <auto RowsOf>
    StoredArray to_save(const KeptCells& kept, const PositionRuns& runs, const Positions& positions, std::size_t i,
                        const std::string& prefix, const char* what) {
        using Elements = std::remove_reference_t<decltype((state_.stores[i].*RowsOf)())>;
        using E = typename Elements::element_type;
        StoredArray saved = array<RowsOf>(positions->size(), i, prefix, what);
        auto working = std::make_shared<Working<E>>();
        auto& rows = (state_.stores[i].*RowsOf)();
        if (!kept.is_paged_out()) {
            saved.copy = [&state = state_, &rows, runs = &runs, positions, working](std::uint64_t first,
                                                                                    std::uint64_t count, void* to) {
                find_cells(*runs, *positions, first, count, working->cells);
                read_cells(state, rows, *working, static_cast<E*>(to));
            };
            saved.pieces = pieces_of(rows, runs, positions, working);
            saved.on_device = on_device(rows, runs, positions);
            saved.read = [&rows, working, copy = saved.copy](std::uint64_t first, std::uint64_t count) -> const void* {
                working->on_host.resize(static_cast<std::size_t>(static_cast<std::int64_t>(count) * rows.row()));
                copy(first, count, working->on_host.data());
                return working->on_host.data();
            };
            return saved;
        }
        auto& block = static_cast<Rows&>(*kept.data).template block<RowsOf>();
        const std::int64_t begin = block.begin_of(state_.stores, i);
        saved.read = [this_state = &state_, &block, &rows, begin, working](std::uint64_t first,
                                                                           std::uint64_t count) -> const void* {
            const std::int64_t at = begin + static_cast<std::int64_t>(first) * rows.row();
            if (block.is_on_host()) {
                this_state->backend.fence();
                return block.data() + at;
            }
            working->on_host.resize(static_cast<std::size_t>(static_cast<std::int64_t>(count) * rows.row()));
            block.copy_to_host(this_state->backend, at, working->on_host);
            return working->on_host.data();
        };
        return saved;
    }

    template <auto RowsOf>
    StoredArray to_write(const KeptCells& kept, const Positions& positions, std::size_t i, const std::string& prefix,
                         const char* what) {
        using Elements = std::remove_reference_t<decltype((state_.stores[i].*RowsOf)())>;
        using E = typename Elements::element_type;
        StoredArray written = array<RowsOf>(positions->size(), i, prefix, what);
        auto& rows = (state_.stores[i].*RowsOf)();
        auto working = std::make_shared<Working<E>>();
        written.pieces = pieces_of(rows, kept.runs, positions, working);
        written.on_device = on_device(rows, kept.runs, positions);
        written.write = [&state = state_, &rows, runs = &kept.runs, positions,
                         working](std::uint64_t first, std::uint64_t count, const void* from) {
            find_cells(*runs, *positions, first, count, working->cells);
            write_cells(state, rows, *working, static_cast<const E*>(from));
        };
        return written;
    }

    /// The cells of rows [first, first + count), wherever defragmentation has moved them. O(log runs + count), plus the
    /// rows before them at the same position.
    static void find_cells(const PositionRuns& runs, const Numbers& positions, std::uint64_t first, std::uint64_t count,
                           TrivialList<Cell>& cells) {
        cells.clear();
        if (count == 0) return;
        const std::int32_t begin = positions[static_cast<std::size_t>(first)];
        const std::int32_t end = positions[static_cast<std::size_t>(first + count - 1)] + 1;
        const auto row = std::lower_bound(positions.begin(), positions.end(), begin) - positions.begin();
        std::int64_t skipped = static_cast<std::int64_t>(first) - row;
        auto missing = static_cast<std::int64_t>(count);
        runs.for_each({begin}, {end}, [&](Position, Cell cell, std::int32_t n) {
            const std::int64_t skip = std::min<std::int64_t>(skipped, n);
            const std::int64_t taken = std::min<std::int64_t>(missing, n - skip);
            for (std::int64_t k = 0; k < taken; ++k) cells.push_back(cell + static_cast<Cell>(skip + k));
            skipped -= skip;
            missing -= taken;
        });
    }

    // Empty if rows are not contiguous, or not in memory of the host.
    template <class E, class Elements>
    auto pieces_of(Elements& rows, const PositionRuns& runs, const Positions& positions,
                   const std::shared_ptr<Working<E>>& working) {
        decltype(StoredArray::pieces) pieces;
        if constexpr (contiguous_rows<typename Elements::Mapping> && Backend::host_reaches)
            pieces = [&state = state_, &rows, runs = &runs, positions,
                      working](std::uint64_t first, std::uint64_t count, const StoredArray::Visit& visit) {
                state.backend.fence();
                find_cells(*runs, *positions, first, count, working->cells);
                const TrivialList<Cell>& cells = working->cells;
                for (std::size_t i = 0, end = 0; i < cells.size(); i = end) {
                    for (end = i + 1; end < cells.size() && cells[end] == cells[end - 1] + 1;) ++end;
                    E* const at = rows.view({cells[i], static_cast<std::int32_t>(end - i)}).pointer;
                    visit(reinterpret_cast<std::byte*>(at),
                          (end - i) * static_cast<std::size_t>(rows.row()) * sizeof(E));
                }
            };
        return pieces;
    }

    // Null if the rows are in memory of the host.
    template <class Elements>
    std::shared_ptr<DeviceRows> on_device(Elements& rows, const PositionRuns& runs, const Positions& positions) {
        if constexpr (!Backend::host_reaches && ComputesChecksums<Backend>) {
            auto find = [runs = &runs, positions](std::uint64_t first, std::uint64_t count, TrivialList<Cell>& cells) {
                find_cells(*runs, *positions, first, count, cells);
            };
            return std::make_shared<DeviceCells<Backend, Elements, decltype(find)>>(state_.backend, rows, find);
        } else {
            return nullptr;
        }
    }

    // Room of the backend for that many elements.
    template <class E>
    static E* reserve_on_backend(State& state, Working<E>& working, std::int64_t n) {
        if (!working.on_backend || working.on_backend->size() < n)
            working.on_backend.emplace(state.backend.template allocate<E>(n));
        return working.on_backend->data();
    }

    template <class E, class Elements>
    static void read_cells(State& state, Elements& rows, Working<E>& working, E* to) {
        const std::span<const Cell> cells{working.cells};
        const auto n = static_cast<std::int64_t>(cells.size());
        const auto& mapping = rows.mapping();
        if constexpr (!Backend::host_reaches) {
            E* const staged = reserve_on_backend(state, working, n * rows.row());
            state.backend.gather(mapping, rows.memory(), cells,
                                 contiguous_view(staged, n, mapping.heads(), mapping.dim()));
            state.backend.copy_to_host(*working.on_backend, 0, std::span{to, static_cast<std::size_t>(n * rows.row())});
        } else {
            state.backend.gather(mapping, rows.memory(), cells, contiguous_view(to, n, mapping.heads(), mapping.dim()));
            state.backend.fence();
        }
    }

    template <class E, class Elements>
    static void write_cells(State& state, Elements& rows, Working<E>& working, const E* from) {
        const std::span<const Cell> cells{working.cells};
        const auto n = static_cast<std::int64_t>(cells.size());
        const auto& mapping = rows.mapping();
        if constexpr (!Backend::host_reaches) {
            const E* const staged = reserve_on_backend(state, working, n * rows.row());
            const std::span<const E> all{from, static_cast<std::size_t>(n * rows.row())};
            state.backend.copy_from_host(all, *working.on_backend, 0);
            state.backend.scatter(mapping, rows.memory(), cells,
                                  contiguous_view(staged, n, mapping.heads(), mapping.dim()));
        } else {
            state.backend.scatter(mapping, rows.memory(), cells,
                                  contiguous_view(from, n, mapping.heads(), mapping.dim()));
        }
        state.backend.fence();
    }

    State& state_;
    std::int64_t kind_;
};

} // namespace cellar::detail
