// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/memory/layer_name.hpp>
#include <cellar/recurrent/detail/state_book.hpp>
#include <cellar/recurrent/detail/state_store.hpp>
#include <cellar/recurrent/fwd.hpp>
#include <cellar/recurrent/state_limits.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The parts of a recurrent memory, at a fixed address: the memory may move while a pass points here.
template <class TheStates, BackendPolicy TheBackend>
struct RecurrentMemoryState {
    using States = TheStates;
    using Backend = TheBackend;
    using Store = StateStore<States, Backend>;

    RecurrentMemoryState(StateShape the_shape, const StateLimits& limits, Backend the_backend)
        : shape{std::move(the_shape)},
          backend{std::move(the_backend)},
          book{resolved_limits(limits)},
          stores{backend, shape, book.table().slots().slots(), limits.sequences},
          done_in_layer(static_cast<std::size_t>(shape.layers())) {
        if constexpr (ReservesSlots<Backend>) backend.reserve_slots(limits.sequences);
    }

    /// See `RecurrentMemory::bytes_for`.
    static constexpr MemoryBytes bytes_for(const StateShape& shape, const StateLimits& the_limits) {
        const StateLimits limits = resolved_limits(the_limits);
        const std::int64_t layers = shape.layers();
        MemoryBytes bytes = Store::bytes_for(shape, slot_count(limits), limits.sequences);
        bytes.bookkeeping += bytes_of<RecurrentMemoryState>(1) + StateBook::bytes_for(limits)
                             + bytes_of<std::vector<StateExtents>>(layers)
                             + bytes_of<StateExtents>(layers * shape.tensors()) + bytes_of<std::int32_t>(layers);
        return bytes;
    }

    RecurrentMemoryState(const RecurrentMemoryState&) = delete;
    RecurrentMemoryState& operator=(const RecurrentMemoryState&) = delete;
    ~RecurrentMemoryState() {
        CELLAR_EXPECTS(!pass_open, "a recurrent memory is destroyed while a pass is open, expected it to be committed "
                                   "or dropped first");
        backend.fence(); // enqueued work uses the memory
    }

    void begin_pass(bool reserved) {
        pass_open = true;
        pass_reserved = reserved;
        std::fill(done_in_layer.begin(), done_in_layer.end(), 0);
        done = 0;
        fetched_layer = fetched_micro_batch = -1;
        layer_name = {};
    }

    /// For snapshots: a sequence always needs its whole state, and all slots have memory from the beginning.
    static constexpr Resuming resuming(bool) { return Resuming::checked; }
    template <class... Arguments>
    static constexpr void allocate_for(const Arguments&...) {}
    static constexpr OffloadTo offload_place(OffloadTo to) { return to; }

    void expect_no_pass(const char* operation) const { detail::expect_no_pass(operation, pass_open); }

    void expect_layer(const char* operation, int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < shape.layers(), operation, ": layer ", layer, ", expected 0 to ",
                       shape.layers() - 1);
    }

    StateShape shape;
    Backend backend;
    StateBook book;
    Store stores;
    BatchBuilder next_tokens; // of a pass that was asked for by their number
    // Of the open pass. They are not in the pass, so that moving it is cheap.
    bool pass_open = false;
    bool pass_reserved = false;
    std::vector<std::int32_t> done_in_layer; // micro-batches put in each layer
    std::int64_t done = 0;                   // and in all layers
    int fetched_layer = -1;                  // what was fetched last
    std::int32_t fetched_micro_batch = -1;
    LayerName layer_name;
};

/// The state behind a recurrent memory.
template <class Memory>
struct RecurrentStateOf;
template <class States, class Backend>
struct RecurrentStateOf<RecurrentMemory<States, Backend>> {
    using type = RecurrentMemoryState<States, Backend>;
};

} // namespace cellar::detail
