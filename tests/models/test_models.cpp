// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../violations.hpp"
#include "every_model.hpp"
#include <cellar/base/batch_builder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numbers>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace test_models {

using namespace cellar;
using namespace cellar::models;

namespace {

constexpr Position positions[] = {Position{0}, Position{1}, Position{2}};
constexpr Sequence sequences[] = {Sequence{0}, Sequence{0}, Sequence{0}};

template <class Memory>
void put_ones(Memory& memory) {
    const LayerShape& shape = memory.shape()[0];
    const auto elements = static_cast<std::size_t>(3 * shape.kv_heads);
    auto pass = memory.begin({positions, sequences});
    REQUIRE(pass);
    const std::vector<float> keys(elements * static_cast<std::size_t>(shape.key_dim), 1.0F);
    const std::vector<float> values(elements * static_cast<std::size_t>(shape.value_dim), 1.0F);
    for (int layer = 0; layer < memory.shape().layers; ++layer) pass->put(layer, keys, values);
    pass->commit();
}

/// The factor by which scaling slows down each pair.
std::vector<double> slowed(const Rope& rope) {
    std::vector<double> ratios = rope_frequencies(rope.dims, rope.base);
    const std::vector<double> scaled = frequencies(rope);
    REQUIRE(scaled.size() == ratios.size());
    for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= scaled[i];
    return ratios;
}

/// What was published about the rotary pairs of a model's keys.
struct Published {
    std::string_view model;
    LayerKind kind;
    Pairing pairing;
    int dims = 0;
    double base = 0;
    double (*scaled)(const Published& rotary, int pair, double angle) = [](const Published&, int, double angle) {
        return angle;
    };
};

double an_eighth(const Published&, int, double angle) {
    return angle / 8;
}

// arXiv:2407.21783: by the wavelength, in tokens.
double llama3(const Published&, int, double angle) {
    const double wavelength = 2 * std::numbers::pi / angle;
    if (wavelength < 8192.0 / 4) return angle;
    if (wavelength > 8192.0) return angle / 8;
    const double smooth = (8192.0 / wavelength - 1) / (4 - 1);
    return (1 - smooth) * angle / 8 + smooth * angle;
}

// arXiv:2309.00071, and the authors' code: a ramp between the pairs that rotate 32 times and once within 4096 tokens.
double yarn(const Published& rotary, int pair, double angle, double factor, bool whole_pairs) {
    const auto pair_of = [&](double rotations) {
        return rotary.dims * std::log(4096 / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rotary.base));
    };
    const double low = whole_pairs ? std::floor(pair_of(32)) : pair_of(32);
    const double high = whole_pairs ? std::ceil(pair_of(1)) : pair_of(1);
    const double ramp = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    return angle / factor * ramp + angle * (1 - ramp);
}
double deepseek_yarn(const Published& rotary, int pair, double angle) {
    return yarn(rotary, pair, angle, 40, true);
}
double gpt_oss_yarn(const Published& rotary, int pair, double angle) {
    return yarn(rotary, pair, angle, 32, false);
}

constexpr Published all_published[]{
    {"Llama 3.1 8B", LayerKind::full, Pairing::neox, 128, 500000, llama3},
    {"Llama 3.1 70B", LayerKind::full, Pairing::neox, 128, 500000, llama3},
    {"Mistral 7B v0.1", LayerKind::sliding, Pairing::neox, 128, 10000},
    {"Qwen 3 8B", LayerKind::full, Pairing::neox, 128, 1000000},
    {"Phi-4", LayerKind::full, Pairing::neox, 128, 250000},
    {"DeepSeek-V3", LayerKind::full, Pairing::interleaved, 64, 10000, deepseek_yarn},
    {"Gemma 2 9B", LayerKind::sliding, Pairing::neox, 256, 10000},
    {"Gemma 2 9B", LayerKind::full, Pairing::neox, 256, 10000},
    {"Gemma 3 4B", LayerKind::sliding, Pairing::neox, 256, 10000},
    {"Gemma 3 4B", LayerKind::full, Pairing::neox, 256, 1000000, an_eighth},
    {"Gemma 3 12B", LayerKind::sliding, Pairing::neox, 256, 10000},
    {"Gemma 3 12B", LayerKind::full, Pairing::neox, 256, 1000000, an_eighth},
    {"gpt-oss 20b", LayerKind::sliding, Pairing::neox, 64, 150000, gpt_oss_yarn},
    {"gpt-oss 20b", LayerKind::full, Pairing::neox, 64, 150000, gpt_oss_yarn},
    {"gpt-oss 120b", LayerKind::sliding, Pairing::neox, 64, 150000, gpt_oss_yarn},
    {"gpt-oss 120b", LayerKind::full, Pairing::neox, 64, 150000, gpt_oss_yarn},
    {"Qwen3-Next 80B-A3B", LayerKind::full, Pairing::neox, 64, 10000000},
    {"Jamba 1.5 Mini", LayerKind::full, Pairing::none},
    {"Nemotron-H 8B", LayerKind::full, Pairing::none},
    {"Granite 4.0 H Tiny", LayerKind::full, Pairing::none},
    {"LFM2 1.2B", LayerKind::full, Pairing::neox, 64, 1000000},
};

