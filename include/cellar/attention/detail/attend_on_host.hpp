// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_plan.hpp>
#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/attention/detail/host_attention.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

/// See `attend`. `work` was checked; its tree is not yet known.
template <AttentionSource Source, class Work, class Threads>
void attend_on_host(Source& source, Work work, bool reads_shared_once, const Threads& threads,
                    Instructions instructions) {
    AttentionPlan& plan = plan_of(source, work.shape, reads_shared_once);
    work.tree = plan.tokens().tree(source);
    HostAttention<Work> attention{work, plan, instructions};
    const std::int64_t parts = (attention.bytes_of_parts() + 63) / 64 * 64;
    const std::int64_t worker = attention.bytes_of_worker();
    std::byte* const memory = source.memory().rows.reserve(parts + threads.count() * worker);
    attention.run(threads, memory, memory + parts, worker);
}

} // namespace cellar::detail
