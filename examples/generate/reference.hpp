// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arithmetic.hpp"
#include "config.hpp"
#include "memory.hpp"
#include "weights.hpp"

#include <Eigen/Core>

#include <span>
#include <vector>

namespace llama {

/// Computes a text without a cache: records what happened to the text, then attends to all of its tokens at once, by
/// definition. A memory must give the same logits, up to rounding.
///
/// After a removal, a cache still holds keys and values that were computed when the removed tokens were visible, and at
/// other positions. Therefore each removal starts an epoch, which lists the tokens that were present and their
/// positions. A token attends to the list of its own epoch. One forward pass over the whole text, removed tokens
/// included, is then exact.
class Reference final : public LayerMemory {
public:
    /// `limits` are those of the memory that is compared. A sliding layer keeps the window and the rollback. If these
    /// fill the context, it forgets nothing.
    Reference(const Config& config, const TextLimits& limits);

    void append(std::span<const int> tokens);

    /// Removes positions [begin, end). Later tokens move down. With recurrent layers, removes all positions.
    void remove(int begin, int end);

    /// Deletes the newest tokens, as if they had never been appended. They must be newer than the last removal.
    void undo(int count);

    /// All tokens that were ever appended, in their order, removed ones included.
    std::span<const int> tokens() const { return tokens_; }

    /// The tokens that were not removed, in their order.
    std::vector<int> text() const;

    /// The batch must be `tokens()`.
    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override;

    void recur(int layer, const RecurrenceWeights& w, Matrix& x) override;

private:
    struct Present {
        int token;      // index into tokens_
        bool forgotten; // it left the sliding window in an earlier epoch
    };

    struct Epoch {
        std::vector<Present> present; // by position
        int first = 0;                // the first position that is new in this epoch
    };

    void attend(LayerKind kind, const Epoch& epoch, const Matrix& queries, const Matrix& keys, const Matrix& values,
                Matrix& out) const;
    static Matrix rows(const Matrix& all, const Epoch& epoch);
    /// The weights' first row is that of position `query`, their first column that of position `key`.
    void hide(LayerKind kind, const Epoch& epoch, Eigen::Index query, Eigen::Index key, Matrix& weights) const;
    bool sees(LayerKind kind, const Epoch& epoch, Eigen::Index query, Eigen::Index key) const;

    Config config_;
    Rotary rotary_;
    int kept_; // tokens that a sliding layer keeps
    bool forgets_;
    std::vector<int> tokens_;
    std::vector<Epoch> epochs_;
};

} // namespace llama
