// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A Llama-like model with a KV cache: RMS norm, rotary positions, grouped-query attention, SwiGLU, random weights.
// (1) to (6) mark all that it needs of cellar. Exits with 1 if tokens or logits differ from those without a cache.
#include <cellar/cellar.hpp>

#include <algorithm>
#include <array>
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

using Cache = cellar::Cache<cellar::StandardV<float>>; // float elements, full causal attention
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

// [attention]
/// softmax(queries * keys^T / sqrt(dim)) * values, for each token over the cells that it sees.
template <class Rows, class Visible>
Matrix attend(const Matrix& queries, const Rows& keys, const Rows& values, int first_cell, Visible visible) {
    Matrix out{queries.rows, heads * dim};
    for (int token = 0; token < queries.rows; ++token) {
        std::vector<int> cells; // as indices into the views, which begin with first_cell
        for (const cellar::CellRange run : visible(token))
            for (int i = 0; i < run.count; ++i) cells.push_back(run.first + i - first_cell);
        for (int head = 0; head < heads; ++head) {
            const int kv_head = head * kv_heads / heads;
            const float scale = 1 / std::sqrt(static_cast<float>(dim));
            std::vector<float> weights(cells.size());
            for (std::size_t c = 0; c < cells.size(); ++c)
                for (int i = 0; i < dim; ++i)
                    weights[c] += scale * queries(token, head * dim + i) * keys(cells[c], kv_head, i);
            softmax(weights);
            for (std::size_t c = 0; c < cells.size(); ++c)
                for (int i = 0; i < dim; ++i) out(token, head * dim + i) += weights[c] * values(cells[c], kv_head, i);
        }
    }
    return out;
}
// [/attention]

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
    auto pass = cache.begin(cellar::Tokens{text, first, static_cast<int>(tokens.size())}); // (2) opens a pass
    if (!pass) throw std::runtime_error{to_string(pass.error())};
    const Matrix logits = run(model, tokens, first.value, [&](int layer, const auto& q, const auto& k, const auto& v) {
        pass->put(layer, k.values, v.values);                              // (3) stores keys and values of these tokens
        const auto keys = pass->keys(layer), values = pass->values(layer); // (4) views of those of the whole text
        const auto visible = [&](int token) { return pass->visible(token); }; // (5) runs of cells that a token sees
        return attend(q, keys, values, pass->history().first, visible);
    });
    pass->commit(); // (6) keeps the tokens
    return {logits.values.end() - vocabulary, logits.values.end()};
}
// [/forward]

Matrix run_without_cache(const Model& model, const std::vector<int>& text) {
    return run(model, text, 0, [](int, const auto& q, const auto& k, const auto& v) {
        const auto rows = [](auto& x) { return cellar::contiguous_view(x.values.data(), x.rows, kv_heads, dim); };
        return attend(q, rows(k), rows(v), 0, [](int token) { return std::array{cellar::CellRange{0, token + 1}}; });
    });
}

int most_likely(const std::vector<float>& logits) {
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

} // namespace

int main() {
    const Model model;
    // [generate]
    Cache cache{{layers, kv_heads, dim}, {.sequences = 1, .capacity = 64, .batch = 16}}; // (1) allocates all memory
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
