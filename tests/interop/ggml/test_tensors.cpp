// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// ggml's own attention over the memory of a cache: every bit is libllama's.
#include "../../files/folder.hpp"
#include "../../violations.hpp"
#include "graph.hpp"
#include "processor.hpp"
#include "random_model.hpp"
#include "traffic.hpp"
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/interop/ggml.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_tensors {

using namespace cellar;
using namespace ggml_test;
using cellar::ggml::PassInputs;
using cellar::ggml::Tensors;

namespace {

using Full = Cache<StandardV<half>>;
using Sliding = Cache<StandardV<half>, SlidingWindow<>>;
using Both = Hybrid<RunTimePattern, Sliding, Full>;

// As libllama: histories from the first cell on, to a multiple of 256; tokens in the lowest free cells.
constexpr CacheLimits limits{
    .sequences = 4, .cells = 512, .batch = 256, .padding = 256, .start_padding = 0, .placement = Placement::scattered};

/// A model over a memory, with ggml's attention.
template <class Memory>
class Flash {
public:
    Flash(const RandomModel& model, Memory the_memory, int threads = 1)
        : model_{model}, processor_{threads}, memory{std::move(the_memory)} {
        if constexpr (std::is_same_v<Memory, Both>) {
            tensors_.emplace_back(memory.template member<Sliding>());
            tensors_.emplace_back(memory.template member<Full>());
        } else {
            tensors_.emplace_back(memory);
        }
    }

    std::vector<float> decode(const Text& batch) {
        auto pass = memory.begin(tokens_of(batch)).value();
        Made& made = graph_for(pass);
        const std::vector<float> logits = made.graph->compute(batch, [&](ggml_cgraph* graph) {
            for_each(pass, [&](std::size_t member, auto& own) { made.inputs[member].set(own); });
            REQUIRE(ggml_backend_graph_compute(processor_.backend(), graph) == GGML_STATUS_SUCCESS);
        });
        for_each(pass, [&](std::size_t member, auto& own) { tensors_[member].mark_put(own); });
        pass.commit();
        return logits;
    }
    void copy(int from, int to, int length) {
        memory.copy_prefix(Sequence{from}, Sequence{to}, Position{length}).value();
    }

    std::size_t graphs() const { return made_.size(); }

private:
    struct Made {
        std::vector<PassInputs> inputs; // of each member
        std::optional<Graph> graph;
    };

    /// Calls f(index, its pass) for each cache.
    static void for_each(PassOf<Memory>& pass, auto f) {
        if constexpr (std::is_same_v<Memory, Both>) {
            f(0, pass.template of<Sliding>());
            f(1, pass.template of<Full>());
        } else {
            f(0, pass);
        }
    }

    LayerPlace place(int layer) const {
        if constexpr (std::is_same_v<Memory, Both>) return memory.place(layer);
        return {0, layer};
    }

    Made& graph_for(PassOf<Memory>& pass) {
        for (Made& made : made_) {
            bool fits = true;
            for_each(pass, [&](std::size_t member, auto& own) { fits = fits && made.inputs[member].fits(own); });
            if (fits) return made;
        }
        Made& made = made_.emplace_back();
        made.graph.emplace(
            model_, pass.tokens(),
            [&](ggml_context* c, ggml_cgraph* graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
                if (made.inputs.empty())
                    for_each(pass, [&](std::size_t, auto& own) { made.inputs.emplace_back(c, own); });
                const auto member = static_cast<std::size_t>(place(layer).member);
                return made.inputs[member].attend(c, graph, tensors_[member], place(layer).layer, q, k, v,
                                                  {.scale = scale_of(model_)});
            });
        return made;
    }

    const RandomModel& model_;
    std::vector<Tensors> tensors_; // of each member
    std::list<Made> made_;
    Processor processor_;

public:
    Memory memory;
};

Full full_memory(const RandomModel& model) {
    if (model.architecture() == "deepseek2")
        return {{.layers = model.layers(), .kv_heads = 1, .head_dim = latent + rotary, .value_dim = 0}, limits};
    return {{.layers = model.layers(), .kv_heads = kv_heads, .head_dim = head_dim}, limits};
}
Both both_memory(const RandomModel& model) {
    std::vector<int> members;
    for (int layer = 0; layer < model.layers(); ++layer) members.push_back(slides(model, layer) ? 0 : 1);
    const int sliding = static_cast<int>(std::count(members.begin(), members.end(), 0));
    return Both{members,
                Sliding{{.layers = sliding, .kv_heads = kv_heads, .head_dim = head_dim},
                        limits,
                        SlidingWindow<>{window, {.retention = 256}}},
                Full{{.layers = model.layers() - sliding, .kv_heads = kv_heads, .head_dim = head_dim}, limits}};
}

template <class Memory>
void check_beside_llama(const RandomModel& model, Memory memory, int threads = 1) {
    Llama llama{model, {.threads = threads}};
    Flash<Memory> flash{model, std::move(memory), threads};
    const auto copy = [&](int from, int to, int length) {
        llama.copy(from, to, length);
        flash.copy(from, to, length);
    };
    traffic(copy, [&](const Text& batch) { CHECK(flash.decode(batch) == llama.decode(batch)); });
    CHECK(flash.graphs() == 4); // for 40, 1, 13 and 3 tokens
}

} // namespace

TEST_CASE("with ggml's attention, every bit of the logits is libllama's: Llama") {
    const RandomModel model{"llama", 4};
    for (const int threads : {1, 2}) check_beside_llama(model, full_memory(model), threads);
}
TEST_CASE("with ggml's attention, every bit of the logits is libllama's: Gemma 3 with its two windows, a hybrid") {
    const RandomModel model{"gemma3", 7};
    check_beside_llama(model, both_memory(model));
}
TEST_CASE("with ggml's attention, every bit of the logits is libllama's: DeepSeek 2, with latent keys alone") {
    const RandomModel model{"deepseek2", 3};
    check_beside_llama(model, full_memory(model));
}

TEST_CASE("a sequence that was saved and loaded goes on with libllama's bits") {
    const RandomModel model{"llama", 4};
    Llama llama{model};
    const Folder folder;
    const auto path = folder.path / "sequence.safetensors";
    {
        Flash<Full> first{model, full_memory(model)};
        CHECK(first.decode(text(0, 0, 40)) == llama.decode(text(0, 0, 40)));
        REQUIRE(save(path, first.memory, Sequence{0}));
    }
    Flash<Full> second{model, full_memory(model)};
    REQUIRE(load(path, second.memory, Sequence{0}));
    for (int i = 0; i < 3; ++i) CHECK(second.decode(text(0, 40 + i, 1)) == llama.decode(text(0, 40 + i, 1)));
}

TEST_CASE("a cache over tensors of ggml's gives the same bits") {
    const RandomModel model{"llama", 4};
    const ggml_context_ptr context{ggml_init({16 * ggml_tensor_overhead(), nullptr, true})};
    std::vector<ggml_tensor*> tensors;
    for (int i = 0; i < 2 * model.layers(); ++i)
        tensors.push_back(ggml_new_tensor_2d(context.get(), GGML_TYPE_F16, kv_heads * head_dim, limits.cells));
    const ggml_backend_buffer_ptr buffer{
        ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type())};
    std::vector<LayerMemory> memory;
    for (std::size_t i = 0; i < tensors.size(); i += 2)
        memory.push_back(cellar::ggml::layer_memory<half>(*tensors[i], tensors[i + 1]));
    check_beside_llama(model,
                       Full{{.layers = model.layers(), .kv_heads = kv_heads, .head_dim = head_dim}, limits, memory});
    const auto* const first = static_cast<const std::uint16_t*>(tensors[0]->data);
    CHECK(std::any_of(first, first + kv_heads * head_dim, [](std::uint16_t bits) { return bits != 0; }));
}

