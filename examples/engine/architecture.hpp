// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "gguf_file.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

/// How the models of an architecture differ from the first Llama. Whether there are biases, the file says.
struct Architecture {
    std::string_view name;         ///< `general.architecture` of the file
    bool neox = true;              ///< rotary pairs i and i + dims / 2, else 2i and 2i + 1
    bool head_norms = false;       ///< queries and keys are normalised, head by head
    bool post_norms = false;       ///< so is what attention and the feed-forward network add
    bool gelu = false;             ///< in place of SiLU
    bool scaled_embedding = false; ///< by the root of the width
    bool scaled_queries = false;   ///< the scale of scores is multiplied into the queries
    int full_every = 1;            ///< each such layer sees all tokens, the others a window
    bool convolves = false;        ///< layers without heads of keys have a short convolution in place of attention
};

/// The rows of the table: architectures that the engine computes.
std::vector<std::string_view> architectures();

/// What a layer remembers: the newest inputs of a convolution, keys and values of a window, or of all tokens.
enum class LayerKind { convolution, sliding, full };

struct Rope {
    int dims = 0;
    float base = 10000;
    float scale = 1; ///< of positions
};

/// A model's numbers, from the metadata of its file.
struct Shape {
    Architecture architecture = {};
    int layers = 0;
    std::vector<LayerKind> kinds = {}; ///< of the layers
    int width = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int feed_forward = 0;
    int vocabulary = 0;
    int context = 0; ///< tokens that it was trained with
    int window = 0;  ///< tokens that a sliding layer sees
    int taps = 0;    ///< tokens that a convolution sees
    float epsilon = 0;
    float scale = 0; ///< of scores
    Rope full = {};
    Rope sliding = {};

    LayerKind kind(int layer) const { return kinds[static_cast<std::size_t>(layer)]; }
    int count(LayerKind wanted) const { return static_cast<int>(std::count(kinds.begin(), kinds.end(), wanted)); }
    const Rope& rope(int layer) const { return kind(layer) == LayerKind::full ? full : sliding; }
};

/// Throws `FileError` if the file has another architecture, or numbers that contradict each other.
Shape read_shape(const GgufFile& file);

} // namespace engine
