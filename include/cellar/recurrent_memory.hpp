// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/recurrent/state_book.hpp>
#include <cellar/recurrent/state_shape.hpp>
#include <cellar/recurrent/state_store.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What a recurrent memory consists of, at a fixed address: the memory may move while a pass points here.
template <class TheStates, backend TheBackend>
struct RecurrentMemory {
    using Backend = TheBackend;
    using Store = StateStore<TheStates, Backend>;

    RecurrentMemory(StateShape the_shape, const StateLimits& limits, Backend the_backend)
        : shape{std::move(the_shape)},
          backend{std::move(the_backend)},
          book{limits, checkpoints(shape, limits)},
          store{backend, shape, book.ledger().slots().slots(), limits.sequences},
          parts_done(static_cast<std::size_t>(shape.layers())) {}

    void expect_no_pass(const char* verb) const {
        CELLAR_EXPECTS(!pass_open, verb, ": a pass is open, expected it to be committed or dropped before");
    }

    static Slot checkpoints(const StateShape& shape, const StateLimits& limits) {
        CELLAR_EXPECTS(limits.checkpoint_bytes >= 0, "limits: ", limits.checkpoint_bytes,
                       " checkpoint_bytes, expected none or more");
        const std::int64_t count = limits.checkpoint_bytes / Store::slot_bytes(shape);
        CELLAR_EXPECTS(count <= INT32_MAX, "limits: checkpoint_bytes has room for ", count,
                       " states, expected at most ", INT32_MAX);
        return static_cast<Slot>(count);
    }

    StateShape shape;
    Backend backend;
    StateBook book;
    Store store;
    std::vector<std::int32_t> parts_done; ///< for each layer, of the open pass
    struct {
        Sequence sequence{};
        Position begin{};
        Position end{};
    } removal; ///< between its halves
    bool pass_open = false;
};

} // namespace cellar::detail
