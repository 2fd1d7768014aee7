// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cellar_test {

/// [tokens, heads, dim], row-major.
struct Rows {
    std::int64_t tokens = 0;
    std::int64_t heads = 0;
    std::int64_t dim = 0;
    std::vector<float> values;

    std::int64_t row() const { return heads * dim; }
    const float* at(std::int64_t token, std::int64_t head = 0) const {
        return values.data() + (token * heads + head) * dim;
    }
    void append(const Rows& more);
    void append_row(const Rows& from, std::int64_t token);
};

/// What a layer's attention was given for a sequence, and what it returned.
struct Attention {
    Rows q, k, v, out;
};

struct LayerRecord {
    int heads;
    int kv_heads;
    int key_dim;
    int value_dim;
    float scale;
    float soft_cap;           ///< 0: none
    int window;               ///< 0: full
    std::vector<float> sinks; ///< may be empty
};

/// A model of tests/conformance/transformers, all steps of a sequence joined.
struct Recording {
    std::vector<LayerRecord> layers;
    std::vector<std::vector<Attention>> sequences; ///< [sequence][layer]

    int tokens(std::size_t sequence) const { return static_cast<int>(sequences[sequence][0].q.tokens); }
};

Recording read_recording(const std::string& model);

} // namespace cellar_test
