// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "model.hpp"
#include "reference.hpp"
#include "weights.hpp"

#include <span>
#include <vector>

namespace llama {

struct SessionLimits {
    int context = 0;    ///< tokens that the text may have in memory
    int batch = 64;     ///< most tokens of one forward pass
    int keep = 4;       ///< first tokens that stay when the text outgrows the context
    int keep_every = 1; ///< `check` looks at a token in so many
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

/// A text that grows through a cache, however long it becomes: when the context is full, the older
/// half of it goes, but for the first tokens, and the rest moves up.
class Session {
public:
    Session(Llama& model, TextMemory& memory, SessionLimits limits);

    /// The logits that follow the last of `tokens`, of which there is at least one; valid until the next call.
    const Matrix& feed(std::span<const int> tokens);

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
    const Matrix& pass(std::span<const int> tokens);
    void keep_for_check(const Matrix& logits);

    Llama& model_;
    TextMemory& memory_;
    SessionLimits limits_;
    Reference reference_;
    int length_ = 0; // tokens in memory, and the position of the next one
    int shifts_ = 0;
    int last_probe_ = 0;
    bool probe_next_ = true;
    std::vector<Probe> probes_;
};

} // namespace llama
