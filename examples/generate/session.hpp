// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "model.hpp"
#include "reference.hpp"
#include "weights.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <span>
#include <vector>

namespace llama {

struct SessionLimits {
    int context = 0;    ///< tokens that the text may have in memory
    int batch = 64;     ///< most tokens of one forward pass
    int keep = 4;       ///< first tokens that stay when the text outgrows the context
    int keep_every = 1; ///< `check` looks at a token in so many
    int rollback = 0;   ///< most tokens that `keep` takes back; the memory must be made for it
};

/// Logits with the cache against those without it.
struct Check {
    int positions = 0;     ///< compared
    int after_shift = 0;   ///< of these, reached after the text had been shifted
    double difference = 0; ///< largest of all logits; NaN if one of them is
    double scale = 0;      ///< largest logit without the cache
    double bound = 0;      ///< the difference that rounding explains

    bool passed() const { return difference <= bound; }
};

/// A text that grows through a memory, however long it becomes: when the context is full, the older
/// half of it goes, but for the first tokens, and the rest moves up; or is fed again, where the model
/// has recurrent layers, which cannot forget what is in the middle.
class Session {
public:
    Session(Llama& model, TextMemory& memory, SessionLimits limits);

    /// The logits that follow the last of `tokens`, of which there is at least one; valid until the next call.
    const Matrix& feed(std::span<const int> tokens);

    /// How many tokens may be tried, at least one. Where the context is full, that one makes room.
    int room() const { return std::max(1, std::min(limits_.batch, limits_.context - length_)); }

    /// Feeds tokens of which some may have to go again: a row of logits after each of them, valid until the next call.
    const Matrix& try_out(std::span<const int> tokens);

    /// Of the tokens tried last the first `count` stay, at least one; the rest is as if it had never been.
    void keep(int count);

    int shifts() const { return shifts_; }

    /// Computes the whole text again without a cache and compares the logits that were kept.
    Check check() const;

private:
    struct Probe {
        int token; // in the order of feeding
        bool shifted;
        RowVector logits;
    };

    void make_room();
    void begin_anew(std::span<const int> tokens);
    const Matrix& pass(std::span<const int> tokens, std::span<const int> wanted);
    void keep_for_check(const Eigen::Ref<const RowVector>& logits);

    Llama& model_;
    TextMemory& memory_;
    SessionLimits limits_;
    Reference reference_;
    int length_ = 0; // tokens in memory, and the position of the next one
    int shifts_ = 0;
    int last_probe_ = 0;
    bool probe_next_ = true;
    std::vector<Probe> probes_;
    std::vector<int> wanted_;
    Matrix tried_; // the logits of `try_out`
};

} // namespace llama
