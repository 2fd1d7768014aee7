// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_plan.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/kernel/attend_tiles.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/join_parts.hpp>
#include <cellar/kernel/staged_rows.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Attention on a device. All functions enqueue; memory grows, with a wait, if a call needs more than any before. A
/// fence of the space must follow the last call before this is destroyed.
template <class ExecutionSpace, class MemorySpace, class Limits>
class DeviceAttention {
public:
    /// See `ComputesAttention`: uploads the lists.
    void begin(const ExecutionSpace& space, const AttentionLists& lists) {
        lists_ = lists;
        planned_ = {};
        device_tokens_ = tokens_.upload(space, lists.tokens);
        device_runs_ = runs_.upload(space, lists.runs);
    }

    /// See `ComputesAttention`.
    template <class Keys, class Values, class Q, class Out>
    void run(const ExecutionSpace& space, const AttentionWork<Keys, Values, Q, Out>& work) {
        const AttentionShape& shape = work.shape;
        const auto keys = kernel::packed_rows(work.keys);
        const auto values = kernel::packed_rows(work.values);
        expect_whole_parts<Values>(shape.value_dim);
        kernel::AttentionTileShape tiles{static_cast<std::int32_t>(shape.key_dim),
                                         static_cast<std::int32_t>(shape.value_dim), 1};
        plan(space, {shape.kv_heads, shape.group(), max_rows(space, tiles)});
        tiles.rows = plan_.max_rows;

        using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
        using Team = typename Policy::member_type;
        const kernel::AttentionCall<Out> call{work.out,
                                              work.log_sum_exp,
                                              partial_results(space, shape.value_dim),
                                              upload_rule(space, work.rule, shape.heads),
                                              device_tokens_,
                                              device_blocks_,
                                              static_cast<std::int32_t>(plan_.blocks.size()),
                                              tiles.value_dim,
                                              kernel::Divisor{shape.kv_heads},
                                              kernel::Divisor{shape.group()},
                                              work.prior};
        const kernel::AttendTiles<std::remove_const_t<decltype(keys)>, std::remove_const_t<decltype(values)>, Q, Out,
                                  Team>
            attend{keys,         values, work.q,      call, device_runs_, upload_tree(space, work),
                   lists_.sinks, tiles,  work.factors};
        launch_teams("cellar: attend", space, attend, plan_.items * shape.kv_heads, Limits::team_threads,
                     tiles.bytes());
        if (plan_.joined_rows == 0) return;
        const kernel::JoinParts<Out, Team> join{call, plan_.max_parts};
        launch_teams("cellar: join", space, join, plan_.joined_rows, Limits::team_threads, join.bytes());
    }

    /// See `MergesAttention`.
    float* prior(const ExecutionSpace& space, std::int64_t size) { return grown(space, prior_, size); }

    bool has_memory() const {
        return partial_.size() != 0 || prior_.size() != 0 || tokens_.has_memory() || runs_.has_memory()
               || blocks_.has_memory() || floats_.has_memory() || parents_.has_memory() || tree_.has_memory();
    }

    /// To be called when all work given to the space is done.
    void fenced() {
        tokens_.fenced(), runs_.fenced(), blocks_.fenced();
        floats_.fenced(), parents_.fenced(), tree_.fenced();
    }

private:
    template <class T>
    using List = StagedList<T, ExecutionSpace, MemorySpace>;

    // What a plan depends on, beside the lists.
    struct Planned {
        int kv_heads = 0;
        int group = 0;
        std::int64_t room = 0;

        bool operator==(const Planned&) const = default;
    };

    // Once a pass, if its layers have the same heads.
    void plan(const ExecutionSpace& space, const Planned& wanted) {
        if (planned_ == wanted) return;
        planned_ = {};
        plan_.template make<Limits>(lists_, wanted.kv_heads, wanted.group, wanted.room);
        device_blocks_ = blocks_.upload(space, plan_.blocks);
        planned_ = wanted;
    }

