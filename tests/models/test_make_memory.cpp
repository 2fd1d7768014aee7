// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Memories of models that are known at run time only.
#include "../violations.hpp"
#include "every_model.hpp"
#include <cellar/base/batch_builder.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/models/make_memory.hpp>
#include <cellar/shift/disabled_shift.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace test_make_memory {

using namespace cellar;
using namespace cellar::models;

namespace {

// [members]
using Layout = cellar::StandardV<cellar::bf16>;
using Rotated = cellar::RopeShift<cellar::RunTimePairing>;
using Full = cellar::Cache<Layout, cellar::FullCausal, Rotated>;
using Sliding = cellar::Cache<Layout, cellar::SlidingWindow<>, Rotated>;
using Chunked = cellar::Cache<Layout, cellar::ChunkedAttention<>, Rotated>;
struct Convolution : cellar::StateTensor<2> {};
struct Heads : cellar::StateTensor<3> {};
struct Channels : cellar::StateTensor<2> {};
using MambaTwo = cellar::RecurrentMemory<cellar::States<Convolution, Heads>>; // also of gated delta nets
using MambaOne = cellar::RecurrentMemory<cellar::States<Convolution, Channels>>;
using ShortConvolution = cellar::RecurrentMemory<cellar::States<Convolution>>;
using Memory = cellar::Hybrid<cellar::RunTimePattern, Full, Sliding, Chunked, MambaTwo, MambaOne, ShortConvolution>;
// [/members]

LayerDescription full_layer(int heads = 2, int dim = 8) {
    LayerDescription layer;
    layer.shape = {heads, dim, dim};
    layer.rope.pairing = Pairing::neox;
    layer.rope.dims = dim;
    return layer;
}
LayerDescription sliding_layer(std::int32_t window) {
    LayerDescription layer = full_layer();
    layer.kind = LayerKind::sliding;
    layer.window = window;
    return layer;
}
RunTimeDescription model_of(std::vector<LayerDescription> layers) {
    return {"a test", 0, std::move(layers)};
}

template <class M>
std::string refusal_of(const RunTimeDescription& model) {
    const MemoryLimits limits{.attention = {.capacity = 8}};
    const auto made = make_memory<M>(model, limits);
    const auto size = bytes<M>(model, limits);
    CHECK(made.has_value() == size.has_value());
    if (!made && !size) CHECK(made.error().message == size.error().message);
    return made ? "none" : made.error().message;
}

constexpr Position positions[] = {Position{0}, Position{1}};
constexpr Sequence sequences[] = {Sequence{0}, Sequence{0}};

template <class Cache>
void put_ones(Cache& cache) {
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    for (int layer = 0; layer < cache.layers(); ++layer) {
        const std::vector<float> ones(2 * 16, 1.0F);
        pass->put(layer, ones, ones);
    }
    pass->commit();
}

} // namespace

TEST_CASE("every published model has a memory at run time, of as many bytes as its own type") {
    const MemoryLimits limits{.attention = {.sequences = 2, .capacity = 8, .batch = 3}, .states = {.rollback = 1}};
    for_each_model([&]<class M>(M) {
        const RunTimeDescription model = at_run_time(M::description);
        CAPTURE(model.architecture);
        if (M::description.states() == 3) { // RWKV: compile one more member in
            CHECK(
                refusal_of<Memory>(model)
                == "layer 0 is recurrent with a state of 'attention shift' (1 extents) 'wkv' (3 extents) 'feed-forward "
                   "shift' (1 extents), and no member of the memory takes such a layer");
            return;
        }
        const auto made = make_memory<Memory>(model, limits);
        REQUIRE_MESSAGE(made, made.error().message);
        CHECK(made->bytes() == M::make(limits).bytes());
        CHECK(bytes<Memory>(model, limits).value().data == made->bytes());
        CHECK(bytes(model, limits).value() == bytes(M::description, limits));
        CHECK(made->layers() == M::description.layers);
        for (int layer = 0; layer < made->layers(); ++layer) {
            const LayerKind kind = M::description.kind(layer);
            CHECK(made->place(layer).layer == M::description.count(kind, layer));
            CHECK((made->place(layer).member == no_memory) == (kind == LayerKind::nothing));
        }
    });
}