TEST_CASE("tensors over a cache have its addresses, types and names, and layers that share memory have one") {
    Cache<StandardV<half, bfloat16>> cache{CacheShape{.each_layer = {{2, 8, 4}, {2, 8, 4, 0}, {1, 8, 0}}}, limits};
    const Tensors tensors{cache};
    const auto rows = cache.rows(0);
    CHECK(tensors.keys(0)->data == rows.keys.pointer);
    CHECK(tensors.values(0)->data == rows.values.pointer);
    CHECK(tensors.keys(0)->type == GGML_TYPE_F16);
    CHECK(tensors.values(0)->type == GGML_TYPE_BF16);
    CHECK(tensors.keys(0)->ne[0] == 16);
    CHECK(tensors.values(0)->ne[0] == 8);
    CHECK(tensors.values(0)->ne[1] == cache.cells());
    CHECK(std::string{tensors.keys(2)->name} == "keys of layer 2");
    CHECK(tensors.keys(1) == tensors.keys(0));
    CHECK(tensors.values(2) == nullptr);
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    tensors.mark_put(pass);
    CHECK(pass.first_missing() == -1);
}

TEST_CASE("tensors and passes that do not fit are violations") {
    Full growing{{.layers = 1, .kv_heads = kv_heads, .head_dim = head_dim},
                 {.cells = 512, .initial_cells = 256, .batch = 8}};
    CHECK(violation_of([&] { const Tensors tensors{growing}; })
          == "Tensors: 256 of 512 cells have memory, expected all: no initial_cells");

    const std::vector<float> ones(kv_heads * 32, 1.0F);
    Cache<StandardV<q8_0>> divided{{.layers = 1, .kv_heads = kv_heads, .head_dim = 32, .factors = {{ones, ones}}},
                                   limits};
    CHECK(violation_of([&] { const Tensors tensors{divided}; })
          == "Tensors: the cache has factors of channels, expected none: ggml does not multiply by them");

    Full cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = head_dim}, limits};
    const ggml_context_ptr context{ggml_init({64 * ggml_tensor_overhead(), nullptr, true})};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    const PassInputs inputs{context.get(), pass};
    CHECK(violation_of([&] { inputs.set(pass); })
          == "set: the tensor 'mask' has no memory, expected a graph that was allocated");
    pass.drop();
    auto longer = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 4}).value();
    CHECK(!inputs.fits(longer));
    CHECK(violation_of([&] { inputs.set(longer); })
          == "set: a pass of 4 tokens with 256 cells from 0 on, expected 3 with 256 from 0 on, as the graph was made "
             "for");
    longer.drop();
    auto prompt = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 256}).value();
    prompt.mark_put(0);
    prompt.commit();
    const auto later = cache.begin(BatchBuilder{Sequence{0}, Position{256}, 3}).value();
    CHECK(later.history() == CellRange{0, 512});
    CHECK(!inputs.fits(later));

    ggml_tensor* const floats = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, 4, 2, 3);
    ggml_set_name(floats, "floats");
    CHECK(violation_of([&] { cellar::ggml::rows<half>(*floats); })
          == "rows: the tensor 'floats' is of type f32, expected f16");
    CHECK(violation_of([&] { cellar::ggml::rows<float>(*floats); })
          == "rows: the tensor 'floats' has no memory of the host, expected a tensor that was allocated there");
    CHECK(violation_of([&] { cellar::ggml::layer_memory<half>(*floats, nullptr); })
          == "layer_memory: the tensor 'floats' is of type f32, expected f16");
    std::vector<float> memory(24);
    floats->data = memory.data();
    const auto rows = cellar::ggml::rows<float>(*ggml_permute(context.get(), floats, 0, 2, 1, 3));
    CHECK(rows.extent(0) == 2); // [tokens, heads, dim]: the extents of ggml in the other order
    CHECK(rows.extent(1) == 3);
    CHECK(rows.extent(2) == 4);
    CHECK(rows.stride(0) == 4);
    CHECK(rows.stride(1) == 8);
    CHECK(rows.pointer == memory.data());
    CHECK(violation_of([&] {
              cellar::ggml::layer_memory<float>(*ggml_permute(context.get(), floats, 0, 2, 1, 3), nullptr);
          }).find("has gaps, expected rows that follow one another")
          != std::string::npos);
}

} // namespace test_tensors
