// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos/buffer.hpp>
#include <cellar/backend/kokkos/device_plan.hpp>
#include <cellar/backend/kokkos/launch.hpp>
#include <cellar/backend/kokkos/seen_lists.hpp>
#include <cellar/backend/kokkos/staged_list.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/kernel/attend_tiles.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/divisor.hpp>
#include <cellar/kernel/join_parts.hpp>
#include <cellar/kernel/staged_rows.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Attention on a device. The host writes lists of what a pass sees, in O(runs), once for all of its layers. All
/// functions enqueue; memory grows, with a wait, if a call needs more than any before. Before this is destroyed, a
/// fence of the space must follow the last call.
template <class ExecutionSpace, class MemorySpace, class Limits>
class DeviceAttention {
public:
    /// To be filled before the first layer of a pass; `upload_lists` follows.
    SeenLists& lists() { return seen_; }

    /// Uploads the lists.
    void upload_lists(const ExecutionSpace& space) {
        device_tokens_ = tokens_.upload(space, seen_.tokens);
        device_runs_ = runs_.upload(space, seen_.runs);
    }

    /// See `attend`, whose arguments these are, checked. `shape` has tokens, heads, kv_heads, key_dim and value_dim;
    /// `keys` and `values` have a mapping and data.
    template <class Shape, class Keys, class Values, class Q, class Out, class Options>
    void run(const ExecutionSpace& space, const Shape& shape, const Keys& keys, const Values& values,
             const StridedView<const Q, 3>& q, const StridedView<Out, 3>& out, const Options& options) {
        const auto stored_keys = kernel::stored_rows(keys.mapping, keys.data, shape.key_dim);
        const auto stored_values = kernel::stored_rows(values.mapping, values.data, shape.value_dim);
        const int group = shape.heads / shape.kv_heads;
        kernel::AttentionTileShape tiles{static_cast<std::int32_t>(shape.key_dim),
                                         static_cast<std::int32_t>(shape.value_dim), 1};
        plan_.template make<Limits>(seen_, shape.kv_heads, group, max_rows(space, tiles));
        tiles.rows = plan_.max_rows;

        using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
        using Team = typename Policy::member_type;
        const kernel::Divisor heads{shape.kv_heads};
        const kernel::Divisor of_group{group};
        const kernel::AttentionBlock* const blocks = blocks_.upload(space, plan_.blocks);
        const auto block_count = static_cast<std::int32_t>(plan_.blocks.size());
        const float* const slopes = upload_floats(space, options.slopes, options.sinks);
        const auto results = results_of(out, options, slopes == nullptr ? nullptr : slopes + options.slopes.size());
        const auto partial = partial_results(space, shape.value_dim);
        using Attend = kernel::AttendTiles<std::remove_const_t<decltype(stored_keys)>,
                                           std::remove_const_t<decltype(stored_values)>, Q, Out, Team>;
        const kernel::ScoreRule rule{options.scale != 0 ? options.scale
                                                        : 1 / std::sqrt(static_cast<float>(shape.key_dim)),
                                     options.soft_cap, options.slopes.empty() ? nullptr : slopes};
        const Attend attend{stored_keys, stored_values, rows_of(q),     results, partial,
                            rule,        device_runs_,  device_tokens_, blocks,  upload_tree(space, options.parents),
                            block_count, seen_.sinks,   tiles,          heads,   of_group};
        launch_teams("cellar: attend", space, attend, plan_.items * shape.kv_heads, tiles.bytes());
        if (plan_.joined_rows == 0) return;
        const kernel::JoinParts<Out, Team> join{
            results,         partial, device_tokens_, blocks, block_count, static_cast<std::int32_t>(shape.value_dim),
            plan_.max_parts, heads,   of_group};
        launch_teams("cellar: join", space, join, plan_.joined_rows, join.bytes());
    }

    bool has_memory() const {
        return partial_.size() != 0 || tokens_.has_memory() || runs_.has_memory() || blocks_.has_memory()
               || floats_.has_memory() || parents_.has_memory() || tree_.has_memory();
    }

    /// To be called when all work given to the space is done.
    void fenced() {
        tokens_.fenced(), runs_.fenced(), blocks_.fenced();
        floats_.fenced(), parents_.fenced(), tree_.fenced();
    }

private:
    template <class T>
    using List = StagedList<T, ExecutionSpace, MemorySpace>;