void check_rope(const Rope& rope, const Published& published) {
    CHECK((rope.pairing == published.pairing));
    if (published.pairing == Pairing::none) return;
    const std::vector<double> found = frequencies(rope);
    REQUIRE(static_cast<int>(found.size()) == published.dims / 2);
    for (int pair = 0; pair < published.dims / 2; ++pair) {
        const double angle = std::exp(-2.0 * pair / published.dims * std::log(published.base));
        const double expected = published.scaled(published, pair, angle);
        CAPTURE(pair);
        CHECK(found[static_cast<std::size_t>(pair)] / expected == doctest::Approx(1.0).epsilon(1e-12));
    }
}

/// A backend that counts what it allocates.
struct CountingBackend : HostBackend {
    template <Element E>
    Buffer<E> allocate(std::int64_t n) const {
        if (allocated != nullptr) *allocated += n * std::int64_t{sizeof(E)};
        return HostBackend::allocate<E>(n);
    }

    std::int64_t* allocated = nullptr;
};

} // namespace

TEST_CASE("memories are made by the name of a model") {
    // [use]
    namespace models = cellar::models;
    const cellar::CacheLimits limits{.sequences = 4, .capacity = 4096, .batch = 512};
    auto qwen = models::Qwen3_8B::make<models::LayerKind::full>(limits);
    static_assert(std::is_same_v<decltype(qwen), models::Qwen3_8B::Memory<>>); // only one kind of layers

    using Gemma = models::Gemma3_4B; // its pattern is SSSSSF
    Gemma::Memory<> gemma = Gemma::make({.attention = limits});
    static_assert(Gemma::Memory<>::place(11) == cellar::LayerPlace{.member = 1, .layer = 1});
    CHECK(gemma.member<Gemma::Full<>>().shape().layers == 5);
    CHECK(gemma.bytes() == models::bytes(models::gemma3_4b, {.attention = limits}).data);

    auto states = models::Mamba2_2_7B::make_recurrent({.sequences = 4, .batch = 1, .rollback = 1});
    static_assert(std::is_same_v<decltype(states), models::Mamba2_2_7B::Memory<>>);
    CHECK(states.slots() == 4 * (1 + 1) + 1);

    // One kind of layers, with options.
    auto local =
        Gemma::make<models::LayerKind::sliding>(limits, Gemma::Window<models::LayerKind::sliding>{{.retention = 2000}});
    CHECK(local.window().oldest_kept(Position{5000}) == cellar::Position{3001});
    // [/use]
    CHECK(qwen.shape().layers == 36);
}

TEST_CASE("frequencies follow from the base and the scaling of a model") {
    CHECK(frequencies(mistral_7b.sliding.rope) == rope_frequencies(128, 10000.0));
    CHECK(frequencies(phi4.full.rope) == rope_frequencies(128, 250000.0));
    CHECK(frequencies(gemma3_4b.sliding.rope) == rope_frequencies(256, 10000.0));
    CHECK(frequencies(llama31_8b.full.rope) == llama3_scaled(rope_frequencies(128, 500000.0), {}));
    CHECK(frequencies(qwen3_next_80b.full.rope).size() == 32); // a quarter of the head is rotated

    for (const double ratio : slowed(gemma3_12b.full.rope)) CHECK(ratio == doctest::Approx(8.0));

    const std::vector<double> gpt_oss = slowed(gpt_oss_20b.full.rope);
    CHECK(gpt_oss.front() == doctest::Approx(1.0));
    CHECK(gpt_oss.back() == doctest::Approx(32.0));
    CHECK(std::is_sorted(gpt_oss.begin(), gpt_oss.end(), [](double a, double b) { return a < b - 1e-9; }));

    const std::vector<double> deepseek = slowed(deepseek_v3.full.rope);
    CHECK(deepseek.front() == doctest::Approx(1.0));
    CHECK(deepseek.back() == doctest::Approx(40.0));
}

TEST_CASE("every model has the pairs and the frequencies that were published, by their formulas") {
    std::size_t checked = 0;
    for_each_model([&]<class M>(M) {
        const Description& model = M::description;
        CAPTURE(std::string{model.name});
        for (const LayerKind kind : {LayerKind::sliding, LayerKind::full}) {
            if (model.count(kind) == 0) continue;
            const auto published = std::ranges::find_if(
                all_published, [&](const Published& one) { return one.model == model.name && one.kind == kind; });
            REQUIRE(published != std::end(all_published));
            check_rope(model.attention(kind).rope, *published);
            ++checked;
        }
    });
    CHECK(checked == std::size(all_published));
}

