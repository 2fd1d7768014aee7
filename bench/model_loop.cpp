// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

/// `decode_model`: decode steps of a whole model, of the shape of llama2.c's stories260K: one token of each sequence,
/// on one thread, in plain loops. cellar lists the cells of each token once in a pass, through `visible`. The counter
/// `arrays` is the same model with an array of keys and one of values for each sequence, and `mask` reads the cells of
/// the same cache through its mask. All variants alternate and must agree in their logits.
namespace cellar::bench {
namespace {

constexpr int layers = 5, dim = 64, hidden = 172, vocabulary = 512;
constexpr int heads = 8, kv_heads = 4, head_dim = dim / heads, kv_dim = kv_heads * head_dim;
constexpr int context = 512;

using Row = std::vector<float>;
using Cache = cellar::Cache<StandardV<float>>;

struct Matrix {
    Matrix(int rows, int width, std::mt19937& random) : columns{width} {
        std::normal_distribution<float> weight{0.0F, 1 / std::sqrt(static_cast<float>(columns))};
        for (int i = 0; i < rows * columns; ++i) weights.push_back(weight(random));
    }
    void times(const float* x, std::span<float> out) const {
        const float* w = weights.data();
        for (float& o : out) {
            float sum = 0;
            for (int i = 0; i < columns; ++i) sum += w[i] * x[i];
            o = sum;
            w += columns;
        }
    }
    int columns;
    Row weights;
};

struct Layer {
    explicit Layer(std::mt19937& random)
        : q{dim, dim, random},
          k{kv_dim, dim, random},
          v{kv_dim, dim, random},
          o{dim, dim, random},
          gate{hidden, dim, random},
          up{hidden, dim, random},
          down{dim, hidden, random} {}
    Matrix q, k, v, o, gate, up, down;
};

struct Model {
    std::mt19937 random{5};
    std::vector<Layer> all = [this] {
        std::vector<Layer> made;
        for (int layer = 0; layer < layers; ++layer) made.emplace_back(random);
        return made;
    }();
    Matrix classifier{vocabulary, dim, random};
};

void normalise(const float* x, Row& out) {
    float squares = 1e-5F;
    for (int i = 0; i < dim; ++i) squares += x[i] * x[i] / dim;
    for (int i = 0; i < dim; ++i) out[static_cast<std::size_t>(i)] = x[i] / std::sqrt(squares);
}

void rotate(float* rows, int count, int position) {
    for (int h = 0; h < count; ++h)
        for (int i = 0; i < head_dim; i += 2) {
            float* const pair = rows + h * head_dim + i;
            const float angle = static_cast<float>(position) * std::pow(10000.0F, -static_cast<float>(i) / head_dim);
            const float a = pair[0];
            pair[0] = a * std::cos(angle) - pair[1] * std::sin(angle);
            pair[1] = a * std::sin(angle) + pair[1] * std::cos(angle);
        }
}

/// The keys and values of one token's history: row i begins at row(i).
struct PlainRows {
    const float* keys;
    const float* values;
    int count;
    std::int64_t row(int i) const { return std::int64_t{i} * kv_dim; }
};
struct ListedRows {
    const float* keys;
    const float* values;
    int count;
    const std::int64_t* offsets;
    std::int64_t row(int i) const { return offsets[i]; }
};

template <class Rows>
void attend(const float* q, const Rows& history, Row& weights, float* out) {
    for (int h = 0; h < heads; ++h) {
        const int own = h * kv_heads / heads * head_dim;
        float largest = -1e30F;
        for (int i = 0; i < history.count; ++i) {
            const float* const key = history.keys + history.row(i) + own;
            float sum = 0;
            for (int d = 0; d < head_dim; ++d) sum += q[h * head_dim + d] * key[d];
            weights[static_cast<std::size_t>(i)] = sum / std::sqrt(static_cast<float>(head_dim));
            largest = std::max(largest, weights[static_cast<std::size_t>(i)]);
        }
        float total = 0;
        for (int i = 0; i < history.count; ++i)
            total += weights[static_cast<std::size_t>(i)] = std::exp(weights[static_cast<std::size_t>(i)] - largest);
        float* const head = out + h * head_dim;
        std::fill_n(head, head_dim, 0.0F);
        for (int i = 0; i < history.count; ++i) {
            const float* const value = history.values + history.row(i) + own;
            for (int d = 0; d < head_dim; ++d) head[d] += weights[static_cast<std::size_t>(i)] / total * value[d];
        }
    }
}

/// One array of keys and one of values for each layer and sequence.
class Arrays {
public:
    explicit Arrays(int sequences)
        : sequences_{sequences}, keys_(size(sequences)), values_(size(sequences)), weights_(context) {}

