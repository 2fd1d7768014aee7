// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "hybrid_memory.hpp"
#include <cellar/interop/ggml.hpp>

#include <memory>
#include <optional>

namespace engine {

/// Keys and values are tensors of ggml, whose own attention reads them with a mask. A graph serves the passes with as
/// many tokens and as long a history.
template <class Key, class Value = Key>
class FlashMemory final : public llama::TextsInMemory<HybridOf<cellar::StandardV<Key, Value>>, Memory> {
public:
    using Hybrid = HybridOf<cellar::StandardV<Key, Value>>;

    FlashMemory(const Shape& shape, const MemoryOptions& options)
        : Base{value_of(cellar::models::make_memory<Hybrid>(shape.memory, memory_limits(shape, options))),
               options.limits},
          shape_{shape},
          convolutions_{shape.layers()} {
        if (shape.memory.count(LayerKind::sliding) > 0) sliding_.emplace(this->memory().template member<Sliding>());
        if (shape.memory.count(LayerKind::full) > 0) full_.emplace(this->memory().template member<Full>());
    }

    std::unique_ptr<GraphAttention> attention(ggml_context* context) override {
        return std::make_unique<InGraph>(*this, context);
    }

    void fill(int text, int tokens) override {
        fill_randomly(this->memory(), shape_, this->limits().batch, text, tokens);
    }

private:
    using Base = llama::TextsInMemory<Hybrid, Memory>;
    using Pass = cellar::PassOf<Hybrid>;
    using Sliding = SlidingOf<cellar::StandardV<Key, Value>>;
    using Full = FullOf<cellar::StandardV<Key, Value>>;

    class InGraph final : public GraphAttention {
    public:
        InGraph(FlashMemory& memory, ggml_context* context) : memory_{memory} {
            if (memory_.sliding_) sliding_.emplace(context, memory_.pass().template of<Sliding>());
            if (memory_.full_) full_.emplace(context, memory_.pass().template of<Full>());
        }

        ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int layer, ggml_tensor* q, ggml_tensor* k,
                            ggml_tensor* v) override {
            const Shape& shape = memory_.shape_;
            const cellar::ggml::FlashOptions options{.scale =
                                                         shape.architecture.scaled_queries ? 1.0F : shape.scale(layer)};
            const LayerKind kind = shape.layer(layer).kind;
            int index = 0; // in its member
            for (int i = 0; i < layer; ++i) index += shape.layer(i).kind == kind ? 1 : 0;
            const bool is_full = kind == LayerKind::full;
            return (is_full ? full_ : sliding_)
                ->attend(context, graph, is_full ? *memory_.full_ : *memory_.sliding_, index, q, k, v, options);
        }

        bool fits() const override {
            return (!sliding_ || sliding_->fits(memory_.pass().template of<Sliding>()))
                   && (!full_ || full_->fits(memory_.pass().template of<Full>()));
        }

        ggml_tensor* convolve(ggml_context* context, int layer, ggml_tensor* x, ggml_tensor* kernel) override {
            return memory_.convolutions_.node(context, layer, x, kernel);
        }

        ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) override {
            auto& pass = memory_.pass();
            if (sliding_) sliding_->set(pass.template of<Sliding>());
            if (full_) full_->set(pass.template of<Full>());
            const auto compute_graph = [&] { return ggml_backend_graph_compute(backend, graph); };
            const ggml_status status = memory_.convolutions_.compute(pass, compute_graph);
            if (sliding_) memory_.sliding_->mark_put(pass.template of<Sliding>());
            if (full_) memory_.full_->mark_put(pass.template of<Full>());
            return status;
        }

    private:
        FlashMemory& memory_;
        std::optional<cellar::ggml::PassInputs> sliding_;
        std::optional<cellar::ggml::PassInputs> full_;
    };

    Shape shape_;
    Convolutions<Pass> convolutions_;
    std::optional<cellar::ggml::Tensors> sliding_;
    std::optional<cellar::ggml::Tensors> full_;
};

} // namespace engine
