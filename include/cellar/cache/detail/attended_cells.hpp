// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/attention_work.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/shift/shift.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::detail {

/// An open pass as `attend` sees it: the model of `AttentionSource`. `attend` reaches nothing else of a memory.
template <class State>
class AttendedCells {
public:
    using Backend = typename State::Backend;

    AttendedCells(State& state, std::int32_t tokens) : state_{&state}, tokens_{tokens} {}

    std::int32_t tokens() const { return tokens_; }
    bool is_reserved() const { return state_->pass.reserved; }
    Positions positions() const { return state_->limits.positions; }
    std::int32_t sinks() const { return state_->book.window().sinks(); }

    Sequence sequence(std::int32_t token) const { return pass().sequences[index(token)]; }
    Position position(std::int32_t token) const { return pass().positions[index(token)]; }
    VisibleRange visible(std::int32_t token) const {
        return {token, position(token).value, state_->book.visible_from(index(token)).value,
                state_->book.visible_to(index(token)).value};
    }
    const auto& runs(Sequence s) const { return state_->book.table().record(s).runs; }
    template <class Visit>
    void for_each_visible_row(Visit visit) {
        state_->book.for_each_visible_row(visit);
    }

    /// Those of a tree of drafts, or none.
    std::span<const std::int32_t> parents() const { return {pass().parents.data(), pass().parents.size()}; }
    std::span<const Cell> cells() const { return {pass().cells.data(), pass().cells.size()}; }
    std::int32_t token_in(std::size_t i) const { return static_cast<std::int32_t>(pass().token_in(i)); }

    const LayerShape& shape(int layer) const { return state_->layer_shape(layer); }
    RowFactors factors(int layer) const { return store(layer).factors(); }
    const auto& keys(int layer) const { return store(layer).read_keys(); }
    const auto& values(int layer) const { return store(layer).read_values(); }

    /// The angles by which keys are rotated as they are read, where they are stored without positions.
    const auto& angles(int layer) const requires(rotates_on_read<typename State::Shift>) {
        return state_->shift.angles(state_->stores.owner(state_->stores.index_of(layer)));
    }

    Backend& backend() { return state_->backend; }
    auto& memory() { return state_->scratch.attention; }
    const void* shown_by() const { return &state_->scratch.attention; }

private:
    static std::size_t index(std::int32_t token) { return static_cast<std::size_t>(token); }
    const auto& pass() const { return state_->book.pass(); }
    const auto& store(int layer) const { return state_->stores[state_->stores.index_of(layer)]; }

    State* state_;
    std::int32_t tokens_;
};

} // namespace cellar::detail