    void begin(int position) { position_ = position; }
    void put(int layer, const Row& k, const Row& v) {
        for (int s = 0; s < sequences_; ++s) {
            const std::size_t to = at(layer, s) + static_cast<std::size_t>(position_) * kv_dim;
            std::copy_n(k.begin() + std::ptrdiff_t{s} * kv_dim, kv_dim,
                        keys_.begin() + static_cast<std::ptrdiff_t>(to));
            std::copy_n(v.begin() + std::ptrdiff_t{s} * kv_dim, kv_dim,
                        values_.begin() + static_cast<std::ptrdiff_t>(to));
        }
    }
    void attend(int layer, int s, const float* q, float* out) {
        const std::size_t first = at(layer, s);
        bench::attend(q, PlainRows{keys_.data() + first, values_.data() + first, position_ + 1}, weights_, out);
    }
    void end() {}
    void rewind(int) {}

private:
    static std::size_t size(int sequences) { return static_cast<std::size_t>(layers * sequences * context * kv_dim); }
    std::size_t at(int layer, int s) const {
        return static_cast<std::size_t>((layer * sequences_ + s) * context) * kv_dim;
    }

    int sequences_;
    int position_ = 0;
    Row keys_, values_, weights_;
};

/// The same in a cache. `ReadsMask`: finds the cells of a token in its row of the mask, for every layer, as the model
/// reads it; otherwise lists them once in a pass.
template <bool ReadsMask>
class Cells {
public:
    explicit Cells(int sequences)
        : cache_{{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
                 {.sequences = sequences, .capacity = context, .batch = sequences}},
          weights_(context),
          offsets_(static_cast<std::size_t>(sequences)) {
        for (std::int32_t s = 0; s < sequences; ++s) all_.push_back(s);
    }

    void begin(int position) {
        const std::vector<std::int32_t> positions(all_.size(), position);
        static_cast<void>(pass_.emplace(cache_.begin({positions, all_}).value()));
        for (std::size_t s = 0; s < all_.size() && !ReadsMask; ++s) {
            offsets_[s].clear();
            for (const CellRange run : pass_->visible(all_[s]))
                for (Cell cell = run.first; cell < run.first + run.count; ++cell)
                    offsets_[s].push_back(std::int64_t{cell - pass_->history().first} * kv_dim);
        }
    }
    void put(int layer, const Row& k, const Row& v) { pass_->put(layer, k, v); }
    void attend(int layer, int s, const float* q, float* out) {
        std::vector<std::int64_t>& offsets = offsets_[static_cast<std::size_t>(s)];
        if constexpr (ReadsMask) {
            const auto mask = pass_->mask();
            offsets.clear();
            for (std::int32_t c = 0; c < pass_->history().count; ++c)
                if (mask(s, c) == 0) offsets.push_back(std::int64_t{c} * kv_dim);
        }
        const ListedRows rows{pass_->keys(layer).data_handle(), pass_->values(layer).data_handle(),
                              static_cast<int>(offsets.size()), offsets.data()};
        bench::attend(q, rows, weights_, out);
    }
    void end() {
        pass_->commit();
        pass_.reset();
    }
    void rewind(int length) {
        for (const std::int32_t s : all_)
            expect(cache_.remove(cellar::Sequence{s}, cellar::Position{length}, to_end).has_value(),
                   "decode_model: remove was refused");
    }

private:
    Cache cache_;
    std::vector<std::int32_t> all_;
    std::optional<PassOf<Cache>> pass_;
    Row weights_;
    std::vector<std::vector<std::int64_t>> offsets_;
};

/// One token of each sequence through the model. Returns the logits.
template <class Memory>
void step(const Model& model, Memory& memory, int sequences, int position, Row& logits) {
    const auto rows = static_cast<std::size_t>(sequences);
    Row x(rows * dim), q(rows * dim), k(rows * kv_dim), v(rows * kv_dim);
    Row normal(dim), attended(dim), projected(dim), gate(hidden), up(hidden);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) + static_cast<float>(position));
    memory.begin(position);
    for (int l = 0; l < layers; ++l) {
        const Layer& layer = model.all[static_cast<std::size_t>(l)];
        for (std::size_t s = 0; s < rows; ++s) {
            normalise(x.data() + s * dim, normal);
            layer.q.times(normal.data(), std::span{q}.subspan(s * dim, dim));
            layer.k.times(normal.data(), std::span{k}.subspan(s * kv_dim, kv_dim));
            layer.v.times(normal.data(), std::span{v}.subspan(s * kv_dim, kv_dim));
            rotate(q.data() + s * dim, heads, position);
            rotate(k.data() + s * kv_dim, kv_heads, position);
        }
        memory.put(l, k, v);
        for (std::size_t s = 0; s < rows; ++s) {
            memory.attend(l, static_cast<int>(s), q.data() + s * dim, attended.data());
            layer.o.times(attended.data(), projected);
            for (std::size_t i = 0; i < dim; ++i) x[s * dim + i] += projected[i];
            normalise(x.data() + s * dim, normal);
            layer.gate.times(normal.data(), gate);
            layer.up.times(normal.data(), up);
            for (std::size_t i = 0; i < hidden; ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
            layer.down.times(gate.data(), projected);
            for (std::size_t i = 0; i < dim; ++i) x[s * dim + i] += projected[i];
        }
    }
    for (std::size_t s = 0; s < rows; ++s)
        model.classifier.times(x.data() + s * dim, std::span{logits}.subspan(s * vocabulary, vocabulary));
    memory.end();
}

constexpr int prompt = 240; // tokens of each sequence before the measured steps
constexpr int steps = 4;

template <class Memory>
void run_steps(const Model& model, Memory& memory, int sequences, Row& logits, Stopwatch& watch) {
    watch.start();
    for (int i = 0; i < steps; ++i) step(model, memory, sequences, prompt + i, logits);
    watch.stop(steps * sequences);
    memory.rewind(prompt);
}

void measure_model(benchmark::State& state, int sequences) {
    const Model model;
    Arrays arrays{sequences};
    Cells<false> listed{sequences};
    Cells<true> masked{sequences};
    Row expected(static_cast<std::size_t>(sequences) * vocabulary), logits(expected.size());
    for (int position = 0; position < prompt; ++position) {
        step(model, arrays, sequences, position, expected);
        step(model, listed, sequences, position, logits);
        expect(logits == expected, "decode_model: the logits differ from those of the arrays");
        step(model, masked, sequences, position, logits);
        expect(logits == expected, "decode_model: the logits through the mask differ");
    }
    Stopwatch arrays_watch, mask_watch;
    measure(state, [&](Stopwatch& watch) {
        run_steps(model, arrays, sequences, expected, arrays_watch);
        run_steps(model, listed, sequences, logits, watch);
        expect(logits == expected, "decode_model: the logits differ from those of the arrays");
        run_steps(model, masked, sequences, logits, mask_watch);
    });
    state.counters["arrays"] = arrays_watch.median();
    state.counters["mask"] = mask_watch.median();
}

} // namespace

void add_model_loop() {
    for (const int sequences : {1, 8, 32})
        add(
            "decode_model/llama2c/" + std::to_string(sequences) + "/"
                + std::to_string((sequences * context + 1023) / 1024) + "k/cellar",
            [=](benchmark::State& state) { measure_model(state, sequences); }, 20);
}

} // namespace cellar::bench
