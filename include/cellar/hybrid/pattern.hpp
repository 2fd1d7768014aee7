// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// In a pattern: a layer without memory (a feed-forward network that the model counts as a layer).
struct NoMemory {};

/// In a pattern: `Count` consecutive layers with memory M.
template <int Count, class M>
struct Times {};

/// Which layer has which memory, repeated from the first layer to the last; the last repetition may be partial:
/// `Repeat<Times<5, Sliding>, Full>`. A block that is not a `Times` is one layer.
template <class... Blocks>
struct Repeat {};

/// Which layer has which memory, for a model with exactly these layers.
template <class... Blocks>
struct LayerList {};

namespace detail {

template <int N, class Nth, class Others>
struct EveryNth {
    static_assert(N >= 2, "Every: N is at least 2");
    using pattern = Repeat<Times<N - 1, Others>, Nth>;
};

} // namespace detail

/// Layers N - 1, 2N - 1, ... (counted from 0) have memory Nth, the others have Others: `Every<4, Full, Recurrent>`.
template <int N, class Nth, class Others>
using Every = typename detail::EveryNth<N, Nth, Others>::pattern;

/// As a pattern: which layer has which member is known at run time only, for example from a model's configuration file.
/// The hybrid is given the index of a member for each layer, or `no_memory`.
struct RunTimePattern {};

/// As a pattern of two caches, each of which has all layers: the first one is coarse, in few bits, and the second one
/// has the newest tokens exactly, in a window. The pass puts keys and values in both, and `attend` takes from the
/// second one what its window shows, which must be no more than the first one shows
/// (`<cellar/attention/attend_residual.hpp>`). Both have the same shift. Such a hybrid may be a member of another one,
/// in place of a cache: docs/how-to/store-in-fewer-bits.md.
struct WithResidual {};

/// The `member` of a layer without memory, in a `LayerPlace` and in the list of a `RunTimePattern`.
inline constexpr int no_memory = -1;

/// Where a model's layer has its memory: the member, and the index of the layer there.
struct LayerPlace {
    int member; ///< or `no_memory`; `layer` then counts such layers
    int layer;

    constexpr bool operator==(const LayerPlace&) const = default;
};

} // namespace cellar
