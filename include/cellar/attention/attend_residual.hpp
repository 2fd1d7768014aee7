// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attend.hpp>
#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/older_cells.hpp>
#include <cellar/attention/merge_attention.hpp>
#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/convert.hpp>
#include <cellar/layout/layer_shape.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace cellar {

namespace detail {

inline void expect_equal_shapes(const LayerShape& older, const LayerShape& newer, int layer) {
    CELLAR_EXPECTS(older.kv_heads == newer.kv_heads && older.key_dim == newer.key_dim
                       && older.value_dim == newer.value_dim,
                   "attend_residual: layer ", layer, " of the residual has ", newer.kv_heads, " heads of ",
                   newer.key_dim, " and ", newer.value_dim, " elements, expected ", older.kv_heads, " of ",
                   older.key_dim, " and ", older.value_dim, " as in the other memory");
}

/// Stands for work on two passes where a concept asks whether it can be called.
struct AnyResidualWork {
    template <class Pass, class Residual>
    void operator()(Pass&, Residual&) const {}
};

/// The pass of two memories with the same tokens, one of which has the newest ones exactly. It calls
/// f(pass, residual) with their passes.
template <class P>
concept pass_with_residual = requires(P& pass) {
    pass.with_residual(AnyResidualWork{});
};

/// The results of both parts, in float. Those of `newer` are where the caller's go, if that is possible.
struct ResidualParts {
    PartialAttention<float> newer;
    PartialAttention<float> older;
};

template <class Out>
ResidualParts residual_parts(Scratch& memory, const StridedView<Out, 3>& out, const StridedView<float, 2>& sums) {
    const std::int64_t tokens = out.extent(0);
    const std::int64_t heads = out.extent(1);
    const std::int64_t dim = out.extent(2);
    return take_arrays(memory, [&](ScratchArrays& arrays) {
        const auto rows = [&] { return contiguous_view(arrays.take<float>(tokens * heads * dim), tokens, heads, dim); };
        const auto logarithms = [&] { return contiguous_view(arrays.take<float>(tokens * heads), tokens, heads); };
        ResidualParts parts{{{}, sums}, {rows(), logarithms()}};
        if (sums.pointer == nullptr) parts.newer.log_sum_exp = logarithms();
        if constexpr (std::is_same_v<Out, float>) {
            parts.newer.out = out;
        } else {
            parts.newer.out = rows();
        }
        return parts;
    });
}

/// Where a device puts the results of the newer memory: in memory of the older one's backend, which merges them into
/// its own.
template <class Backend, class Out>
PartialAttention<float> prior_part(Backend& older, const Backend& newer, const StridedView<Out, 3>& out) {
    CELLAR_EXPECTS(older.shares_order(newer),
                   "attend_residual: the memories have backends with different instances of the execution space, "
                   "expected one, so that their work is done in order");
    const std::int64_t tokens = out.extent(0);
    const std::int64_t heads = out.extent(1);
    const std::int64_t dim = out.extent(2);
    float* const sums = older.prior_results(tokens * heads * (dim + 1));
    return {contiguous_view(sums + tokens * heads, tokens, heads, dim), contiguous_view(sums, tokens, heads)};
}

/// `attend_residual` with instructions of choice, for tests.
template <class Pass, class Residual, class Queries, class Out, class Threads>
void attend_residual_with(Instructions instructions, Pass& pass, Residual& residual, int layer, const Queries& queries,
                          Out&& results, const AttentionOptions& options, const Threads& threads) {
    auto newer = residual.attention_source("attend_residual", layer);
    OlderCells older{pass.attention_source("attend_residual", layer), newer};
    using Backend = typename decltype(older)::Backend;
    using OfNewer = typename decltype(newer)::Backend;
    constexpr bool on_device = ComputesAttention<Backend> || ComputesAttention<OfNewer>;
    constexpr bool merges = MergesAttention<Backend> && std::is_same_v<Backend, OfNewer>;
    static_assert(!on_device || merges, "attend_residual: expected backends of the host, or in both memories one of a "
                                        "device that merges attention, as KokkosBackend does");
    expect_equal_shapes(older.shape(layer), newer.shape(layer), layer);
    const auto given = checked_call(newer.shape(layer), newer.tokens(), queries, results, options);
    if (newer.tokens() == 0) return;
    AttentionOptions of_newer = options;
    AttentionOptions of_older = options;
    of_older.sinks = {}; // they count once
    if constexpr (merges) {
        const PartialAttention<float> prior = prior_part(older.backend(), newer.backend(), given.out);
        of_newer.log_sum_exp = prior.log_sum_exp;
        attend_to(newer, instructions, layer, given.q, prior.out, of_newer, threads);
        attend_to(older, instructions, layer, given.q, given.out, of_older, threads,
                  {prior.out.pointer, prior.log_sum_exp.pointer});
    } else if constexpr (!on_device) {
        const ResidualParts parts = residual_parts(older.memory().parts, given.out, options.log_sum_exp);
        of_newer.log_sum_exp = parts.newer.log_sum_exp;
        attend_to(newer, instructions, layer, given.q, parts.newer.out, of_newer, threads);
        of_older.log_sum_exp = parts.older.log_sum_exp;
        attend_to(older, instructions, layer, given.q, parts.older.out, of_older, threads);
        merge_attention(parts.newer, parts.older);
        if constexpr (!std::is_same_v<typename decltype(given.out)::element_type, float>)
            convert(parts.newer.out, given.out);
    }
}

} // namespace detail