TEST_CASE("a memory of one type has all layers") {
    const RunTimeDescription model = at_run_time(llama31_8b);
    const MemoryLimits limits{.attention = {.sequences = 2, .capacity = 8, .batch = 3}};
    const auto cache = make_memory<Full>(model, limits);
    REQUIRE(cache);
    CHECK(cache->layers() == 32);
    CHECK(cache->bytes() == bytes<Full>(model, limits).value().data);
    CHECK(refusal_of<Full>(at_run_time(gemma3_4b))
          == "layer 0 is sliding, of 1024 tokens, with rotary pairs as in GPT-NeoX, and no member of the memory takes "
             "such a layer");
    CHECK(refusal_of<MambaTwo>(at_run_time(mamba2_2_7b)) == "none");

    RunTimeDescription with_nothing = model_of({full_layer(), {}});
    with_nothing.layers[1].kind = LayerKind::nothing;
    CHECK(refusal_of<Full>(with_nothing)
          == "the model has layers without memory, expected a Hybrid with a RunTimePattern");
    CHECK(refusal_of<Memory>(with_nothing) == "none");
}

TEST_CASE("windows come from the description, and retention and sinks from the limits") {
    const RunTimeDescription model = model_of({full_layer(), sliding_layer(4)});
    const MemoryLimits limits{.attention = {.capacity = 100, .batch = 2}, .window = {.retention = 7, .sinks = 1}};
    const auto memory = make_memory<Memory>(model, limits);
    REQUIRE(memory);
    const auto& window = memory->member<Sliding>().window();
    CHECK(window.oldest_visible(Position{50}) == Position{47});
    CHECK(window.oldest_kept(Position{50}) == Position{44});
    CHECK(window.sinks() == 1);
    CHECK(memory->member<Sliding>().cells() == 1 + 7 + 2);
    CHECK(memory->member<Full>().cells() == 100);

    // A file may have a wider window than the program thought of.
    const auto wide = make_memory<Memory>(model_of({full_layer(), sliding_layer(20)}), limits);
    REQUIRE(wide);
    CHECK(wide->member<Sliding>().window().oldest_kept(Position{50}) == Position{31});
}

TEST_CASE("each kind may have limits of its own, with the sequences and the batch of all") {
    const MemoryLimits limits{.attention = {.sequences = 3, .cells = 50, .batch = 5},
                              .sliding = CacheLimits{.cells = 17},
                              .states = {.rollback = 2}};
    RunTimeDescription model = model_of({full_layer(), sliding_layer(4), {}});
    model.layers[2].kind = LayerKind::recurrent;
    model.layers[2].state = {{"conv", {3, 16}}};
    const auto memory = make_memory<Memory>(model, limits);
    REQUIRE(memory);
    CHECK(memory->sequences() == 3);
    CHECK(memory->member<Full>().cells() == 50);
    CHECK(memory->member<Sliding>().cells() == 17);
    CHECK(memory->member<Sliding>().limits().batch == 5);
    CHECK(memory->member<ShortConvolution>().limits().batch == 5);
    CHECK(memory->member<ShortConvolution>().limits().rollback == 2);
    CHECK(memory->bytes() == bytes<Memory>(model, limits).value().data);

    const auto by_default = make_memory<Memory>(model, {.attention = limits.attention});
    CHECK(by_default->member<Sliding>().cells() == 3 * (4 + 1) + 5); // never full
}

