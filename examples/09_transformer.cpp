// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A Llama-like model with a KV cache: RMS norm, rotary positions, grouped-query attention, SwiGLU, random weights.
// (1) to (5) mark all that it needs of cellar. Exits with 1 if tokens or logits differ from those without a cache.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

// [sizes]
constexpr int layers = 3;
constexpr int heads = 6;    // of queries
constexpr int kv_heads = 2; // of keys and values: each serves three query heads
constexpr int dim = 8;      // of a head

using Cache = cellar::Cache<cellar::Blocked<float>>; // bf16 in a real model: float, to compare logits closely
// [/sizes]
constexpr int hidden = 48;
constexpr int intermediate = 96;
constexpr int vocabulary = 64;

struct Matrix {
    int rows;
    int columns;
    std::vector<float> values = std::vector<float>(static_cast<std::size_t>(rows * columns));

    float& operator()(int row, int column) { return values.data()[row * columns + column]; }
    float operator()(int row, int column) const { return values.data()[row * columns + column]; }
};

struct Weights : Matrix { // [outputs, inputs]
    Weights(int outputs, int inputs) : Matrix{outputs, inputs} {
        static std::mt19937 random{1};
        for (float& weight : values) weight = static_cast<float>(random()) * 0x1p-33F - 0.25F;
    }
};

struct Layer {
    Weights attention_norm{1, hidden}, feed_forward_norm{1, hidden};
    Weights query{heads * dim, hidden}, output{hidden, heads*dim};
    Weights key{kv_heads * dim, hidden}, value{kv_heads * dim, hidden};
    Weights gate{intermediate, hidden}, up{intermediate, hidden}, down{hidden, intermediate};
};

struct Model {
    Weights embedding{vocabulary, hidden};
    Layer layer[layers];
    Weights norm{1, hidden};
};

Matrix multiply(const Matrix& x, const Weights& w) {
    Matrix y{x.rows, w.rows};
    for (int row = 0; row < y.rows; ++row)
        for (int out = 0; out < y.columns; ++out)
            for (int in = 0; in < x.columns; ++in) y(row, out) += x(row, in) * w(out, in);
    return y;
}

void add(const Matrix& y, Matrix& x) {
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
}

Matrix rms_norm(Matrix x, const Weights& w) {
    for (int row = 0; row < x.rows; ++row) {
        float mean = 0; // of the squares
        for (int i = 0; i < x.columns; ++i) mean += x(row, i) * x(row, i) / static_cast<float>(x.columns);
        for (int i = 0; i < x.columns; ++i) x(row, i) *= w(0, i) / std::sqrt(mean + 1e-5F);
    }
    return x;
}

/// Rotates row i to position first + i. In each head, elements i and i + dim / 2 are a pair.
Matrix rotate(const Matrix& x, int first) {
    Matrix y{x.rows, x.columns};
    for (int row = 0; row < x.rows; ++row)
        for (int i = 0; i < x.columns; ++i) {
            const auto angle = static_cast<float>((first + row) * std::pow(10000.0, -2.0 * (i % (dim / 2)) / dim));
            const float other = i % dim < dim / 2 ? -x(row, i + dim / 2) : x(row, i - dim / 2);
            y(row, i) = x(row, i) * std::cos(angle) + other * std::sin(angle);
        }
    return y;
}

Matrix feed_forward(const Matrix& x, const Layer& w) {
    Matrix gate = multiply(x, w.gate);
    const Matrix up = multiply(x, w.up);
    for (std::size_t i = 0; i < up.values.size(); ++i) gate.values[i] *= up.values[i] / (1 + std::exp(-gate.values[i]));
    return multiply(gate, w.down);
}

void softmax(std::vector<float>& x) {
    const float largest = *std::max_element(x.begin(), x.end());
    float sum = 0;
    for (float& value : x) sum += value = std::exp(value - largest);
    for (float& value : x) value /= sum;
}

