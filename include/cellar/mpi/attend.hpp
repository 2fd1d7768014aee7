// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attend.hpp>
#include <cellar/attention/attention_options.hpp>
#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/context_parallel.hpp>
#include <cellar/mpi/detail/attention_exchange.hpp>
#include <cellar/mpi/detail/context_state.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace cellar::detail {

/// Merges the partial results of all ranks into results [tokens, heads, dim] and, unless they are null, into the
/// logarithms.
template <class E>
std::optional<mpi::MpiError> merge_into(const mpi::Communicator& comm, AttentionExchange& exchange,
                                        std::chrono::milliseconds time_limit, const StridedView<E, 3>& result,
                                        const StridedView<float, 2>& sums) {
    const std::int64_t tokens = result.extent(0);
    const std::int64_t heads = result.extent(1);
    const std::int64_t dim = result.extent(2);
    float* merged = nullptr;
    if constexpr (std::is_same_v<E, float>)
        if (result.is_contiguous()) merged = result.pointer;
    const bool copies = merged == nullptr;
    if (copies) merged = exchange.merged(tokens * heads * dim);
    float* const merged_sums = sums.pointer == nullptr ? nullptr : exchange.sums(tokens * heads);
    if (auto error = exchange.merge(comm, tokens * heads, dim, merged, merged_sums, time_limit)) return error;
    for (std::int64_t token = 0, row = 0; token < tokens; ++token)
        for (std::int64_t head = 0; head < heads; ++head, ++row) {
            if (merged_sums != nullptr) sums(token, head) = merged_sums[row];
            for (std::int64_t d = 0; copies && d < dim; ++d)
                result(token, head, d) = static_cast<E>(merged[row * dim + d]);
        }
    return std::nullopt;
}

} // namespace cellar::detail

namespace cellar::mpi {

/// `cellar::attend` over what all ranks store. Collective: each rank attends to its own cells, and the results are
/// merged, in the order of the ranks. Every rank passes the same queries and options, and gets the same bits, provided
/// that their processors compute the same `std::exp`. Equal to the attention of one process up to rounding in float.
///
/// - `q` [tokens, heads, key_dim], `out` [tokens, heads, value_dim] and `options.log_sum_exp`: as for
///   `cellar::attend`. A contiguous `out` of float takes the merged rows without another copy.
/// - A token that sees nothing on any rank gets zeros.
///
/// Cost: that of `cellar::attend` for this rank's cells. Then each rank sends and receives its partial results, less
/// its own share of them. They are tokens * heads * (value_dim + 1) floats. The merged ones take as many again. Where
/// the parts of all ranks are few bytes, every rank gets all of them at once instead. Allocates if it needs more memory
/// than any call of this memory before. Throws `std::bad_alloc` before it sends anything: this rank can then free
/// memory and call it again, while the others wait.
///
/// After an error, the pass should be dropped: the contents of `out` are unspecified. A rank that is dead or silent is
/// named, as by every operation of `ContextParallel`. MPI may then still write to a contiguous `out` of float, so its
/// memory should stay until the process ends.
template <class Cache, class Queries, class Out, class Threads = CallingThread>
MpiResult<void> attend(ContextPass<Cache>& pass, int layer, const Queries& q, Out&& out,
                       const AttentionOptions& options = {}, const Threads& threads = {},
                       Where where = Where::current()) {
    static_assert(Cache::backend_type::host_reaches, "attend: not yet for a backend whose memory the host cannot read");
    static_cast<void>(detail::expect_kept<Out&&>());
    const detail::Caller caller{where};
    auto& state = MemoryAccess::state(pass);
    const std::int64_t tokens = pass.tokens();
    CELLAR_EXPECTS(layer >= 0 && layer < state.cache.layers(), "attend: layer ", layer, ", expected 0 to ",
                   state.cache.layers() - 1);
    const auto given = detail::checked_call(state.cache.shape()[layer], pass.tokens(), q, out, options);
    if (state.lost) return *state.lost;
    if (tokens > 0) {
        const std::int64_t heads = given.shape.heads;
        const std::int64_t dim = given.shape.value_dim;
        float* const own = state.exchange.partial(tokens * heads, dim);
        AttentionOptions local = options;
        local.log_sum_exp = {own + dim, {tokens, heads}, {heads * (dim + 1), dim + 1}};
        if (state.comm.rank() != 0) local.sinks = {}; // one rank counts them
        const StridedView<float, 3> partial{own, {tokens, heads, dim}, {heads * (dim + 1), dim + 1, 1}};
        cellar::attend(pass.local(), layer, given.q, partial, local, threads);
        state.lost = detail::merge_into(state.comm, state.exchange, state.time_limit, given.out, options.log_sum_exp);
        if (state.lost) return *state.lost;
    }
    // Last, because a call that runs out of memory is repeated.
    state.note(detail::joint_call(detail::JointOperation::attend, layer));
    return {};
}

} // namespace cellar::mpi