TEST_CASE("keys rotate with the file's pairs and frequencies, and those of plain layers do not") {
    RunTimeDescription model = model_of({full_layer(), full_layer()});
    for (LayerDescription& layer : model.layers) {
        layer.rope.pairing = Pairing::interleaved;
        layer.rope.dims = 4;
        layer.rope.divisors = {2, 1};
    }
    model.layers[1].rope = {};
    auto made =
        make_memory<Cache<StandardV<float>, FullCausal, Rotated>>(model, {.attention = {.capacity = 4, .batch = 2}});
    REQUIRE(made);
    put_ones(*made);
    REQUIRE(
        made->remove(Sequence{0}, Position{0}, Position{1})); // the second token moves to position 0, by one radian / 2
    const auto pass = made->reserve(1);
    const auto keys = pass.keys(0);
    CHECK(keys(1, 0, 0) == doctest::Approx(std::cos(0.5) + std::sin(0.5)));
    CHECK(keys(1, 0, 1) == doctest::Approx(std::cos(0.5) - std::sin(0.5)));
    CHECK(keys(1, 0, 4) == 1.0F);
    for (int d = 0; d < 8; ++d) CHECK(pass.keys(1)(1, 0, d) == 1.0F);
}

TEST_CASE("a shared layer reads its owner's memory, whatever lies between them") {
    RunTimeDescription model = model_of({sliding_layer(4), full_layer(), sliding_layer(4), full_layer()});
    model.layers[2].shape.shares_layer = 0;
    model.layers[3].shape.shares_layer = 1;
    const auto memory = make_memory<Memory>(model, {.attention = {.capacity = 4}});
    REQUIRE(memory);
    CHECK(memory->member<Full>().shape()[1].shares_layer == 0);
    CHECK(memory->member<Sliding>().shape()[1].shares_layer == 0);
    // A full layer of 4 cells, a sliding one of 4 and a batch of 4; keys and values of 2 heads of 8 in bf16.
    CHECK(memory->bytes() == (4 + 8) * 2 * 8 * 2 * 2);
}

TEST_CASE("a layer without keys shares none, whatever its shape says") {
    LayerDescription state{.kind = LayerKind::recurrent, .state = {{"conv", {4, 8}}, {"ssm", {2, 8, 4}}}};
    RunTimeDescription model = model_of({full_layer(), {.kind = LayerKind::nothing}, state});
    const std::int64_t expected = bytes<Memory>(model, {.attention = {.cells = 64}}).value().total();
    const std::int64_t of_layout = bytes<Layout, float>(model, {.attention = {.cells = 64}}).value().total();
    for (const int owner : {0, 2, 1000}) {
        model.layers[1].shape.shares_layer = owner;
        model.layers[2].shape.shares_layer = owner;
        CHECK(bytes<Memory>(model, {.attention = {.cells = 64}}).value().total() == expected);
        CHECK(bytes<Layout, float>(model, {.attention = {.cells = 64}}).value().total() == of_layout);
    }
}

