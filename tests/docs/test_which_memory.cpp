// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/which-memory.md.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/models.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace test_which_memory {

using namespace cellar;

namespace {

// [description]
constexpr models::Rope rope{.pairing = models::Pairing::neox, .dims = 64, .base = 10000.0};
constexpr models::Description my_model{
    .name = "mine",
    .layers = 24,
    .pattern = "SSSF", // repeated; S: sliding window, F: full attention, R: recurrent, -: no memory
    .sliding = {.shape = {.kv_heads = 4, .key_dim = 64, .value_dim = 64}, .rope = rope, .window = 512},
    .full = {.shape = {.kv_heads = 4, .key_dim = 64, .value_dim = 64}, .rope = rope},
};
using MyModel = models::Model<my_model>;
static_assert(models::bytes_per_token(my_model) == 6 * 4 * (64 + 64) * 2); // six full layers of bf16
// [/description]

constexpr int layers = 4;
constexpr int heads = 2;
constexpr int dim = 4;
const CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 4};

} // namespace

TEST_CASE("full attention with rotary positions") {
    // [full]
    using Shift = RopeShift<Neox>; // Interleaved for checkpoints that pair neighbours, such as Meta's and llama2.c's
    using Llama = Cache<StandardV<bf16>, FullCausal, Shift>;
    Llama llama{{.layers = layers, .kv_heads = heads, .head_dim = dim},
                limits,
                {},
                Shift{llama3_scaled(rope_frequencies(dim, 500000.0), {})}};
    // [/full]
    static_assert(std::is_same_v<models::Llama31_8B::Memory<>, Llama>);
    CHECK(llama.cells() == 32);
    // [no-shift]
    using Plain = Cache<StandardV<bf16>>; // no tokens are removed from the middle: no frequencies needed
    // [/no-shift]
    CHECK(Plain{{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits}.cells() == 32);
}

TEST_CASE("windows") {
    // [sliding]
    using Mistral = Cache<StandardV<bf16>, SlidingWindow<4096>, RopeShift<Neox>>;
    // [/sliding]
    static_assert(std::is_same_v<models::Mistral_7B::Memory<>, Mistral>);
    // [alternating]
    using Local = Cache<StandardV<bf16>, SlidingWindow<4096>, RopeShift<Neox>>;
    using Global = Cache<StandardV<bf16>, FullCausal, RopeShift<Neox>>;
    using Gemma2 = Hybrid<Repeat<Local, Global>, Local, Global>;
    // [/alternating]
    static_assert(std::is_same_v<models::Gemma2_9B::Memory<>, Gemma2>);
    // [chunked]
    using Chunked = Cache<StandardV<bf16>, ChunkedAttention<8192>, RopeShift<Interleaved>>;
    using NoPositions = Cache<StandardV<bf16>, FullCausal, UnrotatedShift>; // keys without rotary positions
    using Llama4 = Hybrid<Every<4, NoPositions, Chunked>, Chunked, NoPositions>;
    // [/chunked]
    static_assert(Llama4::place(3) == LayerPlace{.member = 1, .layer = 0});
}

TEST_CASE("Gemma 3, written by hand") {
    // [gemma3]
    // Gemma 3 1B: 26 layers, of which 5 of 6 see 512 tokens; 4 query heads over one of 256. The larger ones see 1024.
    using Shift = RopeShift<Neox>;
    using Local = Cache<Blocked<bf16>, SlidingWindow<512>, Shift>;
    using Global = Cache<Blocked<bf16>, FullCausal, Shift>;
    using Gemma3 = Hybrid<Repeat<Times<5, Local>, Global>, Local, Global>;

    const CacheLimits users{.sequences = 4, .capacity = 8192, .batch = 64};
    const SlidingWindow<512> window{{.retention = 512 + 4 - 1}}; // four drafted tokens can be taken back
    Gemma3 memory{
        26, // the rotary base of local layers is 10,000, that of global ones 1,000,000
        Local{{.layers = 22, .kv_heads = 1, .head_dim = 256}, users, window, Shift{rope_frequencies(256, 1e4)}},
        Global{{.layers = 4, .kv_heads = 1, .head_dim = 256}, users, {}, Shift{rope_frequencies(256, 1e6)}}};

    const std::int32_t tokens = 3;
    auto pass = memory.begin(Sequence{0}, tokens).value(); // in both members, or in none
    for (int layer = 0; layer < 26; ++layer)
        pass.visit(layer, [&](auto& own, int i) { // `own`: the pass of the member that has the layer, where it is i
            const std::vector<float> q(tokens * 4 * 256, 1.0F);
            const std::vector<float> k(tokens * 256, 1.0F);
            const std::vector<float> v(tokens * 256, 1.0F); // of your model; q and k are rotated by the layer's base
            std::vector<float> out(q.size());
            own.put(i, k, v);
            attend(own, i, q, out);
        });
    pass.commit();
    // [/gemma3]
    static_assert(Gemma3::place(5) == LayerPlace{.member = 1, .layer = 0});
    CHECK(memory.member<Local>().cells() == 2176); // 4 * 515 + 64, in whole blocks
    CHECK(memory.member<Global>().cells() == 4 * 8192);
    CHECK(memory.next(Sequence{0}) == Position{3});
    CHECK(memory.rewind(Sequence{0}, Position{1}));
}

TEST_CASE("Mamba 2 and attention, with drafts") {
    std::size_t micro_batches = 0;
    // [drafts]
    struct Conv : StateTensor<2> {}; // [width - 1, channels]
    struct Ssm : StateTensor<3> {};  // [heads, head_dim, states]
    using Attention = Cache<Blocked<bf16>>;
    using Mamba2 = RecurrentMemory<States<Conv, Ssm>>;
    using Model = Hybrid<Every<4, Attention, Mamba2>, Attention, Mamba2>; // layers 3 and 7 attend, the others scan

    constexpr int guesses = 4; // of a smaller model, in each pass
    Model memory{8, Attention{{.layers = 2, .kv_heads = 2, .head_dim = 64}, {.cells = 1024, .batch = 64}},
                 Mamba2{StateShape{6, {{3, 160}, {8, 16, 16}}}, {.batch = 64, .rollback = guesses}}};
    const Sequence chat{0};
    const auto run = [&](int tokens) {
        auto pass = memory.begin(chat, tokens).value();
        for (int layer = 0; layer < 8; ++layer)
            pass.visit(layer, [&](auto& own, int i) {
                if constexpr (requires { own.micro_batches(); }) {
                    micro_batches = own.micro_batches().size();
                    for (const MicroBatch& part : own.micro_batches()) {
                        const auto conv = own.template get<Conv>(i, part); // [sequences, width - 1, channels]
                        const auto ssm = own.template get<Ssm>(i, part);   // [sequences, heads, head_dim, states]
                        for (const std::int32_t token : part.tokens(0)) {  // your scan changes both in place
                            conv(0, 2, 0) = static_cast<float>(token);
                            ssm(0, 0, 0, 0) += 1;
                        }
                        own.put(i, part);
                    }
                } else {
                    const std::vector<float> q(static_cast<std::size_t>(tokens) * 8 * 64, 1.0F);
                    const std::vector<float> k(static_cast<std::size_t>(tokens) * 2 * 64, 1.0F);
                    std::vector<float> out(q.size());
                    own.put(i, k, k);
                    attend(own, i, q, out);
                }
            });
        pass.commit();
    };
    run(40);          // the prompt
    run(1 + guesses); // the next token, and four guesses after it
    // The model agrees with the first guess: three go, in all layers, and nothing is copied.
    memory.rewind(chat, memory.next(chat) - 3).value();
    // [/drafts]
    CHECK(micro_batches == 1 + guesses);
    CHECK(memory.next(chat) == Position{42});
    const auto& states = memory.member<Mamba2>();
    CHECK(states.view<Ssm>(0, states.state(chat))(0, 0, 0) == 42);
    CHECK(states.slots() == 2 * (guesses + 1));
    CHECK(memory.member<Attention>().tokens(chat) == 42);
}

TEST_CASE("latent attention, shared layers and layers of several shapes") {
    // [mla]
    constexpr int latent = 512;
    constexpr int rotary = 64;
    // One head, whose key is the latent and, after it, the rotary part. There are no values: attention reads the
    // latent.
    using Mla = Cache<StandardV<bf16>, FullCausal, RopeShift<Interleaved>>;
    Mla mla{{.layers = layers, .kv_heads = 1, .head_dim = latent + rotary, .value_dim = 0},
            limits,
            {},
            RopeShift<Interleaved>{rope_frequencies(rotary), latent}};
    // [/mla]
    auto pass = mla.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    const std::vector<float> rows(latent + rotary, 1.0F);
    // [mla-put]
    for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, std::vector<float>{}); // no values
    // [/mla-put]
    pass.commit();
    CHECK(mla.shape()[0].value_dim == 0);

    // [shared]
    // Layers 0 and 1 have memory. Layer 2 reads that of layer 0, layer 3 that of layer 1: a model puts to 0 and 1 only.
    const CacheShape shape{
        .each_layer = std::vector<LayerShape>{{.kv_heads = 2, .key_dim = 4, .value_dim = 4},
                                              {.kv_heads = 1, .key_dim = 8, .value_dim = 8},
                                              {.kv_heads = 2, .key_dim = 4, .value_dim = 4, .shares_layer = 0},
                                              {.kv_heads = 1, .key_dim = 8, .value_dim = 8, .shares_layer = 1}}};
    Cache<> cache{shape, limits};
    // [/shared]
    CHECK(cache.bytes() == 32 * (2 * 2 * 4 + 2 * 8) * 4);
}

