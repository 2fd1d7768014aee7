// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../attention/attended.hpp"
#include "recording.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_transformers {

// tests/conformance/transformers/ has what the attention of three models was given and what it returned; see the README
// there. A hybrid of two caches is given the same keys and values, of all sequences at once, in random batches.

namespace {

using cellar::AttentionOptions;
using cellar_test::Attention;
using cellar_test::LayerRecord;
using cellar_test::Recording;
using cellar_test::Rows;

/// The largest relative error of a number that is rounded to E.
template <class E>
constexpr double rounding = std::is_same_v<E, float>          ? 0
                            : std::is_same_v<E, cellar::half> ? 0x1p-11
                                                              : 0x1p-8;

/// How far the results of a token's query head may be from the recorded ones, with elements that are rounded by at most
/// `u` of their value.
///
/// A result is an average of values. Rounding the keys moves each score by at most u * s, where s is the largest
/// scale * sum over d of |q_d * k_d|; the soft cap does not increase that. Scores that move by at most x move the
/// weights by at most x in sum. So with values up to v, and rounded up to v * (1 + u), the result moves by at most
/// v * u * s * (1 + u) for the keys, and by v * u for the values. What is computed in float may add v * 1e-6.
double bound_of(const LayerRecord& layer, const Attention& record, std::int64_t token, int head, double u) {
    const int kv_head = head / (layer.heads / layer.kv_heads);
    double s = 0;
    double v = 0;
    const std::int64_t from = layer.window == 0 ? 0 : std::max<std::int64_t>(0, token - layer.window + 1);
    for (std::int64_t other = from; other <= token; ++other) {
        double sum = 0;
        for (int d = 0; d < layer.key_dim; ++d)
            sum += std::abs(double{record.q.at(token, head)[d]} * double{record.k.at(other, kv_head)[d]});
        s = std::max(s, double{layer.scale} * sum);
        for (int d = 0; d < layer.value_dim; ++d) v = std::max(v, std::abs(double{record.v.at(other, kv_head)[d]}));
    }
    return v * (1e-6 + u + u * s * (1 + u));
}

/// A token of a recording.
struct Place {
    int sequence;
    std::int64_t token;
};

/// Batches of one to many tokens of each sequence, mixed at random, until all have been given.
std::vector<std::vector<Place>> random_batches(const Recording& recording, std::mt19937& random) {
    std::vector<std::int64_t> given(recording.sequences.size());
    std::vector<std::vector<Place>> batches;
    while (true) {
        std::vector<Place> batch;
        bool complete = true;
        for (std::size_t s = 0; s < given.size(); ++s) {
            constexpr std::int64_t counts[] = {0, 1, 1, 1, 5, 13, 40};
            const std::int64_t left = recording.tokens(s) - given[s];
            complete = complete && left == 0;
            batch.insert(batch.end(), static_cast<std::size_t>(std::min(left, counts[random() % std::size(counts)])),
                         {static_cast<int>(s), 0});
        }
        if (complete) return batches;
        if (batch.empty()) continue;
        std::shuffle(batch.begin(), batch.end(), random);
        for (Place& place : batch) place.token = given[static_cast<std::size_t>(place.sequence)]++;
        batches.push_back(batch);
    }
}

/// The memory of a recorded model: a cache for the layers with a window, and one for the others.
template <class Layout, class Backend>
class Model {
    using Window = cellar::SlidingWindow<>;
    using Sliding = cellar::Cache<Layout, Window, cellar::DisabledShift, Backend>;
    using Full = cellar::Cache<Layout, cellar::FullCausal, cellar::DisabledShift, Backend>;
    using Memory = cellar::Hybrid<cellar::RunTimePattern, Sliding, Full>;

public:
    /// `layers`: what the model is told of them. What is expected is that of the recording.
    Model(const Recording& recording, std::vector<LayerRecord> layers)
        : recording_{recording}, layers_{std::move(layers)}, memory_{memory_of(layers_)} {}
    explicit Model(const Recording& recording) : Model{recording, recording.layers} {}

    /// The largest difference from what was recorded, in units of its bound.
    double run(unsigned seed) {
        std::mt19937 random{seed};
        double worst = 0;
        for (const std::vector<Place>& batch : random_batches(recording_, random)) {
            cellar::BatchBuilder tokens;
            for (const Place& p : batch)
                tokens.add(cellar::Sequence{p.sequence}, cellar::Position{static_cast<std::int32_t>(p.token)});
            auto pass = memory_.begin(tokens);
            REQUIRE(pass);
            for (int layer = 0; layer < memory_.layers(); ++layer)
                pass->visit(layer, [&](auto& own, int i) {
                    if constexpr (!std::is_same_v<decltype(own), cellar::NoMemory&>)
                        worst = std::max(worst, attend(own, i, layer, batch));
                });
            pass->commit();
        }
        return worst;
    }

private:
    static constexpr double u =
        std::max(rounding<typename Layout::key_format>, rounding<typename Layout::value_format>);