TEST_CASE("what was not compiled in is refused, and so are layers that one member cannot have together") {
    using OnlyFull = Hybrid<RunTimePattern, Full>;
    CHECK(
        refusal_of<OnlyFull>(model_of({full_layer(), sliding_layer(4)}))
        == "layer 1 is sliding, of 4 tokens, with rotary pairs as in GPT-NeoX, and no member of the memory takes such "
           "a layer");
    CHECK(refusal_of<Memory>(model_of({sliding_layer(4), sliding_layer(5)}))
          == "member 1 of the memory cannot be made: its layers have windows of different widths");

    RunTimeDescription pairs = model_of({full_layer(), full_layer()});
    pairs.layers[1].rope.pairing = Pairing::interleaved;
    CHECK(
        refusal_of<Memory>(pairs)
        == "member 0 of the memory cannot be made: its layers have different rotary pairs, or begin them at different "
           "elements");
    using Unrotated = Cache<Layout, FullCausal, DisabledShift>;
    CHECK(refusal_of<Unrotated>(pairs) == "none"); // nothing rotates

    using NeoxOnly = Cache<Layout, FullCausal, RopeShift<Neox>>;
    using PlainOnly = Cache<Layout, FullCausal, UnrotatedShift>;
    CHECK(refusal_of<NeoxOnly>(model_of({full_layer()})) == "none");
    CHECK(refusal_of<NeoxOnly>(model_of({pairs.layers[1]}))
          == "layer 0 is full, with neighbours as rotary pairs, and no member of the memory takes such a layer");
    CHECK(refusal_of<PlainOnly>(model_of({full_layer()}))
          == "layer 0 is full, with rotary pairs as in GPT-NeoX, and no member of the memory takes such a layer");
    using OnRead = Cache<Layout, FullCausal, RotateOnRead<RunTimePairing>>; // as RopeShift
    CHECK(refusal_of<OnRead>(model_of({full_layer()})) == "none");
    CHECK(refusal_of<OnRead>(pairs) == refusal_of<Cache<Layout, FullCausal, RopeShift<RunTimePairing>>>(pairs));
    using TwoKinds = Hybrid<RunTimePattern, NeoxOnly, Cache<Layout, FullCausal, RopeShift<Interleaved>>>;
    CHECK(refusal_of<TwoKinds>(pairs) == "none");

    RunTimeDescription plain = model_of({full_layer()});
    plain.layers[0].rope = {};
    CHECK(refusal_of<PlainOnly>(plain) == "none");
    using FixedWindow = Cache<Layout, SlidingWindow<4>, Rotated>;
    CHECK(refusal_of<FixedWindow>(model_of({sliding_layer(4)})) == "none");
    CHECK(refusal_of<FixedWindow>(model_of({sliding_layer(5)})).starts_with("layer 0 is sliding, of 5 tokens"));

    RunTimeDescription encoder = model_of({full_layer()});
    encoder.layers[0].kind = LayerKind::encoder;
    CHECK(refusal_of<Memory>(encoder).starts_with("layer 0 is of an encoder"));
    encoder.layers[0].kind = LayerKind::nothing;
    CHECK(refusal_of<Memory>(encoder) == "the model has no layer with memory, expected at least one");
    CHECK(refusal_of<Memory>(model_of({})) == "the model has 0 layers, expected 1 to 1000");
}

TEST_CASE("layers of an encoder go to an EncoderMemory, which has its own limits") {
    using Self = Cache<Layout>; // positions are added to the decoder's inputs: stored tokens cannot move
    using Decoder = Hybrid<RunTimePattern, Self, EncoderMemory<Layout>>;
    LayerDescription own = full_layer();
    own.rope = {};
    LayerDescription of_encoder = own;
    of_encoder.kind = LayerKind::encoder;
    const RunTimeDescription model = model_of({own, of_encoder, own, of_encoder});
    constexpr std::int32_t tokens = 10; // of an input, more than a pass of the decoder has
    const MemoryLimits limits{.attention = {.sequences = 2, .capacity = 8, .batch = 3},
                              .encoder = CacheLimits{.capacity = tokens, .batch = tokens}};
    auto memory = make_memory<Decoder>(model, limits).value();
    CHECK(memory.bytes() == bytes<Decoder>(model, limits).value().data);
    constexpr std::int64_t cell = 2 * 2 * 16 * sizeof(bf16); // keys and values of two layers
    CHECK(memory.member<Self>().cells() == 16);
    CHECK(memory.member<EncoderMemory<Layout>>().cells() == 2 * tokens);
    CHECK(memory.bytes() == (16 + 2 * tokens) * cell);
    CHECK(make_memory<Decoder>(model, {.attention = limits.attention}).value().bytes() == 2 * 16 * cell);

    const std::vector<float> input(tokens * 16, 2.0F);
    auto write = memory.member<EncoderMemory<Layout>>().write(Sequence{1}, Position{0}, tokens);
    REQUIRE(write);
    for (const int layer : {0, 1}) write->put(layer, input, input);
    write->commit();
    auto pass = memory.begin(Sequence{1}, 3);
    REQUIRE(pass);
    int read = 0;
    for (int layer = 0; layer < memory.layers(); ++layer)
        pass->visit(layer, [&](auto& each, int index) {
            if constexpr (requires { each.mark_put(index); }) {
                const std::vector<float> rows(3 * 16, 1.0F);
                each.put(index, rows, rows);
            } else if constexpr (requires { each.history(); }) {
                CHECK(static_cast<float>(each.keys(index)(tokens - 1, 1, 7)) == 2.0F);
                ++read;
            }
        });
    CHECK(read == 2);
    pass->commit();

    own.rope = full_layer().rope;
    of_encoder.rope = own.rope;
    CHECK(refusal_of<Decoder>(model_of({own, of_encoder})).starts_with("layer 1 is of an encoder, with rotary pairs"));
    RunTimeDescription negative = model;
    negative.input_tokens = -1;
    CHECK(refusal_of<Decoder>(negative) == "an encoder's inputs have -1 tokens, expected 0 or more");
}