    // As many rows as Kokkos has shared memory for: 40 KB on CUDA and HIP.
    static std::int64_t max_rows(const ExecutionSpace& space, const kernel::AttentionTileShape& shape) {
        const std::int64_t bytes = Kokkos::TeamPolicy<ExecutionSpace>{space, 1, 1}.scratch_size_max(0);
        const std::int64_t rows = (bytes - shape.fixed_bytes) / shape.row_bytes();
        CELLAR_EXPECTS(rows > 0, "attend: rows of ", shape.key_dim, " and ", shape.value_dim, " elements, expected ",
                       (bytes - shape.fixed_bytes) / 4 - 100, " or fewer in all on this device");
        return rows < 4 ? rows : std::min<std::int64_t>(rows / 4 * 4, 32);
    }

    template <class Kernel>
    static void launch_teams(const char* name, const ExecutionSpace& space, const Kernel& kernel, std::int32_t teams,
                             std::int64_t bytes) {
        using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
        const auto shared = Kokkos::PerTeam(static_cast<std::size_t>(bytes));
        const int most =
            Policy{space, teams, 1}.set_scratch_size(0, shared).team_size_max(kernel, Kokkos::ParallelForTag{});
        Policy policy{space, teams, std::min(most, Limits::team_threads)};
        launch(name, policy.set_scratch_size(0, shared), kernel);
    }

    template <class T>
    static kernel::HeadRows<T> rows_of(const StridedView<T, 3>& rows) {
        return {rows.pointer, rows.stride(0), rows.stride(1), rows.stride(2)};
    }
    template <class Out, class Options>
    static kernel::AttentionResults<Out> results_of(const StridedView<Out, 3>& out, const Options& options,
                                                    const float* sinks) {
        const auto& sum = options.log_sum_exp;
        return {rows_of(out), {sum.pointer, sum.stride(0), sum.stride(1), 0}, options.sinks.empty() ? nullptr : sinks};
    }

    // One list, then the other; null if both are empty.
    const float* upload_floats(const ExecutionSpace& space, std::span<const float> slopes,
                               std::span<const float> sinks) {
        if (slopes.empty() && sinks.empty()) return nullptr;
        listed_.assign(slopes.begin(), slopes.end());
        listed_.insert(listed_.end(), sinks.begin(), sinks.end());
        return floats_.upload(space, listed_);
    }
    kernel::TokenTree upload_tree(const ExecutionSpace& space, std::span<const std::int32_t> parents) {
        if (parents.empty() || seen_.in_cells.empty()) return {nullptr, nullptr, 0};
        return {parents_.upload(space, parents), tree_.upload(space, seen_.in_cells),
                static_cast<std::int32_t>(seen_.in_cells.size())};
    }

    // Blocks and allocates if these are more than ever before.
    kernel::PartialResults partial_results(const ExecutionSpace& space, std::int64_t value_dim) {
        const auto size = static_cast<std::size_t>(plan_.partial_rows * (value_dim + 2));
        if (size > partial_.size()) { // histories grow, so at least to twice the size
            KokkosBlock<float, MemorySpace> partial{space, "cellar: partial", std::max(size, 2 * partial_.size())};
            if (partial_.size() != 0) space.fence("cellar: more partial results"); // kernels use the old memory
            partial_ = std::move(partial);
        }
        return {partial_.data() + 2 * plan_.partial_rows, partial_.data()};
    }

    SeenLists seen_;
    DevicePlan plan_;
    List<kernel::SeenToken> tokens_{Limits::staging_bytes};
    List<kernel::SeenRun> runs_{Limits::staging_bytes};
    List<kernel::AttentionBlock> blocks_{Limits::staging_bytes};
    List<float> floats_{Limits::staging_bytes}; // slopes, then sinks
    List<std::int32_t> parents_{Limits::staging_bytes};
    List<kernel::CellToken> tree_{Limits::staging_bytes};
    KokkosBlock<float, MemorySpace> partial_;
    const kernel::SeenToken* device_tokens_ = nullptr; // of the pass
    const kernel::SeenRun* device_runs_ = nullptr;
    std::vector<float> listed_; // what is uploaded next
};

} // namespace cellar::detail
