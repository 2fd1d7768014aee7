// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "hybrid_memory.hpp"
#include <cellar/interop/ggml.hpp>

#include <memory>

namespace engine {

/// `cellar::attend` is an operation of the graph. One graph serves all passes of as many tokens.
template <class TheHybrid>
class AttendMemory final : public llama::TextsInMemory<TheHybrid, Memory> {
public:
    using Hybrid = TheHybrid;

    AttendMemory(const Shape& shape, const MemoryOptions& options)
        : Base{value_of(cellar::models::make_memory<Hybrid>(shape.memory, memory_limits(shape, options))),
               options.limits},
          shape_{shape},
          attention_{shape.layers()},
          convolutions_{shape.layers()} {
        for (int layer = 0; layer < shape.layers(); ++layer)
            if (shape.layer(layer).kind != LayerKind::recurrent)
                attention_.set_options(layer, {.scale = shape.architecture.scaled_queries ? 1.0F : shape.scale(layer)});
    }

    std::unique_ptr<GraphAttention> attention(ggml_context*) override { return std::make_unique<InGraph>(*this); }

    MemoryTimes times() const override {
        const auto times = attention_.times();
        return {times.put, times.attend};
    }

    void fill(int text, int tokens) override {
        fill_randomly(this->memory(), shape_, this->limits().batch, text, tokens);
    }

private:
    class InGraph final : public GraphAttention {
    public:
        explicit InGraph(AttendMemory& memory) : memory_{memory} {}

        ggml_tensor* attend(ggml_context* context, ggml_cgraph*, int layer, ggml_tensor* q, ggml_tensor* k,
                            ggml_tensor* v) override {
            ggml_tensor* const out = memory_.attention_.attend(context, layer, q, k, v);
            return ggml_reshape_2d(context, out, out->ne[0] * out->ne[1], out->ne[2]);
        }
        ggml_tensor* convolve(ggml_context* context, int layer, ggml_tensor* x, ggml_tensor* kernel) override {
            return memory_.convolutions_.node(context, layer, x, kernel);
        }
        bool fits() const override { return true; }
        ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) override {
            return memory_.convolutions_.compute(
                memory_.pass(), [&] { return memory_.attention_.compute(memory_.pass(), backend, graph); });
        }

    private:
        AttendMemory& memory_;
    };

    using Base = llama::TextsInMemory<Hybrid, Memory>;
    using Pass = cellar::PassOf<Hybrid>;

    Shape shape_;
    cellar::ggml::Attention<Pass> attention_;
    Convolutions<Pass> convolutions_;
};

} // namespace engine