TEST_CASE("a memory in fewer bits has the bytes of its formats, and refuses heads that they cannot divide") {
    using Small = Cache<StandardV<q8_0, cellar::Rotated<Hadamard<64>, q4_0>>, FullCausal, RopeShift<RunTimePairing>>;
    const MemoryLimits limits{.attention = {.capacity = 8}};
    const RunTimeDescription model = model_of({full_layer(2, 128), full_layer(1, 64)});
    constexpr int blocks = 2 * 4 + 2; // of 32 values, in the keys of a cell
    CHECK(make_memory<Small>(model, limits).value().bytes() == 8 * blocks * (34 + 18));
    CHECK(bytes<Small>(model, limits).value().data == 8 * blocks * (34 + 18));
    for (const int dim : {96, 80}) // no multiple of a rotation, and none of a block
        CHECK(refusal_of<Small>(model_of({full_layer(2, 64), full_layer(2, dim)}))
              == "layer 1 is full, with rotary pairs as in GPT-NeoX, and no member of the memory takes such a layer");
}

TEST_CASE("layers with factors go to a member that divides by them") {
    using Exact = Cache<StandardV<half>, FullCausal, RopeShift<RunTimePairing>>;
    using Small = Cache<StandardV<q8_0, q4_0>, FullCausal, RopeShift<RunTimePairing>>;
    using Values = Cache<StandardV<half, q4_0>, FullCausal, RopeShift<RunTimePairing>>;
    const MemoryLimits limits{.attention = {.capacity = 8}};
    const ChannelFactors factors{std::vector<float>(64, 2.0F), std::vector<float>(64, 0.5F)};
    RunTimeDescription model = model_of({full_layer(1, 64), full_layer(1, 64), full_layer(1, 64)});
    model.layers[1].factors = factors;
    model.layers[2].shape.shares_layer = 1;
    const auto made = make_memory<Hybrid<RunTimePattern, Exact, Small>>(model, limits);
    REQUIRE_MESSAGE(made, made.error().message);
    CHECK(made->place(0).member == 0);
    CHECK(made->place(1).member == 1);
    CHECK(made->place(2).member == 1); // the memory of the layer before
    const CacheShape& shape = made->member<Small>().shape();
    REQUIRE(shape.factors.size() == 2);
    CHECK(shape.factors[0].keys == factors.keys);
    CHECK(shape.factors[0].values == factors.values);
    CHECK(made->member<Exact>().shape().factors.empty());

    model.layers.pop_back();
    model.layers[0].factors.values = factors.values;
    const auto all = make_memory<Small>(model, limits).value();
    CHECK(all.shape().factors[0].keys.empty());
    CHECK(all.shape().factors[1].keys == factors.keys);
    CHECK(bytes<Small>(model, limits).value() == Small::bytes_for(all.shape(), limits.attention));
    CHECK(refusal_of<Exact>(model)
          == "layer 0 is full, with rotary pairs as in GPT-NeoX, with factors of channels, and no member of the memory "
             "takes such a layer");
    CHECK(refusal_of<Values>(model).starts_with("layer 1 is full, with rotary pairs as in GPT-NeoX, with factors"));
    model.layers[1].factors.keys[3] = 3;
    CHECK(refusal_of<Small>(model)
          == "member 0 of the memory cannot be made: elements 3 and 35 of its keys are rotated as a pair, and have "
             "different factors");
    model.layers[1].factors.keys[3 + 32] = 3;
    CHECK(refusal_of<Small>(model) == "none");
}

