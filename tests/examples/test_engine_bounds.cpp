// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How far the engine's logits are from libllama's where bits differ: measured by how far libllama's own are apart.
#include "engine/engine.hpp"
#include "engine/libllama.hpp"
#include "engine/vocabulary.hpp"
#include "engine_texts.hpp"
#include "random_gguf.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace test_engine_bounds {

namespace {

using engine::Way;
using llama::Matrix;
using Batch = std::vector<llama::NewTokens>;

constexpr int context = 256;

class OfEngine {
public:
    OfEngine(const engine::Model& model, Way way, const std::string& format)
        : engine_{model,
                  {.limits = {.texts = 2, .context = context, .cells = context, .batch = 64},
                   .format = format,
                   .way = way}} {}

    Matrix run(const Batch& batch) {
        cellar::Refusal refusal;
        const Matrix* const logits = engine_.run(batch, refusal, engine::all_tokens);
        REQUIRE(logits != nullptr);
        return *logits;
    }
    void remove(int begin, int end) {
        REQUIRE(engine_.memory().remove(0, begin, end));
        CHECK(engine_.memory().audit().empty());
    }
    void clear() {
        for (const int text : {0, 1}) engine_.memory().clear(text);
    }

private:
    engine::Engine engine_;
};

class OfLibllama {
public:
    OfLibllama(const std::string& path, std::pair<ggml_type, ggml_type> types, bool flash)
        : libllama_{
            path,
            {.texts = 2, .cells = context, .batch = 64, .keys = types.first, .values = types.second, .flash = flash}} {}

    Matrix run(const Batch& batch) { return libllama_.run(batch, true); }
    void remove(int begin, int end) { libllama_.remove(0, begin, end); }
    void clear() {
        for (const int text : {0, 1}) libllama_.clear(text);
    }

private:
    engine::Libllama libllama_;
};

OfLibllama with_flash(const std::string& path, const std::string& format) {
    return {path, engine::types_of(format), true};
}
/// Without flash attention, libllama takes no values in fewer bits.
OfLibllama without_flash(const std::string& path, const std::string& format) {
    const auto [keys, values] = engine::types_of(format);
    return {path, {keys, ggml_is_quantized(values) ? GGML_TYPE_F16 : values}, false};
}

/// How far logits are from those that they are held against.
class Distance {
public:
    void add(const Matrix& logits, const Matrix& reference) {
        REQUIRE(logits.rows() == reference.rows());
        REQUIRE(logits.allFinite());
        CHECK(reference.cwiseAbs().maxCoeff() > 0.1F);
        const Matrix differences = logits - reference;
        largest_ = std::max(largest_, double{differences.cwiseAbs().maxCoeff()});
        squares_ += differences.cast<double>().squaredNorm();
        count_ += differences.size();
    }

    double largest() const { return largest_; }
    /// The root of the mean square.
    double mean() const { return std::sqrt(squares_ / static_cast<double>(count_)); }

private:
    double largest_ = 0;
    double squares_ = 0;
    std::int64_t count_ = 0;
};

/// Both are roundings of as many values: means of all logits differ by chance, and the largest ones by more.
void expect_as_near(const Distance& ours, const Distance& theirs) {
    CHECK(theirs.mean() > 0);
    CHECK(ours.mean() <= 1.2 * theirs.mean());
    CHECK(ours.largest() <= 1.75 * theirs.largest());
}

/// A prompt, single tokens, and a second text in batches with the first one.
template <class Compute>
void many_passes(Compute compute) {
    const std::vector<int> one = text_of(60, 1);
    const std::vector<int> two = text_of(60, 2);
    compute(Batch{part(0, one, 0, 40)});
    for (int i = 40; i < 48; ++i) compute(Batch{part(0, one, i, i + 1)});
    compute(Batch{part(1, two, 0, 30), part(0, one, 48, 51)});
    for (int i = 0; i < 8; ++i) compute(Batch{part(0, one, 51 + i, 52 + i), part(1, two, 30 + i, 31 + i)});
}

/// `own` is as near to the reference as `other` is.
template <class Reference, class Own, class Other>
void expect_as_near(Reference& reference, Own& own, Other& other) {
    Distance ours;
    Distance theirs;
    many_passes([&](const Batch& batch) {
        const Matrix expected = reference.run(batch);
        ours.add(own.run(batch), expected);
        theirs.add(other.run(batch), expected);
    });
    expect_as_near(ours, theirs);
}

/// One text of both, which loses tokens from its middle three times, and grows by single tokens. Calls step(text, logits
/// of the newest token by a, by b) after each of these.
template <class A, class B, class Step>
void grow_and_shift(A& a, B& b, Step step) {
    std::vector<int> text = text_of(60, 1);
    static_cast<void>(a.run({part(0, text, 0, 60)}));
    static_cast<void>(b.run({part(0, text, 0, 60)}));
    for (const int removed : {13, 15, 17}) {
        a.remove(4, 4 + removed);
        b.remove(4, 4 + removed);
        text.erase(text.begin() + 4, text.begin() + 4 + removed);
        for (int i = 0; i < 8; ++i) {
            const auto length = static_cast<int>(text.size());
            text.push_back((29 * length + removed) % 160);
            const Batch newest{part(0, text, length, length + 1)};
            const Matrix of_a = a.run(newest);
            step(text, of_a, b.run(newest));
        }
    }
}

/// Of the newest token of a text that is computed from its beginning.
template <class Computer>
Matrix last_logits(Computer& computer, const std::vector<int>& text) {
    const auto length = static_cast<int>(text.size());
    computer.clear();
    static_cast<void>(computer.run({part(0, text, 0, length - 1)}));
    return computer.run({part(0, text, length - 1, length)});
}

/// Distances of all steps. In each, ours is no larger than theirs, but for chance.
struct Steps {
    Distance ours;
    Distance theirs;

