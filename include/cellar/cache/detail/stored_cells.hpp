// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/view.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/position_runs.hpp>
#include <cellar/cache/detail/paged_rows.hpp>
#include <cellar/element/stored_element.hpp>
#include <cellar/memory/stored_snapshot.hpp>

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
        stored.numbers.emplace_back(prefix + "kind", kind_);
        stored.numbers.emplace_back(prefix + "layers", layers());
        stored.numbers.emplace_back(prefix + "from", kept.from.value);
        stored.numbers.emplace_back(prefix + "to", kept.to.value);
        stored.numbers.emplace_back(prefix + "is_window", kept.is_window ? 1 : 0);
        auto positions = std::make_shared<std::vector<std::int32_t>>();
        auto cells = std::make_shared<std::vector<Cell>>();
        kept.runs.for_each(kept.from, kept.to, [&](Position position, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) {
                positions->push_back(position.value + i);
                cells->push_back(cell + i);
            }
        });
        stored.arrays.push_back(
            {prefix + "positions",
             StoredElement::i32,
             {positions->size()},
             [positions](std::uint64_t first, std::uint64_t) { return positions->data() + first; }});
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            stored.arrays.push_back(to_save<&Store::all_keys>(kept, cells, i, prefix, ".keys"));
            stored.arrays.push_back(to_save<&Store::all_values>(kept, cells, i, prefix, ".values"));
        }
    }

    /// Makes what a snapshot owns, paged out on the host, not filled in yet. Adds where its arrays go. Returns why the
    /// memory does not take it; else an empty string.
    std::string prepare_load(StoredSource& source, const std::string& prefix, KeptCellsPointer& kept,
                             UnownedData<Rows>& rows, std::vector<StoredArray>& arrays) {
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
        const std::uint64_t n = (*shape)[0];
        if (std::string problem = mismatch_of_layers(source.number(prefix + "layers"), layers()); !problem.empty())
            return problem;
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            std::string problem = mismatch<&Store::all_keys>(source, n, i, prefix, ".keys");
            if (problem.empty()) problem = mismatch<&Store::all_values>(source, n, i, prefix, ".values");
            if (!problem.empty()) return problem;
        }
        std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
        if (!source.read(prefix + "positions", positions)) return "the positions of its snapshot cannot be read";
        std::int64_t runs = 2;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::int32_t before = i == 0 ? static_cast<std::int32_t>(*from) : positions[i - 1];
            if (positions[i] < before || positions[i] >= *to) return "the positions of its snapshot are not in order";
            runs += i == 0 || positions[i] != before + 1 ? 1 : 0;
        }
        kept.reset(
            new KeptCells{{static_cast<std::int32_t>(*from)}, {static_cast<std::int32_t>(*to)}, *is_window != 0, runs});
        for (std::size_t i = 0, end = 0; i < positions.size(); i = end) {
            for (end = i + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;) ++end;
            kept->runs.insert({positions[i]}, static_cast<Cell>(i), static_cast<std::int32_t>(end - i));
        }
        rows.reset(new Rows{state_.backend, state_.stores, static_cast<std::int64_t>(n), PageTo::host});
        for (std::size_t i = 0; i < state_.stores.size(); ++i) {
            arrays.push_back(to_load<&Store::all_keys>(*rows, n, i, prefix, ".keys"));
            arrays.push_back(to_load<&Store::all_values>(*rows, n, i, prefix, ".values"));
        }
        return "";
    }

private:
    // Those that have memory of their own.
    std::int64_t layers() const { return static_cast<std::int64_t>(state_.stores.size()); }

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

    template <auto RowsOf>
    StoredArray to_save(const KeptCells& kept, const std::shared_ptr<std::vector<Cell>>& cells, std::size_t i,
                        const std::string& prefix, const char* what) {
        using Elements = std::remove_reference_t<decltype((state_.stores[i].*RowsOf)())>;
        using E = typename Elements::element_type;
        struct Memory {
            std::vector<E> on_host;
            std::optional<typename Backend::template Buffer<E>> on_backend;
        };
        StoredArray saved = array<RowsOf>(cells->size(), i, prefix, what);
        auto memory = std::make_shared<Memory>();
        auto& rows = (state_.stores[i].*RowsOf)();
        if (!kept.is_paged_out()) {
            saved.read = [this_state = &state_, &rows, cells, memory](std::uint64_t first, std::uint64_t count) {
                return read_cells<E>(*this_state, rows, std::span{*cells}.subspan(first, count), *memory);
            };
            return saved;
        }
        auto& block = static_cast<Rows&>(*kept.data).template block<RowsOf>();
        const std::int64_t begin = block.begin_of(state_.stores, i);
        saved.read = [this_state = &state_, &block, &rows, begin, memory](std::uint64_t first,
                                                                          std::uint64_t count) -> const void* {
            const std::int64_t at = begin + static_cast<std::int64_t>(first) * rows.row();
            if (block.is_on_host()) {
                this_state->backend.fence();
                return block.data() + at;
            }
            memory->on_host.resize(static_cast<std::size_t>(static_cast<std::int64_t>(count) * rows.row()));
            block.copy_to_host(this_state->backend, at, memory->on_host);
            return memory->on_host.data();
        };
        return saved;
    }

    template <class E, class Elements, class Memory>
    static const void* read_cells(State& state, Elements& rows, std::span<const Cell> cells, Memory& memory) {
        const auto n = static_cast<std::int64_t>(cells.size());
        const auto& mapping = rows.mapping();
        memory.on_host.resize(static_cast<std::size_t>(n * rows.row()));
        if constexpr (WritesMasks<Backend>) {
            if (!memory.on_backend || memory.on_backend->size() < n * rows.row())
                memory.on_backend.emplace(state.backend.template allocate<E>(n * rows.row()));
            rows.gather(state.backend, cells,
                        contiguous_view(memory.on_backend->data(), n, mapping.heads(), mapping.dim()));
            state.backend.copy_to_host(*memory.on_backend, 0, std::span<E>{memory.on_host});
        } else {
            rows.gather(state.backend, cells,
                        contiguous_view(memory.on_host.data(), n, mapping.heads(), mapping.dim()));
            state.backend.fence();
        }
        return memory.on_host.data();
    }

    State& state_;
    std::int64_t kind_;
};

} // namespace cellar::detail