    // Values may be the first elements of keys that were rotated in larger parts.
    template <class Values>
    static void expect_whole_parts(std::int64_t dim) {
        if constexpr (kernel::are_rotated<Values>) {
            constexpr int part = Values::Format::values_per_rotation;
            CELLAR_EXPECTS(dim % part == 0, "attend: the results have ", dim,
                           " elements a head, expected a multiple of ", part,
                           " on this device, which are rotated together");
        }
    }

    // As many rows as Kokkos has shared memory for: 40 KB on CUDA and HIP.
    static std::int64_t max_rows(const ExecutionSpace& space, const kernel::AttentionTileShape& shape) {
        const std::int64_t bytes = Kokkos::TeamPolicy<ExecutionSpace>{space, 1, 1}.scratch_size_max(0);
        const std::int64_t rows = (bytes - shape.fixed_bytes) / shape.row_bytes();
        CELLAR_EXPECTS(rows > 0, "attend: rows of ", shape.key_dim, " and ", shape.value_dim, " elements, expected ",
                       (bytes - shape.fixed_bytes) / 4 - 100, " or fewer in all on this device");
        return rows < 4 ? rows : std::min<std::int64_t>(rows / 4 * 4, 32);
    }

    // The rule with lists on the device, one after the other.
    ScoreRule<float> upload_rule(const ExecutionSpace& space, ScoreRule<float> rule, int heads) {
        listed_.clear();
        rule.for_each_list([&](const float* list) {
            if (list != nullptr) listed_.insert(listed_.end(), list, list + heads);
        });
        const float* next = listed_.empty() ? nullptr : floats_.upload(space, listed_);
        rule.for_each_list([&](const float*& list) {
            if (list == nullptr) return;
            list = next;
            next += heads;
        });
        return rule;
    }
    template <class Work>
    TokenTree upload_tree(const ExecutionSpace& space, const Work& work) {
        const TokenTree& tree = work.tree;
        if (tree.parents == nullptr || tree.count == 0) return {nullptr, nullptr, 0};
        const auto size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
        return {parents_.upload(space, std::span{tree.parents, size(work.shape.tokens)}),
                tree_.upload(space, std::span{tree.tokens, size(tree.count)}), tree.count};
    }

    kernel::PartialResults partial_results(const ExecutionSpace& space, std::int64_t value_dim) {
        float* const partial = grown(space, partial_, plan_.partial_rows * (value_dim + 2));
        return {partial + 2 * plan_.partial_rows, reinterpret_cast<SoftmaxSum*>(partial)};
    }

    // Blocks and allocates if the memory was never as large. Histories and batches grow, so at least to twice the size.
    static float* grown(const ExecutionSpace& space, KokkosBlock<float, MemorySpace>& memory, std::int64_t floats) {
        const auto size = static_cast<std::size_t>(floats);
        if (size > memory.size()) {
            KokkosBlock<float, MemorySpace> larger{space, "cellar: results", std::max(size, 2 * memory.size())};
            if (memory.size() != 0) space.fence("cellar: more results"); // kernels use the old memory
            memory = std::move(larger);
        }
        return memory.data();
    }

    AttentionLists lists_; // of the pass
    Planned planned_;
    DevicePlan plan_;
    List<VisibleRange> tokens_{Limits::staging_bytes};
    List<VisibleRun> runs_{Limits::staging_bytes};
    List<kernel::AttentionBlock> blocks_{Limits::staging_bytes};
    List<float> floats_{Limits::staging_bytes}; // lists of the rule
    List<std::int32_t> parents_{Limits::staging_bytes};
    List<CellToken> tree_{Limits::staging_bytes};
    KokkosBlock<float, MemorySpace> partial_;
    KokkosBlock<float, MemorySpace> prior_;       // results over other cells
    const VisibleRange* device_tokens_ = nullptr; // of the pass, as the following
    const VisibleRun* device_runs_ = nullptr;
    const kernel::AttentionBlock* device_blocks_ = nullptr;
    std::vector<float> listed_; // what is uploaded next
};

} // namespace cellar::detail
