// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "model_folder.hpp"
#include <cellar/models/run_time_description.hpp>

#include <cmath>
#include <generate/weights.hpp>
#include <memory>
#include <string>

namespace folder {

/// What a layer remembers of a sequence, which its memory has.
struct Remembered {
    float* inputs = nullptr; ///< of its convolution, [taps - 1, channels]
    float* state = nullptr;  ///< of its recurrence, in the shape of the layer's description; null: it has none
};

/// A layer that remembers no keys.
class Recurrence {
public:
    virtual ~Recurrence() = default;
    /// Of x [tokens, hidden], the next tokens of the sequence, and the same shape. Updates what is remembered.
    virtual llama::Matrix forward(const llama::Matrix& x, const Remembered& remembered) const = 0;
};

/// ln(1 + e^x)
inline float softplus(float x) {
    return x > 20 ? x : std::log1p(std::exp(x));
}

/// Of each channel, over the inputs of a few tokens.
class Convolution {
public:
    /// Of the tensors whose names begin with `at`.
    Convolution(const ModelFolder& folder, const std::string& at, const cellar::models::StateDescription& inputs);

    /// Of x [tokens, channels], and the same shape. Updates the inputs that are remembered.
    llama::Matrix forward(const llama::Matrix& x, float* inputs) const;

private:
    llama::Matrix taps_;    // [taps, channels], that of the newest token last
    llama::RowVector bias_; // empty: none
};

/// The recurrent layer of LFM2, Jamba (Mamba, arXiv:2312.00752), Mamba 2, Granite 4 and Nemotron-H (Mamba 2,
/// arXiv:2405.21060) or Qwen3-Next (a gated delta net, arXiv:2412.06464) of the tensors whose names begin with `at`.
std::unique_ptr<const Recurrence> short_convolution(const ModelFolder& folder, const std::string& at,
                                                    const cellar::models::LayerDescription& layer);
std::unique_ptr<const Recurrence> mamba(const ModelFolder& folder, const std::string& at,
                                        const cellar::models::LayerDescription& layer, float epsilon);
std::unique_ptr<const Recurrence> mamba2(const ModelFolder& folder, const std::string& at,
                                         const cellar::models::LayerDescription& layer, float epsilon);
std::unique_ptr<const Recurrence> delta_net(const ModelFolder& folder, const std::string& at,
                                            const cellar::models::LayerDescription& layer, float epsilon);

} // namespace folder
