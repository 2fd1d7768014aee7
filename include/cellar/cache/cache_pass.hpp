// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contiguous_data.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/read_pass.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar {

/// One forward pass over a batch: `put` each layer's keys and values, read them with `get`, then commit. A pass that is
/// destroyed without `commit` is dropped: the cache is as if it had never begun. One pass may be open at a time; it
/// must not outlive its cache.
template <class Memory>
class [[nodiscard]] CachePass : public ReadPass<Memory> {
    using Base = ReadPass<Memory>;
    using State = typename Base::State;
    using Base::state;

public:
    using Base::tokens;

    CachePass(CachePass&&) noexcept = default;
    CachePass& operator=(CachePass&&) = delete;
    ~CachePass() { drop(); }

    /// The tokens that are stored here: all but those that `Batch::stored` leaves to another memory.
    std::int32_t stored_tokens() const { return stored_; }

    /// The cell of each stored token; empty for a reserved pass.
    std::span<const Cell> cells(Where where = Where::current()) const {
        const detail::Caller caller{where};
        if (state().pass.reserved) return {};
        return {state().book.pass().cells.data(), state().book.pass().cells.size()};
    }

    /// Copies `cells()` to 64-bit integers, as many as there are: to an index tensor of ggml or PyTorch.
    void copy_cells(std::span<std::int64_t> to, Where where = Where::current()) const {
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
        state().pass.put.add(index);
    }
    template <class K, class V>
    void put(int, const K&, const V&) && = delete; // the pass is dropped at the end of the line

    /// Enqueues: uploads the list of this pass's cells to where the kernels of `put` read it; otherwise the first `put`
    /// does that. After it, `put` enqueues kernels only, the same ones for every pass of as many tokens: a graph can
    /// capture them and replay them in later passes, each after its own `upload_cells` and with `mark_put` for each
    /// layer that has memory of its own. `reserve` fixes the address.
    void upload_cells(Where where = Where::current()) requires(UploadsCells<typename State::Backend>) {
        const detail::Caller caller{where};
        state().backend.upload_cells(cells());
    }

    /// `Cache::rows`, for kernels that write the batch's rows themselves: to `cells()`, and nowhere else. `mark_put`
    /// follows.
    auto in_place(int layer, Where where = Where::current()) & {
        static_assert(Memory::holds_data, "in_place: this cache has no keys and values (its backend is NoData), "
                                          "expected a backend with memory; or write your own at cells()");
        const detail::Caller caller{where};
        return state().rows("in_place", layer);
    }
    void in_place(int) && = delete; // the pass is dropped at the end of the line

    /// Replaces `put` where the layer's keys and values were written by other means: by a replayed graph, or
    /// `in_place`.
    void mark_put(int layer, Where where = Where::current()) & {
        const detail::Caller caller{where};
        const std::size_t index = state().store_index("mark_put", layer);
        expect_own_memory("mark_put", layer);
        state().pass.put.add(index);
    }

    /// Calls f(*this, layer), so that code for a hybrid's passes also works here.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        Base::expect_layer("visit", layer, where);
        return std::forward<F>(f)(*this, layer);
    }

    /// Keeps the batch's tokens, and forgets tokens that fell out of the retention. Violations: a layer that was not
    /// put; tokens in branches (`Batch::parents`), because later tokens would see all of them. A reserved
    /// pass stores nothing. The pass is over; its views stay readable until the cache's next operation.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_own_pass(Base::name(), "commit");
        expect_complete();
        finish_commit();
    }

    /// Undoes the pass, as the destructor does.
    void drop() noexcept;

    /// The two phases of `commit`: see `TwoPhaseMemory`.
    void expect_complete() const {
        const int missing = first_missing();
        CELLAR_EXPECTS(missing < 0, "commit: ", Base::name()(missing), " was not put, expected a put of every layer");
        CELLAR_EXPECTS(state().pass.reserved || !state().book.pass().branches,
                       "commit: the tokens have branches, expected a pass of one branch");
        Base::expect_plans_taken();
    }
    void finish_commit() noexcept;

    /// For cellar itself, as the next one: the first layer that was not put, or -1.
    int first_missing() const {
        const State& s = state();
        if (!s.pass.must_put) return -1;
        const std::size_t missing = s.pass.put.first_missing();
        return missing == s.stores.size() ? -1 : s.stores.owner(missing);
    }
    CachePass(State& the_state, std::int32_t count, CellRange history, bool reserved)
        : Base{the_state, count, history, reserved, !the_state.book.pass().cells.empty()},
          stored_{reserved ? count : static_cast<std::int32_t>(the_state.book.pass().cells.size())} {}

private:
    void expect_own_memory(const char* call, int layer) const {
        const int owner = state().layer_shape(layer).shares_layer;
        CELLAR_EXPECTS(owner < 0, call, ": ", Base::name()(layer), " shares the memory of layer ", owner,
                       ", expected a ", call, " to that one");
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
        CELLAR_EXPECTS(view.size() == 0 || view.pointer != nullptr, "put: the ", what, " of ", Base::name()(layer),
                       " are a null pointer, expected rows [", tokens(), " tokens, ", heads, " heads, ", dim, "]");
        CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(view.pointer) % alignof(T) == 0, "put: the ", what, " of ",
                       Base::name()(layer), " are not aligned, expected an address that is a multiple of ", alignof(T));
        return view;
    }

    template <class T>
    auto rows(const char* what, int layer, const StridedView<T, 3>& view, int heads, int dim) const {
        CELLAR_EXPECTS((view.extent(0) == stored_tokens() && view.extent(1) == heads && view.extent(2) == dim)
                           || (dim == 0 && view.size() == 0),
                       "put: the ", what, " of ", Base::name()(layer), " are [", view.extent(0), ", ", view.extent(1),
                       ", ", view.extent(2), "], expected [", stored_tokens(), " tokens, ", heads, " heads, ", dim,
                       "]");
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
        const std::int64_t expected = std::int64_t{stored_tokens()} * heads * dim;
        CELLAR_EXPECTS(static_cast<std::int64_t>(std::size(range)) == expected, "put: the ", what, " of ",
                       Base::name()(layer), " are ", std::size(range), " elements, expected ", expected, " for [",
                       stored_tokens(), " tokens, ", heads, " heads, ", dim, "]");
        return contiguous_view(detail::contiguous_data("put", what, range, heads, dim), stored_tokens(), heads, dim);
    }

    template <class T>
    auto rows(const char*, int, T* first, int heads, int dim) const {
        static_assert(std::is_void_v<T>,
                      "put: a pointer does not say how long its rows are, expected a std::span, or a "
                      "view such as contiguous_view(pointer, tokens, heads, dim)");
        return contiguous_view(static_cast<const T*>(first), stored_tokens(), heads, dim);
    }

    std::int32_t stored_;
};

// Outside of the class they are not inline, so `extern template` leaves them, and all they call, to one file.

template <class Memory>
void CachePass<Memory>::drop() noexcept {
    if (Base::is_over()) return;
    if (!state().pass.reserved) state().book.drop();
    Base::close();
}

template <class Memory>
void CachePass<Memory>::finish_commit() noexcept {
    if (!state().pass.reserved) state().book.commit();
    Base::close();
}

} // namespace cellar
