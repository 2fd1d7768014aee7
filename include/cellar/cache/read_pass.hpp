// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/cell_lists.hpp>
#include <cellar/cache/detail/attended_cells.hpp>
#include <cellar/cache/detail/cache_state.hpp>
#include <cellar/cache/detail/mask.hpp>
#include <cellar/element/half.hpp>
#include <cellar/memory/layer_name.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar {

/// What attention in one layer reads.
template <class Keys, class Values, class Mask>
struct History {
    Keys keys;
    Values values;
    Mask mask;
};

/// The reading side of a pass: the cells that its batch may see. `Memory` is a `Cache` or an `EncoderMemory`.
template <class Memory>
class ReadPass {
protected:
    using State = typename detail::StateOf<Memory>::type;

public:
    using memory_type = Memory;

    std::int32_t tokens() const { return tokens_; }

    /// The smallest range of cells that contains everything the batch may see, aligned to `CacheLimits::padding` and
    /// `start_padding`. Cells in it that no token of the batch sees may hold anything that was put there before.
    CellRange history() const { return history_; }

    /// The keys of the history, in place: [history, kv_heads, key_dim]. A `StridedView` whose strides show the
    /// layout; for `Blocked` a `BlockedView`, which has no strides. Of a format with several values a unit, it has
    /// units in place of values; of one with two planes, it is a pair of views, `units` and `scales`. With
    /// `RotateOnRead`, keys are without their positions. Reading a layer of the batch before it was put is a violation.
    auto keys(int layer, Where where = Where::current()) const& {
        static_assert(Memory::holds_data, "keys: this cache has no keys and values (its backend is NoData), expected "
                                          "a backend with memory; or read your own at the cells of visible or lists");
        const detail::Caller caller{where};
        return readable("keys", layer).read_keys().view(history_);
    }

    /// The values of the history, in place: [history, kv_heads, value_dim]. A view as of the keys: with
    /// `PermutedV`, stride(0) is 1. Reading a layer of the batch before it was put is a violation.
    auto values(int layer, Where where = Where::current()) const& {
        static_assert(Memory::holds_data, "values: this cache has no keys and values (its backend is NoData), expected "
                                          "a backend with memory; or read your own at the cells of visible or lists");
        const detail::Caller caller{where};
        return readable("values", layer).read_values().view(history_);
    }

    /// Enqueues: reads the keys and values of these cells of the history into rows [cells, kv_heads, key_dim] and
    /// [cells, kv_heads, value_dim] of float or, for a format with one plane, of the stored units: the opposite of
    /// `put`. With `RotateOnRead`, keys are without their positions. For a layer without values, `v` is an empty view.
    /// Rows of another extent are a violation, and so is reading a layer of the batch before it was put.
    template <class K, class V>
    void gather(int layer, std::span<const Cell> cells, const StridedView<K, 3>& k, const StridedView<V, 3>& v,
                Where where = Where::current()) const& {
        static_assert(Memory::holds_data, "gather: this cache has no keys and values (its backend is NoData), expected "
                                          "a backend with memory; or read these cells of your own");
        const detail::Caller caller{where};
        const auto& store = readable("gather", layer);
        expect_rows("keys", layer, cells, store.read_keys(), k);
        if (store.read_values().dim() != 0 || v.size() != 0)
            expect_rows("values", layer, cells, store.read_values(), v);
        store.read_keys().gather(state().backend, cells, k);
        if (v.size() != 0) store.read_values().gather(state().backend, cells, v);
    }

    /// The cells that a token of the batch sees, as runs of neighbouring cells, in the order of memory. Cells are
    /// counted as in the whole cache; in the views of `keys` and `values`, cell c has index c - history().first. The
    /// same for all layers. The first call of a pass finds the runs of all its tokens. That costs, for each token,
    /// O(runs + words of 64 cells that they span + cells / 8192), and allocates if there are more runs than ever
    /// before. Later calls are O(1), and several threads may make them at once.
    std::span<const CellRange> visible(std::int32_t token, Where where = Where::current()) & {
        const detail::Caller caller{where};
        State& s = state();
        CELLAR_EXPECTS(token >= 0 && token < tokens_, "visible: token ", token, ", expected 0 to ", tokens_ - 1);
        if (s.pass.reserved) return {&history_, 1};
        if (!s.scratch.visible.known) s.find_visible();
        const auto i = static_cast<std::size_t>(token);
        const std::size_t begin = i == 0 ? 0 : s.scratch.visible.ends[i - 1];
        return {s.scratch.visible.runs.data() + begin, s.scratch.visible.ends[i] - begin};
    }