TEST_CASE("layers may have a residual, whose window and cells come from the limits") {
    using SmallFull = Cache<StandardV<q8_0>, FullCausal, RopeShift<>>;
    using SmallSliding = Cache<StandardV<q8_0>, SlidingWindow<>, RopeShift<>>;
    using Exact = Cache<StandardV<half>, SlidingWindow<>, RopeShift<>>;
    using OfFull = Hybrid<WithResidual, SmallFull, Exact>;
    using OfSliding = Hybrid<WithResidual, SmallSliding, Exact>;
    using Pairs = Hybrid<RunTimePattern, OfFull, OfSliding>;
    RunTimeDescription model = model_of({full_layer(2, 64), full_layer(2, 64), full_layer(1, 64)});
    model.layers[1].kind = LayerKind::sliding;
    model.layers[1].window = 4;
    model.layers[2].factors.keys.assign(64, 2);
    MemoryLimits limits{.attention = {.sequences = 2, .capacity = 100, .batch = 8},
                        .window = {.retention = 20},
                        .residual = {.tokens = 6, .window = {.retention = 9}}};
    const CacheLimits& attention = limits.attention;
    auto made = make_memory<Pairs>(model, limits).value();
    auto& full = made.member<OfFull>();
    CHECK(full.layers() == 2);
    CHECK(full.member<Exact>().window().width() == 6);
    CHECK(full.member<Exact>().cells() == SlidingWindow<>{6, {.retention = 9}}.resolved(2, 100).cells(2, 100, 8));
    CHECK(full.member<SmallFull>().shape().factors.size() == 2);
    CHECK(full.member<Exact>().shape().factors.empty());
    auto& sliding = made.member<OfSliding>();
    CHECK(sliding.member<Exact>().window().width() == 4); // that of the layer
    CHECK(sliding.member<SmallSliding>().window().width() == 4);
    CHECK(bytes<Pairs>(model, limits).value()
          == Pairs::bytes_for(
              3,
              OfFull::bytes_for(
                  2, SmallFull::bytes_for(full.member<SmallFull>().shape(), attention),
                  Exact::bytes_for(full.member<Exact>().shape(), attention, SlidingWindow<>{6, {.retention = 9}})),
              OfSliding::bytes_for(
                  1,
                  SmallSliding::bytes_for(sliding.member<SmallSliding>().shape(), attention,
                                          SlidingWindow<>{4, {.retention = 20}}),
                  Exact::bytes_for(sliding.member<Exact>().shape(), attention, SlidingWindow<>{4, {.retention = 9}}))));
    limits.residual.cells = CacheLimits{.cells = 30};
    CHECK(make_memory<OfFull>(model_of({full_layer(2, 64)}), limits).value().member<Exact>().cells() == 30);
    CHECK(refusal_of<OfFull>(model).starts_with("layer 1 is sliding, of 4 tokens"));
    using OfChunks = Hybrid<WithResidual, Cache<StandardV<q8_0>, ChunkedAttention<>, RopeShift<>>, Exact>;
    RunTimeDescription chunked = model_of({full_layer(2, 64)});
    chunked.layers[0].kind = LayerKind::chunked;
    chunked.layers[0].window = 4;
    CHECK(refusal_of<OfChunks>(chunked).starts_with("layer 0 is chunked, of 4 tokens"));
    CHECK(refusal_of<OfFull>(model_of({full_layer(2, 8)})).starts_with("layer 0 is full"));
}

