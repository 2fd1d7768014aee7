// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/cache/read_pass.hpp>

#include <cstdint>
#include <utility>

namespace cellar {

/// Reads an encoder's inputs for a decoder's batch: each token sees the inputs of its own sequence at its position or
/// before. The pass takes no cells and stores nothing, so committing and dropping are the same.
///
/// The history is empty if no token of the batch sees an input. For a token that sees none, all of it is hidden.
template <class Memory>
class [[nodiscard]] EncoderPass : public ReadPass<Memory> {
    using Base = ReadPass<Memory>;
    using State = typename Base::State;
    using Base::state;

public:
    EncoderPass(EncoderPass&&) noexcept = default;
    EncoderPass& operator=(EncoderPass&&) = delete;
    ~EncoderPass() { drop(); }

    /// Calls f(*this, layer), so that code for a hybrid's passes also works here.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        Base::expect_layer("visit", layer, where);
        return std::forward<F>(f)(*this, layer);
    }

    /// Ends the pass. Nothing was stored, so nothing is kept.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_own_pass(Base::name(), "commit");
        expect_complete();
        finish_commit();
    }

    /// The same; allowed for a pass that is over.
    void drop() noexcept {
        if (!Base::is_over()) finish_commit();
    }

    /// The two phases of `commit`: see `TwoPhaseMemory`.
    void expect_complete() const {
        state();
        Base::expect_plans_taken();
    }
    void finish_commit() noexcept {
        if (!state().pass.reserved) state().book.drop();
        Base::close();
    }

    /// For cellar itself.
    EncoderPass(State& the_state, std::int32_t count, CellRange history, bool reserved)
        : Base{the_state, count, history, reserved, false} {}
};

} // namespace cellar
