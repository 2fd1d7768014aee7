// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contiguous_data.hpp>
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
#include <cellar/layout/layer_shape.hpp>
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

/// One forward pass over a batch: `put` each layer's keys and values, read them with `get`, then commit. A pass that is
/// destroyed without `commit` is dropped: the cache is as if it had never begun. One pass may be open at a time; it
/// must not outlive its cache.
///
/// The pass of an `EncoderMemory` reads inputs for a decoder's batch: each token sees the inputs of its own sequence at
/// its position or before. It takes no cells and stores nothing, so it has no `put` and the like, and committing and
/// dropping are the same. The history is empty if no token of the batch sees an input. For a token that sees none, all
/// of it is hidden.
template <class Memory>
class [[nodiscard]] CachePass {
    using State = typename detail::StateOf<Memory>::type;
    static constexpr bool stores_tokens = detail::StateOf<Memory>::stores;
    static constexpr bool uploads = stores_tokens && UploadsCells<typename State::Backend>;

public:
    using memory_type = Memory;

    CachePass(CachePass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)},
          tokens_{other.tokens_},
          stored_{other.stored_},
          history_{other.history_} {}
    CachePass& operator=(CachePass&&) = delete;
    ~CachePass() { drop(); }

    std::int32_t tokens() const { return tokens_; }

    /// The tokens that are stored here: all but those that `Batch::stored` leaves to another memory.
    std::int32_t stored_tokens() const requires(stores_tokens) { return stored_; }

    /// The cell of each stored token; empty for a reserved pass.
    std::span<const Cell> cells(Where where = Where::current()) const requires(stores_tokens) {
        const detail::Caller caller{where};
        if (state().pass.reserved) return {};
        return {state().book.pass().cells.data(), state().book.pass().cells.size()};
    }

    /// Copies `cells()` to 64-bit integers, as many as there are: to an index tensor of ggml or PyTorch.
    void copy_cells(std::span<std::int64_t> to, Where where = Where::current()) const requires(stores_tokens) {
        const detail::Caller caller{where};
        const std::span<const Cell> own = cells(where);
        CELLAR_EXPECTS(to.size() == own.size(), "copy_cells: room for ", to.size(), " cells, expected ", own.size());
        std::copy(own.begin(), own.end(), to.begin());
    }

    /// Enqueues: stores the batch's keys [tokens, kv_heads, key_dim] and values [tokens, kv_heads, value_dim], which
    /// hold the stored element type or float: the rows of `stored_tokens()` tokens, in their order. Accepts views with
    /// strides (`StridedView`, `std::mdspan`, a Kokkos View), and contiguous ranges, such as a vector or a span. For a
    /// layer that shares another layer's memory, put to that one. Divides floats by `CacheShape::factors`. A wrong
    /// extent or length, rows that are not aligned for their type, and an Eigen matrix by columns with a token in each
    /// row are violations.
    template <class K, class V>
        requires(stores_tokens)
    void put(int layer, const K& k, const V& v, Where where = Where::current()) & {
        static_assert(Memory::holds_data, "put: this cache has no keys and values (its backend is NoData), expected a "
                                          "backend with memory; or write your own at cells(): no put is needed");
        const detail::Caller caller{where};
        const std::size_t index = state().store_index("put", layer);
        expect_own_memory("put", layer);
        const LayerShape& shape = state().layer_shape(layer);
        using Store = typename State::Store;
        const auto keys = checked_rows<typename Store::Keys::Format>("keys", layer, k, shape.kv_heads, shape.key_dim);
        const auto values =
            checked_rows<typename Store::Values::Format>("values", layer, v, shape.kv_heads, shape.value_dim);
        if (state().pass.reserved) return;
        auto& store = state().stores[index];
        store.all_keys().put(state().backend, cells(), keys);
        if (values.size() != 0) store.all_values().put(state().backend, cells(), values);
        state().pass.put[index] = true;
    }
    template <class K, class V>
    void put(int, const K&, const V&) && = delete; // the pass is dropped at the end of the line

    /// Enqueues: uploads the list of this pass's cells to where the kernels of `put` read it; otherwise the first `put`
    /// does that. After it, `put` enqueues kernels only, the same ones for every pass of as many tokens: a graph can
    /// capture them and replay them in later passes, each after its own `upload_cells` and with `mark_put` for each
    /// layer that has memory of its own. `reserve` fixes the address.
    void upload_cells(Where where = Where::current()) requires(uploads) {
        const detail::Caller caller{where};
        state().backend.upload_cells(cells());
    }

    /// `Cache::rows`, for kernels that write the batch's rows themselves: to `cells()`, and nowhere else. `mark_put`
    /// follows.
    auto in_place(int layer, Where where = Where::current()) & requires(stores_tokens) {
        static_assert(Memory::holds_data, "in_place: this cache has no keys and values (its backend is NoData), "
                                          "expected a backend with memory; or write your own at cells()");
        const detail::Caller caller{where};
        return state().rows("in_place", layer);
    }
    void in_place(int) && = delete; // the pass is dropped at the end of the line

    /// Replaces `put` where the layer's keys and values were written by other means: by a replayed graph, or
    /// `in_place`.
    void mark_put(int layer, Where where = Where::current()) & requires(stores_tokens) {
        const detail::Caller caller{where};
        const std::size_t index = state().store_index("mark_put", layer);
        expect_own_memory("mark_put", layer);
        state().pass.put[index] = true;
    }

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

    /// The opposite of `put`: enqueues reading the keys and values of these cells of the history into rows [cells,
    /// kv_heads, key_dim] and [cells, kv_heads, value_dim]. The rows are of float or, for a format with one plane, of
    /// the stored units. With `RotateOnRead`, keys are without their positions. For a layer without values, `v` is an
    /// empty view. Rows of another extent are a violation, and so is reading a layer of the batch before it was put.
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
    /// O(runs + words of 64 cells that they span + cells / 8192). It allocates if there are more runs than ever before.
    /// Later calls are O(1), and several threads may make them at once.
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
        return CellLists{lists.rows, lists.update()};
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
        return PageLists{pages.rows, pages.update()};
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

    /// Calls f(*this, layer), so that code for a hybrid's passes also works here.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        {
            const detail::Caller caller{where};
            static_cast<void>(state().store_index("visit", layer));
        }
        return std::forward<F>(f)(*this, layer);
    }

    /// Keeps the batch's tokens, and forgets tokens that fell out of the retention. Violations: a layer that was not
    /// put; tokens in branches (`Batch::parents`), because later tokens would see all of them. A reserved
    /// pass stores nothing. The pass is over; its views stay readable until the cache's next operation.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_own_pass(name(), "commit");
        expect_complete();
        finish_commit();
    }

    /// Undoes the pass, as the destructor does. Allowed for a pass that is over.
    void drop() noexcept;

    /// The two phases of `commit`: see `TwoPhaseMemory`.
    void expect_complete() const {
        const State& s = state();
        const int missing = first_missing();
        CELLAR_EXPECTS(missing < 0, "commit: ", name()(missing), " was not put, expected a put of every layer");
        CELLAR_EXPECTS(s.pass.reserved || !s.book.pass().branches,
                       "commit: the tokens have branches, expected a pass of one branch");
        if constexpr (HoldsNoData<typename State::Backend>) // the pass reads what the plans leave behind
            CELLAR_EXPECTS(s.pass.reserved || s.plans.empty(), "commit: ", s.plans.size(),
                           " plans were not taken, expected take_plans before the kernels of the pass");
    }
    void finish_commit() noexcept;

    /// For cellar itself, as the next two: the first layer that was not put, or -1.
    int first_missing() const {
        const State& s = state();
        if (!s.pass.must_put) return -1;
        const auto all = std::span<const bool>{s.pass.put}.first(s.stores.size());
        const auto missing = static_cast<std::size_t>(std::find(all.begin(), all.end(), false) - all.begin());
        return missing == all.size() ? -1 : s.stores.owner(missing);
    }
    /// How messages name a layer.
    detail::LayerName& name() const { return state().pass.layer_name; }
    CachePass(State& state, std::int32_t tokens, CellRange history, bool reserved)
        : state_{&state},
          tokens_{tokens},
          stored_{reserved ? tokens : static_cast<std::int32_t>(state.book.pass().cells.size())},
          history_{history} {
        // A layer must be put before it is read, if it is put here at all.
        state.begin_pass(reserved, stored_ > 0 && !reserved && !HoldsNoData<typename State::Backend>);
    }

