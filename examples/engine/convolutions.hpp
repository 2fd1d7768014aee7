// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cellar.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <ggml.h>
#include <utility>
#include <vector>

namespace engine {

/// The state of a layer with a short convolution: its newest inputs, the oldest first, [taps - 1, width].
struct RecentInputs : cellar::StateTensor<2> {};

/// Short convolutions (LFM2) as nodes of graphs, one for each such layer. Their states are in a recurrent member of the
/// memory. `Pass` is that of a hybrid. The nodes point to this object.
template <class Pass>
class Convolutions {
public:
    explicit Convolutions(int layers) : layers_(static_cast<std::size_t>(layers)) {
        for (Layer& layer : layers_) layer = {this, static_cast<int>(&layer - layers_.data())};
    }
    Convolutions(const Convolutions&) = delete;
    Convolutions& operator=(const Convolutions&) = delete;

    /// Of x [3 * width, tokens], which has gates for the inputs, gates for the outputs, and inputs; kernel [taps,
    /// width]. The result is [width, tokens].
    ggml_tensor* node(ggml_context* context, int layer, ggml_tensor* x, ggml_tensor* kernel) {
        ggml_tensor* sources[] = {x, kernel};
        return ggml_custom_4d(context, GGML_TYPE_F32, kernel->ne[1], x->ne[1], 1, 1, sources, 2, &run, 1,
                              &layers_[static_cast<std::size_t>(layer)]);
    }

    /// Calls compute(), which computes a graph, over the open pass, and throws what its nodes threw.
    template <class F>
    ggml_status compute(Pass& pass, F compute) {
        pass_ = &pass;
        thrown_ = nullptr;
        const ggml_status status = compute();
        if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
        return status;
    }

private:
    struct Layer {
        Convolutions* owner = nullptr;
        int index = 0;
    };

    // Called from C: nothing may be thrown.
    static void run(ggml_tensor* node, int ith, int, void* userdata) noexcept {
        const Layer& layer = *static_cast<const Layer*>(userdata);
        if (ith == 0) layer.owner->work(layer.index, *node);
    }

    void work(int layer, ggml_tensor& node) noexcept {
        std::memset(node.data, 0, ggml_nbytes(&node));
        if (thrown_ != nullptr) return;
        try {
            pass_->visit(layer, [&](auto& own, int index) {
                if constexpr (requires { own.micro_batches(); }) {
                    for (const cellar::MicroBatch& micro_batch : own.micro_batches()) {
                        const auto state = own.template get<RecentInputs>(index, micro_batch);
                        for (int i = 0; i < micro_batch.sequences(); ++i)
                            for (const int token : micro_batch.tokens(i)) convolve(&state(i, 0, 0), token, node);
                        own.put(index, micro_batch);
                    }
                }
            });
        } catch (...) {
            thrown_ = std::current_exception();
        }
    }

    static void convolve(float* state, int token, ggml_tensor& node) {
        const auto width = static_cast<std::size_t>(node.ne[0]);
        const auto taps = static_cast<std::size_t>(node.src[1]->ne[0]);
        const float* const gates = static_cast<const float*>(node.src[0]->data) + std::size_t(token) * 3 * width;
        const float* kernel = static_cast<const float*>(node.src[1]->data);
        float* const out = static_cast<float*>(node.data) + std::size_t(token) * width;
        for (std::size_t channel = 0; channel < width; ++channel, kernel += taps) {
            float sum = 0;
            for (std::size_t tap = 0; tap + 1 < taps; ++tap)
                sum = std::fma(state[tap * width + channel], kernel[tap], sum);
            out[channel] = gates[width + channel] * std::fma(input(gates, width, channel), kernel[taps - 1], sum);
        }
        std::memmove(state, state + width, (taps - 2) * width * sizeof *state);
        for (std::size_t channel = 0; channel < width; ++channel)
            state[(taps - 2) * width + channel] = input(gates, width, channel);
    }

    static float input(const float* gates, std::size_t width, std::size_t channel) {
        return gates[channel] * gates[2 * width + channel];
    }

    std::vector<Layer> layers_; // whose addresses nodes have
    Pass* pass_ = nullptr;
    std::exception_ptr thrown_;
};

} // namespace engine