TEST_CASE("an exact cache shows no more sinks than the window of its layers, and no gaps") {
    using SmallFull = Cache<StandardV<q8_0>, FullCausal, RopeShift<>>;
    using SmallSliding = Cache<StandardV<q8_0>, SlidingWindow<>, RopeShift<>>;
    using Exact = Cache<StandardV<half>, SlidingWindow<>, RopeShift<>>;
    const RunTimeDescription whole = model_of({full_layer(2, 64)});
    RunTimeDescription sliding = whole;
    sliding.layers[0].kind = LayerKind::sliding;
    sliding.layers[0].window = 8;
    const auto exact = [&]<class Coarse>(const RunTimeDescription& model, const MemoryLimits& limits, const Coarse*) {
        using Pair = Hybrid<WithResidual, Coarse, Exact>;
        auto memory = make_memory<Pair>(model, limits).value();
        CHECK(memory.template member<Exact>().limits().positions == Positions::consecutive);
        CHECK(memory.template member<Coarse>().limits().positions == limits.attention.positions);
        return memory.template member<Exact>().window().sinks();
    };
    const SmallFull* const of_full = nullptr;
    const SmallSliding* const of_sliding = nullptr;
    for (const Positions of_all : {Positions::consecutive, Positions::any}) {
        MemoryLimits limits{.attention = {.capacity = 100, .batch = 8, .positions = of_all},
                            .residual = {.tokens = 4, .window = {.sinks = 4}}};
        CHECK(exact(whole, limits, of_full) == 4);
        CHECK(exact(sliding, limits, of_sliding) == 0); // as the layer
        limits.window.sinks = 6;
        CHECK(exact(whole, limits, of_full) == 4);
        CHECK(exact(sliding, limits, of_sliding) == 6);
        limits.residual.window.sinks = 0;
        CHECK(exact(sliding, limits, of_sliding) == 0);
        limits.residual.cells = CacheLimits{.cells = 30, .positions = of_all};
        CHECK(exact(whole, limits, of_full) == 0);
    }
}

TEST_CASE("an exact cache has room for snapshots") {
    using Coarse = Cache<StandardV<q8_0>, FullCausal, RopeShift<>>;
    using Exact = Cache<StandardV<half>, SlidingWindow<>, RopeShift<>>;
    using Pair = Hybrid<WithResidual, Coarse, Exact>;
    const RunTimeDescription model = model_of({full_layer(2, 64)});
    MemoryLimits limits{.attention = {.sequences = 2, .capacity = 1000, .batch = 16},
                        .residual = {.tokens = 8, .window = {.retention = 10, .sinks = 2}, .snapshots = 3}};
    auto memory = make_memory<Pair>(model, limits).value();
    CHECK(memory.member<Exact>().cells() == (2 + 3) * (2 + 10) + 16);
    CHECK(bytes<Pair>(model, limits).value().data == memory.bytes());
    std::vector<SnapshotOf<Pair>> snapshots;
    for (int i = 0; i < 5; ++i) { // two of them also have sequences
        const Sequence s{i % 2};
        REQUIRE(memory.remove(s, Position{0}, to_end));
        for (int tokens = 0; tokens < 80; tokens += 16) {
            auto pass = memory.begin(s, 16);
            REQUIRE(pass);
            pass->mark_put(0);
            pass->commit();
        }
        if (i < 3) snapshots.push_back(memory.snapshot(s).value());
    }
    limits.residual.cells = CacheLimits{.cells = 30};
    CHECK(make_memory<Pair>(model, limits).value().member<Exact>().cells() == 30);
}