private:
    State& state() const { return detail::expect_open(state_); }

    /// The layer's store; checks the layer, and that it was put.
    const auto& readable(const char* operation, int layer) const {
        const std::size_t index = state().store_index(operation, layer);
        const State& s = state();
        CELLAR_EXPECTS(!s.pass.must_put || s.pass.put[index], operation, ": ", name()(layer),
                       " was not put in this pass, expected a put before it is read");
        return s.stores[index];
    }

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

    void expect_own_memory(const char* call, int layer) const {
        const int owner = state().layer_shape(layer).shares_layer;
        CELLAR_EXPECTS(owner < 0, call, ": ", name()(layer), " shares the memory of layer ", owner, ", expected a ",
                       call, " to that one");
    }

    /// As a view of constant rows [tokens, heads, dim].
    template <class Format, class Rows>
    auto checked_rows(const char* what, int layer, const Rows& given, int heads, int dim) const {
        using T = std::remove_const_t<typename decltype(rows(what, layer, given, heads, dim))::element_type>;
        using Unit = detail::unit_of<Format>;
        constexpr bool are_units = std::is_same_v<T, Unit> && !detail::has_scale_plane<Format>;
        static_assert(are_units || std::is_same_v<T, float>,
                      "put: the rows of a layer hold its stored element, or unit, or float");
        if constexpr (are_units) dim /= detail::values_per_unit<Format>;
        const StridedView<const T, 3> view = rows(what, layer, given, heads, dim);
        CELLAR_EXPECTS(view.size() == 0 || view.pointer != nullptr, "put: the ", what, " of ", name()(layer),
                       " are a null pointer, expected rows [", tokens(), " tokens, ", heads, " heads, ", dim, "]");
        CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(view.pointer) % alignof(T) == 0, "put: the ", what, " of ",
                       name()(layer), " are not aligned, expected an address that is a multiple of ", alignof(T));
        return view;
    }

    template <class T>
    auto rows(const char* what, int layer, const StridedView<T, 3>& view, int heads, int dim) const {
        CELLAR_EXPECTS((view.extent(0) == stored_ && view.extent(1) == heads && view.extent(2) == dim)
                           || (dim == 0 && view.size() == 0),
                       "put: the ", what, " of ", name()(layer), " are [", view.extent(0), ", ", view.extent(1), ", ",
                       view.extent(2), "], expected [", stored_, " tokens, ", heads, " heads, ", dim, "]");
        return view;
    }

    template <detail::strided View>
    auto rows(const char* what, int layer, const View& view, int heads, int dim) const {
        static_assert(View::rank() == 3, "put: rows have three extents, [tokens, heads, dim]");
        if constexpr (requires { State::Backend::template reaches<typename View::memory_space>; })
            static_assert(State::Backend::template reaches<typename View::memory_space>,
                          "put: the backend cannot reach the memory space of the rows");
        return rows(what, layer, strided_view(view), heads, dim);
    }

    template <class Range>
        requires(!detail::strided<Range> && requires(const Range& range) { std::data(range), std::size(range); })
    auto rows(const char* what, int layer, const Range& range, int heads, int dim) const {
        const std::int64_t expected = std::int64_t{stored_} * heads * dim;
        CELLAR_EXPECTS(static_cast<std::int64_t>(std::size(range)) == expected, "put: the ", what, " of ",
                       name()(layer), " are ", std::size(range), " elements, expected ", expected, " for [", stored_,
                       " tokens, ", heads, " heads, ", dim, "]");
        return contiguous_view(detail::contiguous_data("put", what, range, heads, dim), stored_, heads, dim);
    }

    template <class T>
    auto rows(const char*, int, T* first, int heads, int dim) const {
        static_assert(std::is_void_v<T>,
                      "put: a pointer does not say how long its rows are, expected a std::span, or a "
                      "view such as contiguous_view(pointer, tokens, heads, dim)");
        return contiguous_view(static_cast<const T*>(first), stored_, heads, dim);
    }

    /// Ends the pass; the bookkeeping is done.
    void close() noexcept {
        state_->pass.open = false;
        state_ = nullptr;
    }

    State* state_;
    std::int32_t tokens_;
    std::int32_t stored_;
    CellRange history_;
};

// Outside of the class they are not inline, so `extern template` leaves them, and all they call, to one file.

template <class Memory>
void CachePass<Memory>::drop() noexcept {
    if (state_ == nullptr) return;
    if (!state_->pass.reserved) state_->book.drop();
    close();
}

template <class Memory>
void CachePass<Memory>::finish_commit() noexcept {
    if (state().pass.reserved || !stores_tokens) return drop();
    state().book.commit();
    close();
}

} // namespace cellar
