// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/view.hpp>

#include <cstdint>
#include <span>

namespace cellar {

/// How `attend` weighs what a token sees, and what else it writes.
struct AttentionOptions {
    /// Scores are scale * (query · key). 0: 1 / sqrt(key_dim).
    float scale = 0;
    /// Scores become soft_cap * tanh(score / soft_cap), as in Gemma 2. 0: they stay.
    float soft_cap = 0;
    /// One for each query head: a score falls by slope * |position of the query - position of the key| (ALiBi,
    /// arXiv:2108.12409). Empty: none.
    std::span<const float> slopes{};
    /// One for each query head: a score that takes part in the softmax and has no value, as in gpt-oss. Empty, or
    /// -infinity: none.
    std::span<const float> sinks{};
    /// Sequences that share the cells of a prefix (`copy_prefix`, snapshots) read these once for all their queries, if
    /// each has few. Faster, but the last bits of a result then depend on which sequences share cells in a batch. Only
    /// on a host.
    bool reads_shared_once = false;
    /// Queries are not rounded for keys in fewer bits: keys are unpacked first, which takes about twice as long.
    /// docs/how-to/compute-attention.md says what rounding changes. Devices round no queries.
    bool exact_queries = false;
    /// Where the logarithm of the sum of exp(score) goes, [tokens, heads], learned sinks included; -infinity where
    /// there is no score. `merge_attention` needs it. It lies where the results do. Null: nowhere.
    StridedView<float, 2> log_sum_exp{};
};

/// The threads that `attend` works with: the calling one. For others, give it an object with the same functions.
struct CallingThread {
    /// How many may work at once. The same number during a call of `attend`.
    static int count() { return 1; }
    /// Calls f(0), and may call f(1) to f(count() - 1), each once at most, on any threads and in any order. These may
    /// come late or be left out: the calls take the work from a common counter, so those that come do it all. Returns
    /// when every call that was made has returned; none is made later. So it need not wait for a busy thread.
    template <class F>
    void run(F&& f) const {
        f(0);
    }
};

} // namespace cellar
