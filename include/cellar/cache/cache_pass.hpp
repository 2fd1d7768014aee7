// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/read_pass.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

namespace cellar {

struct MemoryAccess;

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

    /// The cell of each token; empty for a reserved pass.
    std::span<const Cell> cells() const {
        return Base::is_reserved() ? std::span<const Cell>{} : std::span<const Cell>{state().book.pass().cells};
    }

    /// Enqueues: stores the batch's keys [tokens, kv_heads, key_dim] and values [tokens, kv_heads, value_dim], which
    /// hold the stored element type or float. Accepts views with strides (`StridedView`, `std::mdspan`, a Kokkos View)
    /// and contiguous ranges such as a vector. For a layer that shares another layer's memory, put to that one. A wrong
    /// extent is a violation.
    template <class K, class V>
    void put(int layer, const K& k, const V& v) {
        auto& store = state().store(layer);
        const LayerShape& shape = state().shape[layer];
        CELLAR_EXPECTS(shape.shares < 0, "put: layer ", layer, " shares the memory of layer ", shape.shares,
                       ", expected a put to that one");
        const auto keys = rows("keys", layer, k, shape.kv_heads, shape.key_dim);
        const auto values = rows("values", layer, v, shape.kv_heads, shape.value_dim);
        if (!Base::is_reserved()) store.put(state().backend, cells(), keys, values);
    }

    /// Enqueues: uploads the list of this pass's cells to where the kernels of `put` read it; otherwise the first `put`
    /// does that. After it, `put` enqueues kernels only, the same ones for every pass of as many tokens: a graph can
    /// capture them and replay them in later passes, each after its own `upload_cells`. `reserve` fixes the address.
    void upload_cells() requires(UploadsCells<typename State::Backend>) { state().backend.upload_cells(cells()); }

    /// Calls f(*this, layer), so that code for a hybrid's passes also works here.
    template <class F>
    decltype(auto) visit(int layer, F&& f) {
        state().store(layer); // checks the layer
        return std::forward<F>(f)(*this, layer);
    }

    /// Keeps the batch's tokens, and forgets tokens that fell out of the retention. A reserved pass stores nothing. The
    /// pass is over; its views stay readable until the cache's next operation.
    void commit() {
        expect_complete();
        finish_commit();
    }

    /// Undoes the pass, as the destructor does.
    void drop() noexcept {
        if (Base::is_over()) return;
        if (!Base::is_reserved()) state().book.drop();
        Base::close();
    }

private:
    friend struct MemoryAccess;

    CachePass(State& the_state, std::int32_t count, CellRange history, bool reserved)
        : Base{the_state, count, history, reserved} {}

    void expect_complete() const { state(); }
    void finish_commit() noexcept {
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
        const std::int64_t expected = std::int64_t{tokens()} * heads * dim;
        CELLAR_EXPECTS(static_cast<std::int64_t>(std::size(range)) == expected, "put: the ", what, " of layer ", layer,
                       " are ", std::size(range), " elements, expected ", expected, " for [", tokens(), " tokens, ",
                       heads, " heads, ", dim, "]");
        return contiguous_view(std::data(range), tokens(), heads, dim);
    }
};

} // namespace cellar