    /// For each sequence of the batch, the cells that its tokens see, in the order of positions, for kernels that take
    /// index lists. The first call of a pass brings the rows up to date: O(tokens), plus the cells that were added or
    /// left the window since the last call. Changes elsewhere in a sequence, such as `remove`, rebuild its row from
    /// there on, and `defragment` rebuilds all rows. If a row outgrows the table (see `Cache::reserve_lists`), all rows
    /// get the length of the longest: may throw `std::bad_alloc`, as it does if all sequences together have more than
    /// 2^31 - 1 entries, because kernels count them in 32 bits. The lists are valid until the memory's next pass asks
    /// for its own. A reserved pass has no rows.
    ///
    /// A backend that writes lists has them in its own memory. The call then enqueues the upload of what changed since
    /// the last one, 8 bytes an entry, in one copy and one kernel for each 32768 entries. See `CellLists`.
    CellLists lists(Where where = Where::current()) & {
        const detail::Caller caller{where};
        expect_lists();
        state().find_lists(0);
        auto& lists = *state().scratch.lists;
        return CellLists{lists.rows, lists.copy.update()};
    }

    /// The same as pages of `page_size` cells: page p has cells [p * page_size, (p + 1) * page_size). Refuses with
    /// `no_pages`, naming the sequence, if its visible cells do not form pages: each cell's place in its page must be
    /// its position modulo `page_size`, and positions of one page must share a page of cells. Gaps and reordered cells
    /// break this. As with `lists`, only new pages cost time while the page size stays the same. A call with another
    /// page size ends the pages of the calls before.
    Result<PageLists> pages(std::int32_t page_size, Where where = Where::current()) & {
        const detail::Caller caller{where};
        expect_lists();
        CELLAR_EXPECTS(page_size > 0, "pages: a page size of ", page_size, ", expected 1 or more");
        state().find_lists(page_size);
        auto& pages = *state().scratch.pages;
        const Sequence refused = pages.rows.update(state().scratch.lists->rows);
        if (refused.value >= 0) return Refusal{.reason = Reason::no_pages, .sequence = refused};
        return PageLists{pages.rows, pages.copy.update()};
    }

    /// The mask [tokens, history]. Of float or half: 0 where visible, -infinity where hidden. Of bool: true where
    /// visible. It is the same for all layers. The first call of a pass writes it, in O(tokens * history); it stays
    /// valid until the next mask of this memory. The mask of a reserved pass sizes the buffer: afterwards, masks of
    /// this element type of at most as many tokens neither allocate nor change address. A backend that writes masks has
    /// it in its own memory (enqueued; the host uploads a bit for each token and cell of the history), else it lies in
    /// host memory.
    template <class T = float>
    StridedView<const T, 2> mask(Where where = Where::current()) & {
        const detail::Caller caller{where};
        using Backend = typename State::Backend;
        static_assert(Backend::host_reaches || WritesMasks<Backend>,
                      "mask: the host cannot read the memory of this backend, and the backend writes no masks");
        constexpr detail::MaskElement wanted = element_of<T>();
        State& s = state();
        const bool is_written = s.scratch.written_mask == wanted;
        if (!is_written) s.scratch.written_mask = detail::MaskElement::none; // the backend may throw
        const StridedView<T, 2> view =
            s.scratch.mask.template reserve<T>(s.backend, tokens_, history_.count, {s.limits.batch, s.book.cells()});
        if (!is_written) {
            if (s.pass.reserved) {
                s.scratch.mask.write_all_visible(s.backend, view);
            } else {
                s.scratch.mask.write(s.backend, s.book, view);
            }
            s.scratch.written_mask = wanted;
        }
        return view;
    }

    /// Writes the mask into memory of the program's own, which the host reaches, whatever the backend: [tokens,
    /// columns] of float, half or bool, with the values of `mask`. Column j is that of cell history().first + j;
    /// columns behind the history are hidden. A view with any distance between its rows (`StridedView`, `std::mdspan`).
    /// O(tokens * columns); writes nothing else, and allocates nothing. Violations: other rows than the batch's tokens,
    /// fewer columns than the history has, columns that are not contiguous, rows that overlap, a null pointer.
    template <detail::strided View>
    void mask_into(const View& to, Where where = Where::current()) & {
        const detail::Caller caller{where};
        const auto mask = strided_view(to);
        static_assert(decltype(mask)::rank() == 2, "mask_into: a mask has two extents, [tokens, columns]");
        using T = typename decltype(mask)::element_type;
        static_cast<void>(element_of<T>());
        CELLAR_EXPECTS(mask.extent(0) == tokens_ && mask.extent(1) >= history_.count, "mask_into: the mask is [",
                       mask.extent(0), ", ", mask.extent(1), "], expected [", tokens_, " tokens, ", history_.count,
                       " cells or more]");
        CELLAR_EXPECTS(mask.size() == 0 || mask.pointer != nullptr, "mask_into: the mask is a null pointer, expected [",
                       tokens_, " tokens, ", mask.extent(1), "]");
        CELLAR_EXPECTS((mask.stride(0) >= mask.extent(1) || tokens_ <= 1)
                           && (mask.stride(1) == 1 || mask.extent(1) <= 1),
                       "mask_into: the mask has strides [", mask.stride(0), ", ", mask.stride(1), "], expected [",
                       mask.extent(1), " or more, 1]");
        if (!state().pass.reserved) return detail::write_mask(state().book, mask);
        for (std::int64_t i = 0; i < tokens_; ++i) {
            T* const row = mask.pointer + i * mask.stride(0);
            std::fill_n(row, history_.count, detail::MaskValues<T>::visible);
            std::fill_n(row + history_.count, mask.extent(1) - history_.count, detail::MaskValues<T>::hidden);
        }
    }

