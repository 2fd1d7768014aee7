// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "config.hpp"
#include "model.hpp"
#include "weights.hpp"

#include <Eigen/Core>

#include <span>
#include <vector>

namespace llama {

/// The same text without a cache: a list of what happened to it, and attention by definition over
/// all its tokens at once. What comes out is what a cache must give, up to rounding.
///
/// After a removal, the keys and values that a cache still holds were computed while the removed
/// tokens could be seen, and at other positions. So the tokens between two removals form an epoch,
/// with its own list of the tokens that were there and where they stood; a query looks at its own
/// epoch's list. That costs a forward pass over the whole text, removed tokens included, and the
/// result is exact.
class Reference final : public LayerMemory {
public:
    /// `capacity` and `rollback` are those of the memory which is compared: of sliding layers it keeps so many tokens
    /// more than the window, and if they fill the capacity it forgets nothing.
    Reference(const Config& config, int capacity, int rollback = 0);

    void append(std::span<const int> tokens);

    /// Takes the tokens at positions [begin, end) out; later ones move up. All of them, where there are recurrent
    /// layers.
    void remove(int begin, int end);

    /// All tokens that ever were, in the order in which they came.
    std::span<const int> tokens() const { return tokens_; }

    /// The last tokens, which came after the last removal, have never been.
    void take_back(int count);

    /// The tokens that were not removed, in their order.
    std::vector<int> text() const;

    /// The batch is `tokens()`.
    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override;

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override;

private:
    struct Present {
        int token;      // its place in tokens_
        bool forgotten; // it left the sliding window in an earlier epoch
    };

    struct Epoch {
        std::vector<Present> present; // by position
        int first = 0;                // the first position that was new in this epoch
    };

    void attend(LayerKind kind, const Epoch& epoch, const Matrix& queries, const Matrix& keys, const Matrix& values,
                Matrix& out) const;
    static Matrix rows(const Matrix& all, const Epoch& epoch);
    void hide(LayerKind kind, const Epoch& epoch, Matrix& weights) const;
    bool sees(LayerKind kind, const Epoch& epoch, Eigen::Index query, Eigen::Index key) const;

    Config config_;
    Rotary rotary_;
    int kept_; // tokens that a sliding layer keeps
    bool forgets_;
    std::vector<int> tokens_;
    std::vector<Epoch> epochs_;
};

} // namespace llama