TEST_CASE("limits of a residual that are wrong are violations that name them") {
    using Coarse = Cache<StandardV<q8_0>, FullCausal, RopeShift<>>;
    using Exact = Cache<StandardV<half>, SlidingWindow<>, RopeShift<>>;
    const auto message = [](const ResidualLimits& residual) {
        return violation_of([&] {
            static_cast<void>(make_memory<Hybrid<WithResidual, Coarse, Exact>>(
                model_of({full_layer(2, 64)}), {.attention = {.capacity = 100}, .residual = residual}));
        });
    };
    CHECK(message({.tokens = 0})
          == "MemoryLimits::residual: 0 tokens and 0 snapshots, expected at least 1 token, and 0 snapshots or more");
    CHECK(message({.snapshots = -1}).starts_with("MemoryLimits::residual: 32 tokens and -1 snapshots"));
}

TEST_CASE("the bytes of states equal those that are allocated") {
    RunTimeDescription model = model_of(std::vector<LayerDescription>(2));
    for (LayerDescription& layer : model.layers) layer.kind = LayerKind::recurrent;
    model.layers[0].state = {{"conv", {3, 5}}, {"ssm", {2, 3, 7}}}; // rows are padded to 16 bytes
    model.layers[1].state = {{"conv", {1, 9}}, {"ssm", {4, 3, 1}}};
    for (const StateLimits& states : {StateLimits{}, StateLimits{.rollback = 3}, StateLimits{.checkpoints = 5},
                                      StateLimits{.rollback = 1, .checkpoints = 1, .snapshots = 4}}) {
        const MemoryLimits limits{.attention = {.sequences = 3, .batch = 2}, .states = states};
        const auto made = make_memory<MambaTwo>(model, limits);
        REQUIRE(made);
        CHECK(made->bytes() == bytes<MambaTwo>(model, limits).value().data);
    }
}

TEST_CASE("the largest limits for a number of bytes") {
    const RunTimeDescription model = model_of({full_layer(), sliding_layer(4)});
    const MemoryLimits limits{.attention = {.sequences = 2, .batch = 3, .padding = 4}};
    MemoryLimits smallest = limits;
    smallest.attention.cells = 1;
    const std::int64_t least = bytes<Memory>(model, smallest).value().total();
    for (const std::int64_t most : {least, least + 4095, least + 4096, least + 100000}) {
        const auto largest = largest_limits<Memory>(model, limits, most);
        REQUIRE(largest);
        MemoryLimits found = *largest;
        CHECK(found.attention.sequences == 2);
        CHECK(bytes<Memory>(model, found).value().total() <= most);
        ++found.attention.cells;
        CHECK(bytes<Memory>(model, found).value().total() > most);
    }
    CHECK(!largest_limits<Memory>(model, limits, least - 1));
    const auto in_both = [&](std::int32_t cells) { // sliding layers keep as much
        MemoryLimits both = limits;
        both.attention.cells = cells;
        both.sliding = both.attention;
        return both;
    };
    const std::int64_t budget = least + 100000;
    const std::int32_t most = largest_limits<Memory>(model, in_both, budget).value().attention.cells;
    CHECK(bytes<Memory>(model, in_both(most)).value().total() <= budget);
    CHECK(bytes<Memory>(model, in_both(most + 1)).value().total() > budget);
    CHECK(most < largest_limits<Memory>(model, limits, budget).value().attention.cells);
    CHECK(largest_limits<Memory>(model, limits, 10).error().message == "not even one cell fits into 10 bytes");
    CHECK(largest_limits<Memory>(model, limits, INT64_MAX).value().attention.cells == 1 << 30);
    CHECK(largest_limits<Full>(model, limits, INT64_MAX).error().message.starts_with("layer 1 is sliding"));
}

} // namespace test_make_memory
