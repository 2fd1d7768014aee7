// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <ggml.h>
#include <memory>
#include <string>
#include <vector>

namespace engine {

/// What a format makes of keys and values: stored in it, and read again at once. So attention over a memory of floats
/// has the values that one in this format would have. Formats may be one for each side.
class Rounding {
public:
    /// Names of formats of cellar, also after "hadamard64." and "hadamard128."; "float" changes nothing, and "nvfp4" is
    /// encoded with four over six. Throws if there is no such format.
    Rounding(const std::string& keys, const std::string& values);
    Rounding(const Rounding&) = delete;
    Rounding& operator=(const Rounding&) = delete;
    ~Rounding();

    /// Nodes for [head_dim, kv_heads, tokens]. Throws if a head has no multiple of the values that the format needs.
    ggml_tensor* keys(ggml_context* context, ggml_tensor* k);
    ggml_tensor* values(ggml_context* context, ggml_tensor* v);

    /// So far: the root of the mean square of the errors, relative to that of the values.
    double key_error() const;
    double value_error() const;

    /// Of keys and values together.
    double bits_a_value() const;

    static std::vector<std::string> formats();

private:
    struct Side;
    std::unique_ptr<Side> keys_;
    std::unique_ptr<Side> values_;
};

} // namespace engine
