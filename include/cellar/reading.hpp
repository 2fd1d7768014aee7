// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/book/mask.hpp>
#include <cellar/mask_memory.hpp>

#include <cstdint>
#include <utility>

namespace cellar {

/// What attention in one layer reads.
template <class Keys, class Values, class Mask>
struct History {
    Keys keys;
    Values values;
    Mask mask;
};

/// What a pass reads: the cells that its batch may see.
template <class State>
class Reading {
public:
    std::int32_t tokens() const { return tokens_; }

    /// The smallest range of cells that holds all that the batch may see, aligned to `Limits::padding`. Cells in it
    /// that nobody sees may hold anything that was once put.
    CellRange history() const { return history_; }

    /// The keys of the history in place, [history, kv_heads, key_dim] as StandardV and PermutedV store them.
    auto keys(int layer) const { return state().store(layer).keys(history_); }

    /// The values of the history in place: [history, kv_heads, value_dim] for StandardV, [kv_heads, value_dim,
    /// history] for PermutedV.
    auto values(int layer) const { return state().store(layer).values(history_); }

    /// The mask [tokens, history] of float or half: 0 where visible, -infinity where hidden; of bool: true where
    /// visible. It is the same for all layers and written once a pass, at the first call, in O(tokens * history). It
    /// stays valid until the next mask of this cache; its address stays the same once `Cache::reserve` has sized it.
    /// It lies in the backend's memory if the backend writes masks (enqueued; the host hands over one bit a cell), else
    /// in memory of the process.
    template <class T = float>
    StridedView<const T, 2> mask() {
        auto& memory = state().mask;
        const StridedView<T, 2> view = memory.template reserve<T>(state().backend, tokens_, history_.count);
        if (mask_of_ != &detail::mask_of_byte<T>) {
            if (reserved_) {
                memory.write_all_visible(state().backend, view);
            } else {
                memory.write(state().backend, state().book, view);
            }
            mask_of_ = &detail::mask_of_byte<T>;
        }
        return view;
    }

    /// Keys, values and mask for one layer, to be taken apart by a structured binding.
    template <class MaskElement = float>
    auto get(int layer) {
        using Mask = StridedView<const MaskElement, 2>;
        return History<decltype(keys(layer)), decltype(values(layer)), Mask>{keys(layer), values(layer),
                                                                             mask<MaskElement>()};
    }

protected:
    Reading(State& state, std::int32_t tokens, CellRange history, bool reserved)
        : state_{&state}, tokens_{tokens}, history_{history}, reserved_{reserved} {
        state.pass_open = true;
    }
    Reading(Reading&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)},
          tokens_{other.tokens_},
          history_{other.history_},
          reserved_{other.reserved_},
          mask_of_{other.mask_of_} {}
    ~Reading() = default;

    State& state() const {
        CELLAR_EXPECTS(state_ != nullptr, "the pass is over, expected one that was neither committed nor dropped");
        return *state_;
    }

    bool is_over() const { return state_ == nullptr; }
    bool is_reserved() const { return reserved_; }

    /// The bookkeeping is done: another pass may be opened.
    void close() noexcept {
        state_->pass_open = false;
        state_ = nullptr;
    }

private:
    State* state_;
    std::int32_t tokens_;
    CellRange history_;
    bool reserved_;
    const void* mask_of_ = nullptr; // names the element type that the mask has been written in
};

} // namespace cellar
