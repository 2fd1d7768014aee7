// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/detail/cache_state.hpp>
#include <cellar/element/half.hpp>

#include <concepts>
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

/// The reading side of a pass: the cells that its batch may see. `Memory` is a `Cache` or an `EncoderMemory`.
template <class Memory>
class ReadPass {
protected:
    using State = typename detail::StateOf<Memory>::type;

public:
    using memory_type = Memory;

    std::int32_t tokens() const { return tokens_; }

    /// The smallest range of cells that contains everything the batch may see, aligned to `CacheLimits::padding`. Cells
    /// in it that no token of the batch sees may hold anything that was put there before.
    CellRange history() const { return history_; }

    /// The keys of the history, in place: [history, kv_heads, key_dim]. The layout shows in the strides.
    auto keys(int layer) const { return state().store(layer).keys(history_); }

    /// The values of the history, in place: [history, kv_heads, value_dim]. The layout shows in the strides: with
    /// `PermutedV`, stride(0) is 1.
    auto values(int layer) const { return state().store(layer).values(history_); }

    /// The mask [tokens, history]. Of float or half: 0 where visible, -infinity where hidden. Of bool: true where
    /// visible. It is the same for all layers. The first call of a pass writes it, in O(tokens * history); it stays
    /// valid until the next mask of this memory, and its address is fixed once `reserve` has sized it. A backend that
    /// writes masks has it in its own memory (enqueued; the host hands over one bit per cell), else it lies in host
    /// memory.
    template <class T = float>
    StridedView<const T, 2> mask() {
        constexpr MaskElement wanted = element_of<T>();
        auto& buffer = state().mask;
        const StridedView<T, 2> view = buffer.template reserve<T>(state().backend, tokens_, history_.count);
        if (written_ != wanted) {
            if (reserved_) {
                buffer.write_all_visible(state().backend, view);
            } else {
                buffer.write(state().backend, state().book, view);
            }
            written_ = wanted;
        }
        return view;
    }

    /// Keys, values and mask of one layer, for a structured binding.
    template <class T = float>
    auto get(int layer) {
        using Mask = StridedView<const T, 2>;
        return History<decltype(keys(layer)), decltype(values(layer)), Mask>{keys(layer), values(layer), mask<T>()};
    }

protected:
    ReadPass(State& state, std::int32_t tokens, CellRange history, bool reserved)
        : state_{&state}, tokens_{tokens}, history_{history}, reserved_{reserved} {
        state.pass_open = true;
    }
    ReadPass(ReadPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)},
          tokens_{other.tokens_},
          history_{other.history_},
          reserved_{other.reserved_},
          written_{other.written_} {}
    ~ReadPass() = default;

    State& state() const {
        CELLAR_EXPECTS(state_ != nullptr, "the pass is over, expected one that was neither committed nor dropped");
        return *state_;
    }

    bool is_over() const { return state_ == nullptr; }
    bool is_reserved() const { return reserved_; }

    /// Ends the pass; the bookkeeping is done.
    void close() noexcept {
        state_->pass_open = false;
        state_ = nullptr;
    }

private:
    enum class MaskElement { none, of_float, of_half, of_bool };

    template <class T>
    static constexpr MaskElement element_of() {
        static_assert(std::same_as<T, float> || std::same_as<T, half> || std::same_as<T, bool>,
                      "mask: a mask is of float, half or bool");
        if constexpr (std::same_as<T, float>) return MaskElement::of_float;
        if constexpr (std::same_as<T, half>) return MaskElement::of_half;
        return MaskElement::of_bool;
    }

    State* state_;
    std::int32_t tokens_;
    CellRange history_;
    bool reserved_;
    MaskElement written_ = MaskElement::none; // the element type of the mask in the buffer
};

} // namespace cellar
