// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "gguf_file.hpp"
#include <cellar/models/run_time_description.hpp>

#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace engine {

/// How the models of an architecture differ from the first Llama, besides their memory. Whether there are biases, the
/// file says.
struct Architecture {
    std::string_view name;         ///< `general.architecture` of the file
    bool head_norms = false;       ///< queries and keys are normalised, head by head
    bool post_norms = false;       ///< so is what attention and the feed-forward network add
    bool gelu = false;             ///< in place of SiLU
    bool scaled_embedding = false; ///< by the root of the width
    bool scaled_queries = false;   ///< the scale of scores is multiplied into the queries
    const char* final_norm = "output_norm.weight";
};

/// The rows of the table: architectures that the engine computes.
std::vector<std::string_view> architectures();

using cellar::models::LayerDescription;
using cellar::models::LayerKind; // recurrent: a short convolution

/// A model's numbers, from the metadata of its file.
struct Shape {
    Architecture architecture = {};
    cellar::models::RunTimeDescription memory = {}; ///< what the layers store
    int width = 0;
    std::vector<int> feed_forward = {}; ///< of the layers
    int vocabulary = 0;
    float epsilon = 0;

    int layers() const { return static_cast<int>(memory.layers.size()); }
    const LayerDescription& layer(int i) const { return memory.layers[static_cast<std::size_t>(i)]; }

    /// Of a layer's scores, in which libllama's sum is the same to the last bit.
    float scale(int i) const {
        const double scale = layer(i).scale;
        return 1.0F / std::sqrt(static_cast<float>(1 / (scale * scale)));
    }
};

/// Throws `FileError` if the file has another architecture, or numbers that contradict each other.
Shape read_shape(const GgufFile& file);

} // namespace engine
