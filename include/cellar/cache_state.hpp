// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/book/book.hpp>
#include <cellar/mask_memory.hpp>
#include <cellar/shape.hpp>
#include <cellar/store/layer_store.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What a cache consists of, at a fixed address: the cache may move while a pass points here. This is where
/// bookkeeping and memory meet; the plans go from one to the other.
template <layout_policy Layout, window_policy Window, shift_policy ShiftPolicy, backend TheBackend>
struct CacheState {
    using Backend = TheBackend;
    using Store = LayerStore<Layout, Backend>;

    CacheState(Shape the_shape, const Limits& limits, const Window& window, ShiftPolicy the_shift, Backend the_backend)
        : shape{std::move(the_shape)},
          shift{std::move(the_shift)},
          backend{std::move(the_backend)},
          book{limits, window},
          mask{backend} {
        stores.reserve(static_cast<std::size_t>(shape.layers()));
        for (int layer = 0; layer < shape.layers(); ++layer) {
            const LayerShape& own = shape[layer];
            if (own.shares < 0) {
                check_shift(layer);
                owners.push_back(layer);
                stores.emplace_back(backend, book.ledger().cells(), own);
            }
            store_of.push_back(own.shares < 0 ? stores.size() - 1 : store_of[static_cast<std::size_t>(own.shares)]);
        }
    }

    Store& store(int layer) {
        CELLAR_EXPECTS(layer >= 0 && layer < shape.layers(), "layer ", layer, ", expected 0 to ", shape.layers() - 1);
        return stores[store_of[static_cast<std::size_t>(layer)]];
    }

    void expect_no_pass(const char* verb) const {
        CELLAR_EXPECTS(!pass_open, verb, ": a pass is open, expected it to be committed or dropped before");
    }

    /// Enqueues what a plan asks of every layer.
    void carry_out(const Plan& plan) {
        for (std::size_t i = 0; i < stores.size(); ++i) {
            if (!plan.moves.empty()) stores[i].move(backend, plan.moves);
            if constexpr (turns_keys<ShiftPolicy>)
                if (!plan.turns.empty()) stores[i].turn(backend, shift, owners[i], plan.turns);
        }
    }

    /// Room for masks of any element, for passes of so many tokens that see all cells.
    void reserve(std::int64_t tokens) {
        mask.template reserve<float>(backend, tokens, book.ledger().cells());
        if constexpr (writes_masks<Backend>) backend.reserve(tokens, book.ledger().cells());
    }

    Shape shape;
    ShiftPolicy shift;
    Backend backend;
    Book<Window> book;
    std::vector<Store> stores;         // of the layers that have a memory of their own
    std::vector<int> owners;           // and which layers these are
    std::vector<std::size_t> store_of; // layer -> index into stores
    MaskMemory<Backend> mask;
    Removal removal; // between its halves
    bool pass_open = false;

private:
    void check_shift(int layer) const {
        if constexpr (turns_keys<ShiftPolicy>) {
            const int least = least_dim(shift.rotation(layer));
            CELLAR_EXPECTS(least <= shape[layer].key_dim, "shift: layer ", layer, " has a key_dim of ",
                           shape[layer].key_dim, ", expected at least ", least, ", the elements that are turned");
        }
    }
};

} // namespace cellar::detail
