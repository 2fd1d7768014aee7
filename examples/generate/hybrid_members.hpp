// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include <cellar/cellar.hpp>

#include <optional>
#include <vector>

namespace llama {

/// The state of a recurrent layer.
struct RecentInputs : cellar::StateTensor<2> {}; // [taps - 1, width]
struct Hidden : cellar::StateTensor<1> {};       // [width]

struct MemberLimits {
    int sequences = 1;
    int capacity = 0;      ///< tokens of one sequence
    int cells = 0;         ///< of the full layers; 0: enough for all sequences
    int sliding_cells = 0; ///< of the sliding layers, likewise
    int batch = 1;
    int rollback = 0;
    int snapshots = 0;                                            ///< of recurrent states
    cellar::Positions positions = cellar::Positions::consecutive; ///< of the sliding layers
};

/// The types of a model's memory, and how its members are made.
template <class Layout, class Shift, class Backend>
class HybridMembers {
public:
    using Recurrent = cellar::RecurrentMemory<cellar::States<RecentInputs, Hidden>, Backend>;
    using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Shift, Backend>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, Shift, Backend>;
    // The pattern comes from a model file. The members have the order of `LayerKind`.
    using Memory = cellar::Hybrid<cellar::RunTimePattern, Recurrent, Sliding, Full>;

    // [members]
    /// `backend()` makes a backend for each member: one of Kokkos cannot be copied.
    template <class MakeBackend>
    static Memory make(const Config& config, const MemberLimits& limits, const Shift& shift, MakeBackend backend) {
        std::vector<int> members;
        for (const LayerKind kind : config.layer_types) members.push_back(static_cast<int>(kind));
        return Memory{members, recurrent(config, limits, backend), sliding(config, limits, shift, backend),
                      full(config, limits, shift, backend)};
    }

private:
    template <class MakeBackend>
    static std::optional<Recurrent> recurrent(const Config& config, const MemberLimits& limits, MakeBackend backend) {
        const int layers = config.layers(LayerKind::recurrent);
        if (layers == 0) return std::nullopt;
        return Recurrent{cellar::StateShape{layers, {{config.conv1d_width - 1, config.lru_width}, {config.lru_width}}},
                         cellar::StateLimits{.sequences = limits.sequences,
                                             .batch = limits.batch,
                                             .rollback = limits.rollback,
                                             .snapshots = limits.snapshots},
                         backend()};
    }

    /// Forgets tokens that no sliding layer sees any more, even after the rollback.
    template <class MakeBackend>
    static std::optional<Sliding> sliding(const Config& config, const MemberLimits& limits, const Shift& shift,
                                          MakeBackend backend) {
        const int layers = config.layers(LayerKind::sliding_attention);
        if (layers == 0) return std::nullopt;
        const cellar::WindowOptions options{.retention = config.sliding_window + limits.rollback};
        cellar::CacheLimits of_cache = cache_limits(limits, limits.sliding_cells);
        of_cache.positions = limits.positions;
        return Sliding{shape(config, layers), of_cache, cellar::SlidingWindow<>{config.sliding_window, options}, shift,
                       backend()};
    }

    template <class MakeBackend>
    static std::optional<Full> full(const Config& config, const MemberLimits& limits, const Shift& shift,
                                    MakeBackend backend) {
        const int layers = config.layers(LayerKind::full_attention);
        if (layers == 0) return std::nullopt;
        return Full{shape(config, layers), cache_limits(limits, limits.cells), cellar::FullCausal{}, shift, backend()};
    }
    // [/members]

    static cellar::CacheShape shape(const Config& config, int layers) {
        return {.layers = layers, .kv_heads = config.num_key_value_heads, .head_dim = config.head_dim};
    }
    static cellar::CacheLimits cache_limits(const MemberLimits& limits, int cells) {
        return {.sequences = limits.sequences, .capacity = limits.capacity, .cells = cells, .batch = limits.batch};
    }
};

} // namespace llama