    static Memory memory_of(const std::vector<LayerRecord>& layers) {
        const cellar::CacheLimits limits{.sequences = 3, .capacity = 40, .batch = 120};
        std::vector<int> member_of_layer;
        int window = 0;
        for (const LayerRecord& layer : layers) {
            member_of_layer.push_back(layer.window == 0 ? 1 : 0);
            if (layer.window != 0) window = layer.window;
        }
        const auto shape = [&](int member) {
            const auto n = std::count(member_of_layer.begin(), member_of_layer.end(), member);
            const LayerRecord& any = layers.front();
            return cellar::CacheShape{.layers = static_cast<int>(n),
                                      .kv_heads = any.kv_heads,
                                      .head_dim = any.key_dim,
                                      .value_dim = any.value_dim};
        };
        std::optional<Sliding> sliding;
        if (window != 0) sliding.emplace(shape(0), limits, Window{window});
        return Memory{member_of_layer, std::move(sliding), std::optional<Full>{std::in_place, shape(1), limits}};
    }

    template <class Pass>
    double attend(Pass& pass, int own_layer, int layer, const std::vector<Place>& batch) {
        const auto index = static_cast<std::size_t>(layer);
        Rows q;
        Rows k;
        Rows v;
        for (const Place& place : batch) {
            const Attention& record = recording_.sequences[static_cast<std::size_t>(place.sequence)][index];
            q.append_row(record.q, place.token);
            k.append_row(record.k, place.token);
            v.append_row(record.v, place.token);
        }
        pass.put(own_layer, k.values, v.values);

        const LayerRecord& told = layers_[index];
        const AttentionOptions options{.scale = told.scale, .soft_cap = told.soft_cap, .sinks = told.sinks};
        double worst = 0;
        for (const auto instructions : attention_test::instructions()) {
            Rows out{q.tokens, q.heads, told.value_dim, {}};
            out.values.assign(static_cast<std::size_t>(out.tokens * out.row()), NAN);
            cellar::detail::attend_with(instructions, pass, own_layer, q.values, out.values, options,
                                        cellar::CallingThread{});
            worst = std::max(worst, difference(layer, batch, out));
        }
        return worst;
    }

    double difference(int layer, const std::vector<Place>& batch, const Rows& found) const {
        const auto index = static_cast<std::size_t>(layer);
        const LayerRecord& about = recording_.layers[index];
        double worst = 0;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            const Attention& record = recording_.sequences[static_cast<std::size_t>(batch[i].sequence)][index];
            for (int head = 0; head < about.heads; ++head) {
                double largest = 0;
                for (int d = 0; d < about.value_dim; ++d) {
                    const double x = found.at(static_cast<std::int64_t>(i), head)[d];
                    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
                    largest = std::max(largest, std::abs(x - double{record.out.at(batch[i].token, head)[d]}));
                }
                worst = std::max(worst, largest / bound_of(about, record, batch[i].token, head, u));
            }
        }
        return worst;
    }

    const Recording& recording_;
    std::vector<LayerRecord> layers_;
    Memory memory_;
};

template <class Layout, class Backend = cellar::HostBackend>
void expect_recorded_results() {
    for (const std::string name : {"llama", "gemma3", "gpt_oss"}) {
        const Recording recording = cellar_test::read_recording(name);
        for (unsigned seed = 1; seed <= 3; ++seed) {
            CAPTURE(name);
            CAPTURE(seed);
            CHECK(Model<Layout, Backend>{recording}.run(seed) <= 1);
        }
    }
}

/// The largest difference in units of its bound, if the model is told something else of its layers.
double difference_with(const char* name, auto change) {
    const Recording recording = cellar_test::read_recording(name);
    std::vector<LayerRecord> layers = recording.layers;
    for (LayerRecord& layer : layers) change(layer);
    return Model<cellar::StandardV<float>, cellar::HostBackend>{recording, layers}.run(1);
}

} // namespace

TEST_CASE("transformers: attention over floats returns what the models computed") {
    expect_recorded_results<cellar::StandardV<float>>();
}

TEST_CASE("transformers: attention over floats and permuted values returns what the models computed") {
    expect_recorded_results<cellar::PermutedV<float>>();
}

TEST_CASE("transformers: attention over blocks of floats returns what the models computed") {
    expect_recorded_results<cellar::Blocked<float>>();
}

TEST_CASE("transformers: attention over halves differs from what the models computed by their rounding") {
    expect_recorded_results<cellar::StandardV<cellar::half>>();
}

TEST_CASE("transformers: attention over bfloat16 differs from what the models computed by its rounding") {
    expect_recorded_results<cellar::StandardV<cellar::bfloat16>>();
}

TEST_CASE("transformers: the reference returns what the models computed") {
    expect_recorded_results<cellar::StandardV<float>, cellar::EigenBackend>();
}

TEST_CASE("transformers: a wrong scale, window or logit of a sink is noticed") {
    CHECK(difference_with("llama", [](LayerRecord& layer) { layer.scale *= 1.001F; }) > 10);
    CHECK(difference_with("gemma3", [](LayerRecord& layer) { layer.window -= layer.window == 0 ? 0 : 1; }) > 1000);
    CHECK(difference_with("gemma3", [](LayerRecord& layer) { layer.window += layer.window == 0 ? 0 : 1; }) > 1000);
    CHECK(difference_with("gemma3", [](LayerRecord& layer) { layer.soft_cap = 50; }) > 10);
    CHECK(difference_with("gpt_oss", [](LayerRecord& layer) { layer.sinks.clear(); }) > 1000);
    CHECK(difference_with("gpt_oss", [](LayerRecord& layer) { layer.sinks[0] += 0.001F; }) > 10);
}

} // namespace test_transformers
