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

struct SessionOptions {
    int sinks = 4;          ///< first tokens that stay when the text outgrows the context
    int check_interval = 1; ///< distance in tokens of the logits that `check` compares
};

/// Compares the logits with a memory to those without one.
struct Check {
    int positions = 0;     ///< compared
    int after_shift = 0;   ///< of these, reached after tokens were removed from the middle
    double difference = 0; ///< the largest; NaN if one of them is
    double scale = 0;      ///< the largest logit without a memory
    double bound = 0;      ///< the largest difference that rounding explains

    bool passed() const { return difference <= bound; }
};

/// A text that grows without limit through a memory. When the context is full, the session removes the older half of
/// the text except for the sinks. If the model has recurrent layers, which cannot forget the middle of a text, it feeds
/// the remaining text again.
class Session {
public:
    Session(Llama& model, TextMemory& memory, SessionOptions options = {});

    /// Feeds at least one token. Returns the logits after the last one, which are valid until the next call.
    const Matrix& feed(std::span<const int> tokens);

    /// How many tokens `try_out` accepts, at least one. If the context is full, one token makes room.
    int room() const { return std::max(1, std::min(limits().batch, limits().context - length_)); }

    /// Feeds tokens that `keep` may remove again. Returns a row of logits after each, which are valid until the next
    /// call.
    const Matrix& try_out(std::span<const int> tokens);

    /// Keeps the first `count` of the tokens that were tried last, at least one. Removes the others.
    void keep(int count);

    int shifts() const { return shifts_; }

    /// Computes the whole text again without a memory and compares the logits.
    Check check() const;

private:
    struct Probe {
        int token; // in the order of feeding
        bool shifted;
        RowVector logits;
    };

    const TextLimits& limits() const { return memory_.limits(); }

    void make_room();
    void start_again(std::span<const int> tokens);
    const Matrix& run(std::span<const int> tokens, std::span<const int> wanted);
    void record(const Eigen::Ref<const RowVector>& logits);

    Llama& model_;
    TextMemory& memory_;
    SessionOptions options_;
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
