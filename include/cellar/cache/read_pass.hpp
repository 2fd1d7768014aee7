// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/detail/cache_state.hpp>
#include <cellar/element/half.hpp>
#include <cellar/memory/layer_name.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
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

    /// The keys of the history, in place: [history, kv_heads, key_dim]. The layout shows in the strides. Reading a
    /// layer of the batch before it was put is a violation.
    auto keys(int layer, const std::source_location& where = std::source_location::current()) const& {
        const detail::Caller caller{where};
        return readable("keys", layer).keys(history_);
    }

    /// The values of the history, in place: [history, kv_heads, value_dim]. The layout shows in the strides: with
    /// `PermutedV`, stride(0) is 1. Reading a layer of the batch before it was put is a violation.
    auto values(int layer, const std::source_location& where = std::source_location::current()) const& {
        const detail::Caller caller{where};
        return readable("values", layer).values(history_);
    }

    /// The cells that a token of the batch sees, as runs of neighbouring cells, in the order of memory. Cells are
    /// counted as in the whole cache; in the views of `keys` and `values`, cell c has index c - history().first. The
    /// same for all layers. The first call of a pass finds the runs of all its tokens. That costs, for each token,
    /// O(runs + words of 64 cells that they span + cells / 8192), and allocates if there are more runs than ever
    /// before. Later calls are O(1), and several threads may make them at once.
    std::span<const CellRange> visible(std::int32_t token,
                                       const std::source_location& where = std::source_location::current()) & {
        const detail::Caller caller{where};
        State& s = state();
        CELLAR_EXPECTS(token >= 0 && token < tokens_, "visible: token ", token, ", expected 0 to ", tokens_ - 1);
        if (reserved_) return {&history_, 1};
        if (!s.visible.known) s.find_visible();
        const auto i = static_cast<std::size_t>(token);
        const std::size_t begin = i == 0 ? 0 : s.visible.ends[i - 1];
        return std::span{s.visible.runs}.subspan(begin, s.visible.ends[i] - begin);
    }

    /// The mask [tokens, history]. Of float or half: 0 where visible, -infinity where hidden. Of bool: true where
    /// visible. It is the same for all layers. The first call of a pass writes it, in O(tokens * history); it stays
    /// valid until the next mask of this memory. The mask of a reserved pass sizes the buffer: afterwards, masks of
    /// this element type of at most as many tokens neither allocate nor change address. A backend that writes masks has
    /// it in its own memory (enqueued; the host hands over one bit per cell), else it lies in host memory.
    template <class T = float>
    StridedView<const T, 2> mask(const std::source_location& where = std::source_location::current()) & {
        const detail::Caller caller{where};
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
    auto get(int layer, const std::source_location& where = std::source_location::current()) & {
        const detail::Caller caller{where};
        using Mask = StridedView<const T, 2>;
        return History<decltype(keys(layer)), decltype(values(layer)), Mask>{keys(layer), values(layer), mask<T>()};
    }

    // A pass that is a temporary is dropped at the end of the line, and its views with it.
    void keys(int) const&& = delete;
    void values(int) const&& = delete;
    void visible(std::int32_t) && = delete;
    template <class T = float>
    void mask() && = delete;
    template <class T = float>
    void get(int) && = delete;

protected:
    /// `puts`: a layer must be put before it is read.
    ReadPass(State& state, std::int32_t tokens, CellRange history, bool reserved, bool puts)
        : state_{&state},
          tokens_{tokens},
          history_{history},
          reserved_{reserved},
          puts_{puts && !reserved && tokens > 0} {
        state.begin_pass();
    }
    ReadPass(ReadPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)},
          tokens_{other.tokens_},
          history_{other.history_},
          reserved_{other.reserved_},
          puts_{other.puts_},
          written_{other.written_},
          name_{other.name_} {}
    ~ReadPass() = default;

    State& state() const {
        CELLAR_EXPECTS(state_ != nullptr,
                       "the pass is over, expected one that was not committed, dropped or moved from");
        return *state_;
    }

    bool is_over() const { return state_ == nullptr; }
    bool is_reserved() const { return reserved_; }
    bool must_put() const { return puts_; }

    void expect_layer(const char* operation, int layer, const std::source_location& where) const {
        const detail::Caller caller{where};
        static_cast<void>(state().store_index(operation, layer));
    }

    /// The layer's store; checks the layer, and that it was put.
    const auto& readable(const char* operation, int layer) const {
        const std::size_t index = state().store_index(operation, layer);
        CELLAR_EXPECTS(!puts_ || state().put.contains(index), operation, ": ", name_(layer),
                       " was not put in this pass, expected a put before it is read");
        return state().stores[index];
    }

    /// Ends the pass; the bookkeeping is done.
    void close() noexcept {
        state_->pass_open = false;
        state_ = nullptr;
    }

    detail::LayerName& name() { return name_; }
    const detail::LayerName& name() const { return name_; }

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
    bool puts_;
    MaskElement written_ = MaskElement::none; // the element type of the mask in the buffer
    detail::LayerName name_;
};

} // namespace cellar
