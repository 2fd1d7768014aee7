// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/fwd.hpp>
#include <cellar/reading.hpp>
#include <cellar/store/layer_shape.hpp>

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar {

/// One forward pass over a batch: filled layer by layer with `put`, read with `get`, then committed. A pass that is
/// destroyed without `commit` never happened. One pass at a time may be open; it must not outlive its cache.
template <class State>
class [[nodiscard]] Pass : public Reading<State> {
    using Store = typename State::Store;
    using Base = Reading<State>;
    using Base::state;

public:
    using Base::tokens;

    Pass(Pass&&) noexcept = default;
    Pass& operator=(Pass&&) = delete;
    ~Pass() { drop(); }

    /// The cell of each token; empty for a reserved pass.
    std::span<const Cell> cells() const {
        return Base::is_reserved() ? std::span<const Cell>{} : std::span<const Cell>{state().book.pass().cells};
    }

    /// Enqueues: keys [tokens, kv_heads, key_dim] and values [tokens, kv_heads, value_dim] of the batch's tokens, in
    /// the stored element type or float: what has strides (`StridedView`, `std::mdspan`, a view of Kokkos), or a dense
    /// contiguous range such as a vector. For layers that share another's memory put there. A wrong extent is a
    /// violation.
    template <class K, class V>
    void put(int layer, const K& k, const V& v) {
        Store& store = state().store(layer);
        const LayerShape& shape = state().shape[layer];
        CELLAR_EXPECTS(shape.shares < 0, "put: layer ", layer, " reads the memory of layer ", shape.shares,
                       ", expected to be put there");
        const auto keys = rows("keys", layer, k, shape.kv_heads, shape.key_dim);
        const auto values = rows("values", layer, v, shape.kv_heads, shape.value_dim);
        if (!Base::is_reserved()) store.put(state().backend, cells(), keys, values);
    }

    /// Enqueues: the list of this pass's cells goes to where the kernels of `put` read it, which the first `put` does
    /// otherwise. With it sent, `put` enqueues kernels alone, the same for every pass of so many tokens: they can be
    /// captured in a graph and replayed in later passes, after `send_cells`. `Cache::reserve` keeps the address.
    void send_cells() requires(sends_cells<typename State::Backend>) { state().backend.send_cells(cells()); }

    /// Calls f(*this, layer): what works for a hybrid works for its members too.
    template <class F>
    decltype(auto) visit(int layer, F&& f) {
        state().store(layer); // checked
        return std::forward<F>(f)(*this, layer);
    }

    /// The batch's tokens belong to their sequences from now on, and what fell out of the retention is forgotten. A
    /// reserved pass stores nothing. The pass is over; views stay readable until the next operation of the cache.
    void commit() {
        expect_complete();
        finish();
    }

    /// Ends the pass as if it had never begun, which the destructor does too.
    void drop() noexcept {
        if (Base::is_over()) return;
        if (!Base::is_reserved()) state().book.drop();
        Base::close();
    }

private:
    template <layout_policy, window_policy, shift_policy, backend>
    friend class Cache;
    template <class, class...>
    friend class HybridPass;

    Pass(State& the_state, std::int32_t count, CellRange history, bool reserved)
        : Base{the_state, count, history, reserved} {}

    // Committing in two halves, so that all passes of a hybrid are committed or none.
    void expect_complete() const { state(); }
    void finish() noexcept {
        if (!Base::is_reserved()) state().book.commit();
        Base::close();
    }

    template <class T>
    auto rows(const char* what, int layer, const StridedView<T, 3>& view, int heads, int dim) const {
        CELLAR_EXPECTS((view.extent(0) == tokens() && view.extent(1) == heads && view.extent(2) == dim)
                           || (dim == 0 && view.size() == 0),
                       "put: the ", what, " of layer ", layer, " are [", view.extent(0), ", ", view.extent(1), ", ",
                       view.extent(2), "], expected [", tokens(), " tokens, ", heads, " heads, ", dim, "]");
        return view;
    }

    template <strided View>
    auto rows(const char* what, int layer, const View& view, int heads, int dim) const {
        static_assert(View::rank() == 3, "put: rows have three extents, [tokens, heads, dim]");
        if constexpr (requires { State::Backend::template reaches<typename View::memory_space>; })
            static_assert(State::Backend::template reaches<typename View::memory_space>,
                          "put: the backend cannot reach the memory space of the rows");
        return rows(what, layer, strided_view(view), heads, dim);
    }

    template <class Range>
        requires(!strided<Range> && requires(const Range& range) { std::data(range), std::size(range); })
    auto rows(const char* what, int layer, const Range& range, int heads, int dim) const {
        const std::int64_t expected = std::int64_t{tokens()} * heads * dim;
        CELLAR_EXPECTS(static_cast<std::int64_t>(std::size(range)) == expected, "put: the ", what, " of layer ", layer,
                       " are ", std::size(range), " elements, expected ", expected, " for [", tokens(), " tokens, ",
                       heads, " heads, ", dim, "]");
        return contiguous_view(std::data(range), tokens(), heads, dim);
    }
};

} // namespace cellar
