// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "every_model.hpp"
#include <cellar/models/run_time_description.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace test_run_time_description {

using namespace cellar;
using namespace cellar::models;

namespace {

/// A full layer, one with a window, one that shares it, a recurrent one, and one without memory.
RunTimeDescription valid() {
    RunTimeDescription model{"a test", 100, std::vector<LayerDescription>(5)};
    for (std::size_t i = 0; i < 3; ++i) {
        LayerDescription& layer = model.layers[i];
        layer.shape = {2, 8, 8};
        layer.heads = 4;
        layer.rope.pairing = Pairing::neox;
        layer.rope.dims = 4;
    }
    model.layers[1].kind = model.layers[2].kind = LayerKind::sliding;
    model.layers[1].window = model.layers[2].window = 5;
    model.layers[2].shape.shares_layer = 1;
    model.layers[3].kind = LayerKind::recurrent;
    model.layers[3].state = {{"conv", {3, 16}}, {"ssm", {2, 4, 8}}};
    model.layers[4].kind = LayerKind::nothing;
    return model;
}

std::string refusal_with(const std::function<void(RunTimeDescription&)>& change) {
    RunTimeDescription model = valid();
    change(model);
    const auto checked = check(model);
    return checked ? "none" : to_string(checked.error());
}

/// With a change of the first layer.
std::string refusal_of_layer(const std::function<void(LayerDescription&)>& change) {
    return refusal_with([&](RunTimeDescription& model) { change(model.layers[0]); });
}
std::string refusal_of_rope(const std::function<void(RunTimeRope&)>& change) {
    return refusal_with([&](RunTimeDescription& model) { change(model.layers[0].rope); });
}

} // namespace

TEST_CASE("every published model is a valid description") {
    for_each_model([]<class M>(M) {
        const RunTimeDescription model = at_run_time(M::description);
        CHECK(check(model));
        CHECK(model.architecture == M::description.name);
        for (const LayerKind kind :
             {LayerKind::sliding, LayerKind::full, LayerKind::recurrent, LayerKind::nothing, LayerKind::chunked})
            CHECK(model.count(kind) == M::description.count(kind));
    });
}

TEST_CASE("a description that contradicts itself is refused with a sentence that names the layer") {
    REQUIRE(refusal_with([](RunTimeDescription&) {}) == "none");
    CHECK(refusal_with([](auto& m) { m.layers.clear(); }) == "the model has 0 layers, expected 1 to 1000");
    CHECK(refusal_with([](auto& m) { m.layers.resize(1001); }) == "the model has 1001 layers, expected 1 to 1000");
    CHECK(refusal_with([](auto& m) { m.trained_context = -1; })
          == "the model was trained with -1 tokens, expected 0 or more");
    CHECK(refusal_of_layer([](auto& l) { l.kind = LayerKind{'?'}; }) == "layer 0 has an unknown kind");
    CHECK(refusal_of_layer([](auto& l) { l.window = 3; }) == "layer 0 has a window of 3, expected 0 for its kind");
    CHECK(refusal_of_layer([](auto& l) { l.kind = LayerKind::chunked; })
          == "layer 0 has a window of 0, expected at least 1");
    CHECK(refusal_of_layer([](auto& l) { l.shape.kv_heads = 0; })
          == "layer 0 has 0 heads of keys, a key_dim of 8 and a value_dim of 8, expected at least 1, 1 and 0");
    CHECK(refusal_of_layer([](auto& l) {
              l.shape = {1 << 10, 1 << 9, 8};
          })
          == "layer 0 has rows of 524288 elements, expected at most 262144");
    CHECK(refusal_of_layer([](auto& l) { l.heads = 3; })
          == "layer 0 has 3 heads of queries, expected a multiple of its 2 heads of keys");
    CHECK(refusal_of_layer([](auto& l) { l.scale = std::nan(""); })
          == "layer 0 has a scale or a soft cap that is no finite number of at least 0");
    CHECK(refusal_of_layer([](auto& l) { l.soft_cap = -1; })
          == "layer 0 has a scale or a soft cap that is no finite number of at least 0");
    CHECK(refusal_of_layer([](auto& l) {
              l.state = {{"conv", {3}}};
          })
          == "layer 0 has keys and a state, expected one of them");
    CHECK(refusal_of_layer([](auto& l) { l.kind = LayerKind::recurrent; })
          == "layer 0 has no tensor of a state, expected at least one");
}

TEST_CASE("factors of channels that do not fit are refused") {
    const auto refusal = [](std::vector<float> keys, std::vector<float> values) {
        return refusal_of_layer([&](auto& l) { l.factors = {keys, values}; });
    };
    const std::vector<float> ones(16, 1.0F);
    CHECK(refusal(ones, ones) == "none");
    CHECK(refusal({}, ones) == "none");
    CHECK(refusal(std::vector<float>(8, 1.0F), ones) == "layer 0 has 8 factors of channels, expected 16, or none");
    CHECK(refusal(ones, std::vector<float>(17, 1.0F)) == "layer 0 has 17 factors of channels, expected 16, or none");
    for (const float wrong : {0.0F, -1.0F, 0x1p41F, std::nanf("")}) {
        std::vector<float> some = ones;
        some[5] = wrong;
        CHECK(refusal(ones, some) == "layer 0 has a factor of a channel that is no number from 2^-40 to 2^40");
    }
    CHECK(refusal_with([](auto& m) { m.layers[2].factors.keys = {1}; }) == "none"); // it shares another one's memory
}