TEST_CASE("moving a token does not change its latent, and rotates the rotary key behind it") {
    auto memory = DeepSeekV3::make<LayerKind::full, HostBackend, StandardV<float>>({.capacity = 4, .batch = 3});
    put_ones(memory);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, Position{1}));

    const auto pass = memory.reserve(1);
    const auto keys = pass.keys(60);
    const Cell cell = 1; // the cell of the token that moved from position 1 to 0
    for (int d = 0; d < 512; ++d) CHECK(keys(cell, 0, d) == 1.0F);
    // The fastest pair rotates by one radian per position. Pairs are neighbouring elements.
    CHECK(keys(cell, 0, 512) == doctest::Approx(std::cos(1.0) + std::sin(1.0)));
    CHECK(keys(cell, 0, 513) == doctest::Approx(std::cos(1.0) - std::sin(1.0)));
}

TEST_CASE("keys without positions do not change when their tokens move") {
    auto memory = Jamba15Mini::make<LayerKind::full>({.capacity = 4, .batch = 3});
    put_ones(memory);
    REQUIRE(memory.remove(Sequence{0}, Position{0}, Position{1}));
    CHECK(memory.tokens(Sequence{0}) == 2);
    CHECK(memory.range(Sequence{0}) == PositionRange{Position{0}, Position{1}});
    const auto pass = memory.reserve(1);
    const auto keys = pass.keys(0);
    for (int d = 0; d < 128; ++d) CHECK(static_cast<float>(keys(1, 0, d)) == 1.0F);
}

TEST_CASE("a sliding memory forgets tokens outside its model's window") {
    auto memory = GptOss_20B::make<LayerKind::sliding>({.capacity = 1000, .batch = 200});
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 200});
    for (int layer = 0; layer < memory.layers(); ++layer) pass->mark_put(layer);
    pass->commit();
    CHECK(memory.range(Sequence{0}) == PositionRange{Position{200 - 128}, Position{199}});
}

TEST_CASE("a pass visits two kinds of layers, and states are named by their index in the description") {
    using M = Lfm2_1_2B; // RRFRRFRRFRFRFRFR
    auto memory = M::make({.attention = {.sequences = 2, .capacity = 4, .batch = 3}, .states = {.rollback = 1}});
    CHECK(memory.member<M::Recurrent<>>().limits().rollback == 1);
    CHECK(memory.member<M::Recurrent<>>().limits().sequences == 2);
    auto pass = memory.begin({positions, sequences});
    REQUIRE(pass);
    const std::vector<float> rows(3 * 8 * 64, 1.0F);
    std::string kinds;
    for (int layer = 0; layer < M::description.layers; ++layer) {
        pass->visit(layer, [&](auto& own, int i) {
            if constexpr (requires { own.micro_batches(); }) {
                for (const MicroBatch& micro_batch : own.micro_batches()) {
                    const auto tail = own.template get<M::State<0>>(i, micro_batch);
                    CHECK(tail.extent(1) == 2);
                    CHECK(tail.extent(2) == 2048);
                    own.put(i, micro_batch);
                }
                kinds += 'R';
            } else {
                own.put(i, rows, rows);
                kinds += 'F';
            }
        });
    }
    CHECK(kinds == M::description.pattern);
    pass->commit();
    CHECK(memory.can_resume(Sequence{0}, Position{2}));
    REQUIRE(memory.remove(Sequence{0}, Position{2}, to_end));
    CHECK(memory.member<M::Full<>>().tokens(Sequence{0}) == 2);
}

TEST_CASE("the memory of one kind of layers is made with the backend that is passed") {
    std::int64_t allocated = 0;
    const auto keys = GptOss_20B::make<LayerKind::full, CountingBackend>({.capacity = 4}, {}, {{}, &allocated});
    CHECK(allocated == keys.bytes());
    allocated = 0;
    const auto states = Mamba2_2_7B::make_recurrent<CountingBackend>({}, {{}, &allocated});
    CHECK(allocated == states.bytes());
}

TEST_CASE("layers and kinds that a model does not have are violations") {
    CHECK(violation_of([] { return gemma3_4b.kind(34); }) == "layer 34, expected 0 to 33");
    CHECK(violation_of([] { return gemma3_4b.kind(-1); }) == "layer -1, expected 0 to 33");
    CHECK(violation_of([] { return mamba2_2_7b.attention(LayerKind::recurrent).window; })
          == "attention: a kind without keys, expected sliding or full");
}

} // namespace test_models