    void add(const Matrix& own, const Matrix& own_reference, const Matrix& other, const Matrix& other_reference) {
        Distance of_own;
        Distance of_other;
        of_own.add(own, own_reference);
        of_other.add(other, other_reference);
        CHECK(of_own.mean() <= 1.6 * of_other.mean());
        ours.add(own, own_reference);
        theirs.add(other, other_reference);
    }
};

const char* const all[] = {"llama", "qwen2", "qwen3", "gemma3", "lfm2"};
const char* const with_shifts[] = {"llama", "qwen2", "qwen3", "gemma3"};
const char* const with_heads_of_32[] = {"llama", "qwen3", "gemma3"};

} // namespace

TEST_CASE("engine: attend is as near to libllama's flash attention as libllama's other path is") {
    engine::print_errors_only();
    for (const std::string architecture : all) {
        CAPTURE(architecture);
        for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
            CAPTURE(ggml_type_name(type));
            const std::string path = written(random_model(architecture, type));
            const engine::Model model{path, 1};
            OfEngine attend{model, Way::attend, "half"};
            OfLibllama flash = with_flash(path, "half");
            OfLibllama plain = without_flash(path, "half");
            expect_as_near(flash, attend, plain);
        }
    }
}

TEST_CASE("engine: with keys and values in q8_0, ggml's attention has the bits of libllama's, and attend is as near") {
    engine::print_errors_only();
    for (const std::string architecture : with_heads_of_32) { // libllama rotates heads of 64 before it stores them
        CAPTURE(architecture);
        for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
            CAPTURE(ggml_type_name(type));
            const std::string path = written(random_model(architecture, type));
            const engine::Model model{path, 1};
            OfEngine attend{model, Way::attend, "q8_0"};
            OfEngine own_flash{model, Way::flash, "q8_0"};
            OfLibllama flash = with_flash(path, "q8_0");
            OfLibllama plain = without_flash(path, "q8_0");
            many_passes([&](const Batch& batch) { CHECK(own_flash.run(batch) == flash.run(batch)); });
            flash.clear();
            expect_as_near(flash, attend, plain);
        }
    }
}

TEST_CASE("engine: keys and values in q8_0 move logits no further from those in half than libllama's do") {
    engine::print_errors_only();
    for (const std::string architecture : with_heads_of_32) {
        CAPTURE(architecture);
        for (const int head_dim : {32, 64}) {
            CAPTURE(head_dim);
            RandomModel random = random_model(architecture);
            random.head_dim = head_dim;
            const std::string path = written(random);
            const engine::Model model{path, 1};
            OfLibllama halves = with_flash(path, "half");
            OfLibllama other = with_flash(path, "q8_0");
            for (const Way way : {Way::attend, Way::flash}) {
                halves.clear();
                other.clear();
                OfEngine own{model, way, "q8_0"};
                expect_as_near(halves, own, other);
            }
        }
    }
}

TEST_CASE("engine: after shifts of one layer, logits are as near as libllama's to those of the text computed anew") {
    engine::print_errors_only();
    for (const std::string architecture : with_shifts) {
        CAPTURE(architecture);
        RandomModel random = random_model(architecture);
        random.layers = 1; // whose keys and values depend on tokens and positions alone
        const std::string path = written(random);
        const engine::Model model{path, 1};
        for (const Way way : {Way::attend, Way::flash}) {
            OfEngine own{model, way, "half"};
            OfEngine own_anew{model, way, "half"};
            OfLibllama other = with_flash(path, "half");
            OfLibllama other_anew = with_flash(path, "half");
            Steps steps;
            grow_and_shift(own, other, [&](const std::vector<int>& text, const Matrix& ours, const Matrix& theirs) {
                steps.add(ours, last_logits(own_anew, text), theirs, last_logits(other_anew, text));
            });
            expect_as_near(steps.ours, steps.theirs);
        }
    }
}

TEST_CASE("engine: after shifts of several layers, logits in half are as near as libllama's to those in float") {
    engine::print_errors_only();
    for (const std::string architecture : with_shifts) { // of Gemma 3, layers with two windows and two frequencies
        CAPTURE(architecture);
        const std::string path = written(random_model(architecture));
        const engine::Model model{path, 1};
        for (const Way way : {Way::attend, Way::flash}) {
            OfEngine own{model, way, "half"};
            OfLibllama other = with_flash(path, "half");
            std::vector<Matrix> in_float; // of each step
            {
                OfLibllama floats = without_flash(path, "float");
                OfLibllama again = without_flash(path, "float");
                grow_and_shift(floats, again, [&](const std::vector<int>&, const Matrix& logits, const Matrix&) {
                    in_float.push_back(logits);
                });
            }
            Steps steps;
            std::size_t step = 0;
            grow_and_shift(own, other, [&](const std::vector<int>&, const Matrix& ours, const Matrix& theirs) {
                steps.add(ours, in_float[step], theirs, in_float[step]);
                ++step;
            });
            expect_as_near(steps.ours, steps.theirs);
        }
    }
}

} // namespace test_engine_bounds
