// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/fwd.hpp>
#include <cellar/reading.hpp>

#include <cstdint>
#include <utility>

namespace cellar {

/// What a decoder's batch reads of the inputs: each token those of its own sequence that stand at its position or
/// before. It takes no cells and stores nothing, so committing and dropping are the same.
///
/// The history of a batch whose sequences have no inputs is empty; a token that sees none hides all of it.
template <class State>
class [[nodiscard]] EncoderPass : public Reading<State> {
    using Base = Reading<State>;
    using Base::state;

public:
    EncoderPass(EncoderPass&&) noexcept = default;
    EncoderPass& operator=(EncoderPass&&) = delete;
    ~EncoderPass() { drop(); }

    /// Calls f(*this, layer): what works for a hybrid works for its members too.
    template <class F>
    decltype(auto) visit(int layer, F&& f) {
        state().store(layer); // checked
        return std::forward<F>(f)(*this, layer);
    }

    void commit() {
        expect_complete();
        finish();
    }

    void drop() noexcept {
        if (!Base::is_over()) finish();
    }

private:
    template <layout_policy, backend>
    friend class EncoderMemory;
    template <class, class...>
    friend class HybridPass;

    EncoderPass(State& the_state, std::int32_t count, CellRange history, bool reserved)
        : Base{the_state, count, history, reserved} {}

    void expect_complete() const { state(); }
    void finish() noexcept {
        if (!Base::is_reserved()) state().book.drop();
        Base::close();
    }
};

} // namespace cellar