TEST_CASE("a layer shares the memory of an earlier one that is like it, or the description is refused") {
    const auto sharing = [](int owner) {
        return refusal_with([=](RunTimeDescription& m) { m.layers[2].shape.shares_layer = owner; });
    };
    CHECK(sharing(1) == "none");
    CHECK(sharing(0) == "layer 2 has the memory of layer 0, expected one of the same kind, window, heads and dims");
    CHECK(sharing(2) == "layer 2 has the memory of layer 2, expected that of an earlier one");
    CHECK(sharing(-2) == "layer 2 has the memory of layer -2, expected that of an earlier one");
    CHECK(refusal_with([](RunTimeDescription& m) {
              m.layers[3] = m.layers[2];
              m.layers[3].shape.shares_layer = 2;
          })
          == "layer 3 has the memory of layer 2, which has none of its own");
    CHECK(refusal_with([](RunTimeDescription& m) { m.layers[2].window = 6; })
          == "layer 2 has the memory of layer 1, expected one of the same kind, window, heads and dims");
}

TEST_CASE("rotary parameters that are out of range are refused") {
    const std::string positive =
        "layer 0 has rotary parameters (base, scaling) of which one is not positive, or not finite";
    CHECK(refusal_of_rope([](auto& r) { r.dims = 3; })
          == "layer 0 has 3 rotary elements from element 0 on, expected an even number within its 8");
    CHECK(refusal_of_rope([](auto& r) { r.begin = 6; })
          == "layer 0 has 4 rotary elements from element 6 on, expected an even number within its 8");
    CHECK(refusal_of_rope([](auto& r) { r.base = 0; }) == positive);
    CHECK(refusal_of_rope([](auto& r) { r.attention_factor = -1; }) == positive);
    CHECK(refusal_of_rope([](auto& r) { r.scaling = LinearScaling{std::numeric_limits<double>::infinity()}; })
          == positive);
    CHECK(refusal_of_rope([](auto& r) { r.scaling = YarnScaling{.factor = 4, .original_context = 0}; }) == positive);
    CHECK(refusal_of_rope([](auto& r) {
              r.base = 1;
              r.scaling = YarnScaling{.factor = 4, .original_context = 100};
          })
          == positive);
    CHECK(refusal_of_rope([](auto& r) { r.divisors = {1}; })
          == "layer 0 has 1 divisors of frequencies, expected 2, one for each pair");
    CHECK(refusal_of_rope([](auto& r) {
              r.divisors = {1, 0};
          })
          == "layer 0 has a divisor of a frequency that is not a finite number above 0");
    CHECK(refusal_of_rope([](auto& r) {
              r.long_divisors = {1, 2};
          })
          == "layer 0 has divisors for long sequences, expected also those for short ones, and the length of these");
    CHECK(refusal_of_layer([](auto& l) {
              l.shape.key_dim = l.rope.dims = 64;
              l.rope.base = std::numeric_limits<double>::denorm_min();
          })
          == "layer 0 has a frequency that is not finite");
}

TEST_CASE("states that are too large or empty are refused") {
    const auto with_state = [](StateDescription tensor) {
        return refusal_with([=](RunTimeDescription& m) { m.layers[3].state = {tensor}; });
    };
    CHECK(with_state({"ssm", {1 << 24}}) == "none");
    CHECK(with_state({"ssm", {}}) == "layer 3 has a state 'ssm' of no elements, expected 1 to 16777216");
    CHECK(with_state({"ssm", {4, -1}}) == "layer 3 has a state 'ssm' of no elements, expected 1 to 16777216");
    CHECK(with_state({"ssm", {INT32_MAX, INT32_MAX, INT32_MAX}})
          == "layer 3 has a state 'ssm' of too many elements, expected 1 to 16777216");
    const auto with_states = [](std::size_t layers) {
        return refusal_with([=](RunTimeDescription& m) {
            m.layers[3].state = {{"ssm", {1 << 24}}};
            m.layers.assign(layers, LayerDescription{m.layers[3]});
        });
    };
    CHECK(with_states(31) == "none");
    CHECK(with_states(32) == "the layers have states of 536870912 elements together, expected at most 536870911");
}

TEST_CASE("frequencies are divided by the divisors for the length that is planned") {
    RunTimeRope rope;
    CHECK(frequencies(rope).empty()); // no rotary positions
    rope.pairing = Pairing::neox;
    rope.dims = 4;
    rope.divisors = {1, 2};
    CHECK(frequencies(rope) == std::vector<double>{1, 0.005});
    rope.long_divisors = {4, 10};
    rope.original_context = 100;
    CHECK(frequencies(rope, 100) == std::vector<double>{1, 0.005});
    CHECK(frequencies(rope, 101) == std::vector<double>{0.25, 0.001});
}

} // namespace test_run_time_description