TEST_CASE("encoder and decoder") {
    // [encoder]
    using Self = Cache<StandardV<half>>; // Whisper adds positions to its inputs: stored tokens cannot move
    using Cross = EncoderMemory<StandardV<half>>;
    using Whisper = Hybrid<Repeat<Self>, Self, Cross>; // every decoder layer reads both
    Whisper whisper{layers, Self{{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits},
                    Cross{{.layers = layers, .kv_heads = heads, .head_dim = dim}, limits}};

    using RelativeSelf = Cache<StandardV<half>, FullCausal, UnrotatedShift>; // T5: positions are a bias
    using T5 = Hybrid<Repeat<RelativeSelf>, RelativeSelf, Cross>;
    // [/encoder]
    CHECK(whisper.sequences() == 2);
    static_assert(Memory<T5>);
}

TEST_CASE("states") {
    // [states]
    struct Conv : StateTensor<2> {}; // [width - 1, channels]
    struct Ssm : StateTensor<3> {};  // [heads, head_dim, states]
    using Mamba2 = RecurrentMemory<States<Conv, Ssm>>;
    Mamba2 mamba{StateShape{layers, {{3, 8}, {heads, dim, 4}}}, {.sequences = 2, .batch = 4, .rollback = 1}};
    // [/states]
    CHECK(mamba.slots() > 0);

    // [initial]
    struct Maximum : StateTensor<1> {}; // of the exponents seen so far: it starts from a very small number, not from 0
    struct Sums : StateTensor<2> {};
    using Rwkv4 = RecurrentMemory<States<Maximum, Sums>>;
    Rwkv4 rwkv{StateShape{layers, {{8}, {2, 8}}}, {.sequences = 2, .batch = 4}};
    for (int layer = 0; layer < layers; ++layer) rwkv.set_initial<Maximum>(layer, std::vector<float>(8, -1e30F));
    // [/initial]
    auto pass = rwkv.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    CHECK(pass.get<Maximum>(2, pass.micro_batches()[0])(0, 5) == -1e30F);
}

TEST_CASE("hybrids") {
    struct Conv : StateTensor<2> {};
    struct Delta : StateTensor<3> {};
    // [hybrid]
    using Attention = Cache<StandardV<bf16>, FullCausal, RopeShift<Neox>>;
    using Recurrent = RecurrentMemory<States<Conv, Delta>>;
    using Qwen3Next = Hybrid<Every<4, Attention, Recurrent>, Attention, Recurrent>; // layers 3, 7, 11, ... attend
    // [/hybrid]
    static_assert(Qwen3Next::place(3).member == 0 && Qwen3Next::place(4).member == 1);

    // [both]
    // Every layer attends and has a state: a pattern names one member for a layer, and the pass has the other.
    using FalconH1 = Hybrid<Repeat<Attention>, Attention, Recurrent>;
    FalconH1 falcon{
        layers,
        Attention{
            {.layers = layers, .kv_heads = heads, .head_dim = dim}, limits, {}, RopeShift<Neox>{rope_frequencies(dim)}},
        Recurrent{StateShape{layers, {{3, 8}, {heads, dim, 4}}}, {.sequences = 2, .batch = 4}}};
    auto pass = falcon.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    auto& attention = pass.of<Attention>(); // put, keys, values, visible of every layer
    auto& states = pass.of<Recurrent>();    // micro_batches, get, put of every layer
    // [/both]
    const std::vector<float> rows(3 * heads * dim, 1.0F);
    for (int layer = 0; layer < layers; ++layer) {
        attention.put(layer, rows, rows);
        for (const MicroBatch& micro_batch : states.micro_batches()) {
            (void)states.get<Conv>(layer, micro_batch);
            states.put(layer, micro_batch);
        }
    }
    pass.commit();
    CHECK(falcon.next(Sequence{0}) == Position{3});
}

TEST_CASE("a model that a user describes") {
    // [mine]
    auto memory = MyModel::make({.attention = {.sequences = 2, .capacity = 1024, .batch = 64}});
    // [/mine]
    CHECK(memory.layers() == 24);
    CHECK(memory.bytes()
          == models::bytes(my_model, {.attention = {.sequences = 2, .capacity = 1024, .batch = 64}}).data);
}

} // namespace test_which_memory