    /// Keys, values and mask of one layer, for a structured binding. Writes the mask, in O(tokens * history), if the
    /// pass has none of this element type yet. `keys` and `values` write none.
    template <class T = float>
    auto get(int layer, Where where = Where::current()) & {
        const detail::Caller caller{where};
        using Mask = StridedView<const T, 2>;
        return History<decltype(keys(layer)), decltype(values(layer)), Mask>{keys(layer), values(layer), mask<T>()};
    }

    /// For `attend`: what it may use of this pass. Checks the layer, and that it was put.
    auto attention_source(const char* operation, int layer) const& {
        static_assert(Memory::holds_data, "attend: this cache has no keys and values (its backend is NoData), expected "
                                          "a backend with memory; or kernels of your own, which take lists or a mask");
        static_cast<void>(readable(operation, layer));
        return detail::AttendedCells<State>{state(), tokens_};
    }

    // A pass that is a temporary is dropped at the end of the line, and its views with it.
    void keys(int) const&& = delete;
    void values(int) const&& = delete;
    void visible(std::int32_t) && = delete;
    void lists() && = delete;
    void pages(std::int32_t) && = delete;
    template <class T = float>
    void mask() && = delete;
    template <class T = float>
    void get(int) && = delete;

    /// For cellar itself: how messages name a layer.
    detail::LayerName& name() const { return state().pass.layer_name; }

protected:
    /// `puts`: a layer must be put before it is read, if it is put here at all.
    ReadPass(State& state, std::int32_t tokens, CellRange history, bool reserved, bool puts)
        : state_{&state}, tokens_{tokens}, history_{history} {
        state.begin_pass(reserved, puts && !HoldsNoData<typename State::Backend> && !reserved && tokens > 0);
    }
    ReadPass(ReadPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)}, tokens_{other.tokens_}, history_{other.history_} {}
    ~ReadPass() = default;

    State& state() const { return detail::expect_open(state_); }

    bool is_over() const { return state_ == nullptr; }

    void expect_layer(const char* operation, int layer, Where where) const {
        const detail::Caller caller{where};
        static_cast<void>(state().store_index(operation, layer));
    }

    /// The layer's store; checks the layer, and that it was put.
    const auto& readable(const char* operation, int layer) const {
        const std::size_t index = state().store_index(operation, layer);
        const State& s = state();
        CELLAR_EXPECTS(!s.pass.must_put || s.pass.put.contains(index), operation, ": ", name()(layer),
                       " was not put in this pass, expected a put before it is read");
        return s.stores[index];
    }

    /// A pass reads what the plans leave behind.
    void expect_plans_taken() const {
        if constexpr (HoldsNoData<typename State::Backend>)
            CELLAR_EXPECTS(state().pass.reserved || state().plans.empty(), "commit: ", state().plans.size(),
                           " plans were not taken, expected take_plans before the kernels of the pass");
    }

    /// Ends the pass; the bookkeeping is done.
    void close() noexcept {
        state_->pass.open = false;
        state_ = nullptr;
    }

private:
    template <class Rows, class T>
    void expect_rows(const char* what, int layer, std::span<const Cell> cells, const Rows& stored,
                     const StridedView<T, 3>& rows) const {
        using Format = typename Rows::Format;
        constexpr bool are_units = std::is_same_v<T, detail::unit_of<Format>> && !detail::has_scale_plane<Format>;
        static_assert(are_units || std::is_same_v<T, float>,
                      "gather: the rows of a layer hold its stored element, or unit, or float");
        const int dim = are_units ? stored.mapping().dim() : stored.dim();
        CELLAR_EXPECTS(rows.extent(0) == std::ssize(cells) && rows.extent(1) == stored.mapping().heads()
                           && rows.extent(2) == dim,
                       "gather: the ", what, " of ", name()(layer), " are [", rows.extent(0), ", ", rows.extent(1),
                       ", ", rows.extent(2), "], expected [", std::ssize(cells), " cells, ", stored.mapping().heads(),
                       " heads, ", dim, "]");
    }

    static void expect_lists() {
        using Backend = typename State::Backend;
        static_assert(Backend::host_reaches || WritesLists<Backend>,
                      "lists: the host cannot read the memory of this backend, and the backend writes no lists");
    }

    template <class T>
    static constexpr detail::MaskElement element_of() {
        using enum detail::MaskElement;
        static_assert(std::same_as<T, float> || std::same_as<T, half> || std::same_as<T, bool>,
                      "mask: a mask is of float, half or bool");
        if constexpr (std::same_as<T, float>) return of_float;
        if constexpr (std::same_as<T, half>) return of_half;
        return of_bool;
    }

    State* state_;
    std::int32_t tokens_;
    CellRange history_;
};

} // namespace cellar