/// Attention of one layer whose newest tokens are exact: `attend` over two memories that hold the same tokens. A query
/// sees in `residual` what the window of that memory shows: its newest tokens and its sinks. It sees everything else in
/// `pass`. So a cache in a format of few bits, beside one of `half` with a `SlidingWindow` of n, gives attention in
/// which the newest n tokens of each query are those of `half`.
///
/// - `pass`, `residual`: passes of one batch, in two memories. The layer has the same heads in both, and was put in
///   both. They may be members of a hybrid: docs/how-to/store-in-fewer-bits.md. On a device, both have backends with
///   one instance of the execution space.
/// - `q`, `out`, `options`, `threads`: as for `attend`. `options.log_sum_exp` is that of both memories together.
///
/// Violations: those of `attend`; passes of different batches; layers with different heads; a residual whose window
/// has fewer sinks than that of the other memory, but not none; one that shows a token more than the other memory does;
/// one with `Positions::any`, because what its window shows must be there; on a device, different instances.
///
/// Computes in float. A token gets the same result, up to rounding, as from one memory with these keys and values. NaN
/// and infinity do not reach it from what a memory does not show.
///
/// Cost: each key and value that a token sees is read as often as by `attend`, from one of the memories; then the two
/// results are merged, in O(tokens * heads * value_dim). Allocates as `attend` does, and the results of `pass` as
/// floats, those of both if `out` is not of float, if it needs more memory than any call before. A device enqueues the
/// kernels of two calls of `attend`, and allocates the results of `residual` in place of these: tokens * heads *
/// (value_dim + 1) floats, or up to twice as many.
template <class Pass, class Residual, class Queries, class Out, class Threads = CallingThread>
void attend_residual(Pass& pass, Residual& residual, int layer, const Queries& q, Out&& out,
                     const AttentionOptions& options = {}, const Threads& threads = {},
                     Where where = Where::current()) {
    const detail::Caller caller{where};
    if constexpr (detail::expect_types<Pass, Queries, Out&&, Threads>()
                  && detail::expect_types<Residual, Queries, Out&&, Threads>()) {
        CELLAR_EXPECTS(threads.count() > 0, "attend_residual: ", threads.count(), " threads, expected at least 1");
        detail::attend_residual_with(detail::best_instructions(), pass, residual, layer, q, out, options, threads);
    }
}

/// The same for the pass of a `Hybrid<WithResidual, Coarse, Exact>`, which has both. So code that calls `attend` for
/// the pass of a cache works here, too.
template <detail::pass_with_residual Pass, class Queries, class Out, class Threads = CallingThread>
void attend(Pass& pass, int layer, const Queries& q, Out&& out, const AttentionOptions& options = {},
            const Threads& threads = {}, Where where = Where::current()) {
    pass.with_residual([&](auto& coarse, auto& exact) {
        attend_residual(coarse, exact, layer, q, std::forward<Out>(out), options, threads, where);
    });
}

} // namespace cellar