/// softmax(queries * keys^T / sqrt(dim)) * values, where each token sees itself and those before it.
Matrix plain_attention(const Matrix& queries, const Matrix& keys, const Matrix& values) {
    Matrix out{queries.rows, heads * dim};
    for (int token = 0; token < queries.rows; ++token)
        for (int head = 0; head < heads; ++head) {
            const int of_query = head * dim;
            const int of_key = head * kv_heads / heads * dim;
            std::vector<float> weights;
            for (int other = 0; other <= token; ++other) {
                float score = 0;
                for (int i = 0; i < dim; ++i) score += queries(token, of_query + i) * keys(other, of_key + i);
                weights.push_back(score / std::sqrt(static_cast<float>(dim)));
            }
            softmax(weights);
            for (int other = 0; other <= token; ++other)
                for (int i = 0; i < dim; ++i)
                    out(token, of_query + i) += weights.data()[other] * values(other, of_key + i);
        }
    return out;
}

/// Runs the model with the given attention. Returns a row of logits for each token.
Matrix run(const Model& model, const std::vector<int>& tokens, int first, auto attention) {
    Matrix x{static_cast<int>(tokens.size()), hidden};
    for (int row = 0; row < x.rows; ++row)
        for (int i = 0; i < hidden; ++i) x(row, i) = model.embedding(tokens.data()[row], i);
    for (int i = 0; i < layers; ++i) {
        const Layer& w = model.layer[i];
        const Matrix normed = rms_norm(x, w.attention_norm);
        const Matrix q = rotate(multiply(normed, w.query), first);
        const Matrix k = rotate(multiply(normed, w.key), first);
        const Matrix v = multiply(normed, w.value);
        add(multiply(attention(i, q, k, v), w.output), x);
        add(feed_forward(rms_norm(x, w.feed_forward_norm), w), x);
    }
    return multiply(rms_norm(x, model.norm), model.embedding);
}

// [forward]
/// Runs the next tokens of the text. Returns the logits after the last one.
std::vector<float> forward(const Model& model, Cache& cache, const std::vector<int>& tokens) {
    const cellar::Sequence text{0};
    const cellar::Position first = cache.next(text);
    auto pass = cache.begin(cellar::BatchBuilder{text, first, static_cast<int>(tokens.size())}); // (2) opens a pass
    if (!pass) throw std::runtime_error{to_string(pass.error())};
    const Matrix logits = run(model, tokens, first.value, [&](int layer, const auto& q, const auto& k, const auto& v) {
        pass->put(layer, k.values, v.values); // (3) stores keys and values of these tokens
        Matrix out{q.rows, heads * dim};
        cellar::attend(*pass, layer, q.values, out.values); // (4) attention over all that each token sees
        return out;
    });
    pass->commit(); // (5) keeps the tokens
    return {logits.values.end() - vocabulary, logits.values.end()};
}
// [/forward]

Matrix run_without_cache(const Model& model, const std::vector<int>& text) {
    return run(model, text, 0,
               [](int, const auto& q, const auto& k, const auto& v) { return plain_attention(q, k, v); });
}

int most_likely(const std::vector<float>& logits) {
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

} // namespace

int main() {
    const Model model;
    // [generate]
    Cache cache{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                {.sequences = 1, .capacity = 64, .batch = 16}}; // (1) allocates all memory
    std::vector<int> text{3, 14, 15, 9, 26, 5, 35, 8, 9, 7};
    std::vector<std::vector<float>> logits{forward(model, cache, text)}; // prefill: the prompt in one pass
    while (text.size() < 40) {
        text.push_back(most_likely(logits.back()));
        logits.push_back(forward(model, cache, {text.back()})); // decode: one token a pass
    }
    // [/generate]
    const Matrix expected = run_without_cache(model, text);
    const float* row = &expected.values[expected.values.size() - logits.size() * vocabulary];
    bool same = true;
    for (const std::vector<float>& found : logits) {
        const std::vector<float> wanted(row, row + vocabulary);
        row += vocabulary;
        same = same && most_likely(found) == most_likely(wanted);
        for (int i = 0; i < vocabulary; ++i) same = same && std::abs(found.data()[i] - wanted.data()[i]) < 1e-4F;
    }
    if (!same) std::fputs("the logits with a cache differ from those without it\n", stderr);
    return same ? 0 : 1;
}
