// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Keys that are stored without positions, and rotated as attention reads them: `RotateOnRead`. Compared with a naive
// model that keeps every token and rotates its key in double, under random operations of all kinds, and with keys that
// are rotated before they are put.
#include "../layout/archetypes.hpp"
#include "attended.hpp"
#include "formats.hpp"
#include "random_cases.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_rotated_rows {

using namespace cellar;
using attention_test::Floats;
using attention_test::SomeThreads;

namespace {

/// Heads of keys and values, and the elements of a key that are rotated.
struct Dims {
    int kv_heads;
    int group; ///< query heads for each of them
    int key_dim;
    int value_dim; ///< 0: the first 4 elements of the keys
    int pairs;
    int begin = 0;

    int heads() const { return kv_heads * group; }
    int out_dim() const { return value_dim == 0 ? 4 : value_dim; }
};

/// A key at a position, by the definition and in double.
std::vector<double> rotated(std::span<const float> key, const std::vector<double>& frequencies, bool interleaved,
                            int begin, std::int64_t position) {
    std::vector<double> result(key.begin(), key.end());
    const std::size_t pairs = frequencies.size();
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        const std::size_t i = static_cast<std::size_t>(begin) + (interleaved ? 2 * pair : pair);
        const std::size_t j = interleaved ? i + 1 : i + pairs;
        const double angle = static_cast<double>(position) * frequencies[pair];
        result[i] = key[i] * std::cos(angle) - key[j] * std::sin(angle);
        result[j] = key[i] * std::sin(angle) + key[j] * std::cos(angle);
    }
    return result;
}

/// A token as it was put in each layer, after encoding.
struct Token {
    std::vector<Floats> keys;
    std::vector<Floats> values;
};

constexpr int layers = 3; // rotated, not rotated, and one that reads the memory of the first
constexpr int sequences = 3;

template <class Layout, class Window, class Pairing, class Backend>
class Trial {
    using Shift = RotateOnRead<Pairing>;
    using Memory = Cache<Layout, Window, Shift, Backend>;
    static constexpr bool interleaved = !std::is_same_v<Pairing, Neox>;

public:
    Trial(const Dims& dims, const Window& window, unsigned seed)
        : dims_{dims},
          window_{window},
          random_{seed},
          memory_{shape(), {.sequences = sequences, .cells = 1200, .batch = 200}, window, shift()},
          tokens_(sequences) {}

    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            const Sequence s{draw(0, sequences - 1)};
            switch (draw(0, 7)) {
            case 0:
                copy(s, Sequence{draw(0, sequences - 1)});
                break;
            case 1:
                remove(s);
                break;
            case 2:
                splice(s);
                break;
            case 3:
                rewind(s);
                break;
            case 4:
                go_back_to_a_snapshot(s);
                break;
            case 5:
                memory_.defragment();
                break;
            default:
                break;
            }
            attend_to_more();
        }
    }

    std::int64_t compared() const { return compared_; }
    std::int64_t shifted() const { return shifted_; }

private:
    std::vector<Token>& of(Sequence s) { return tokens_[static_cast<std::size_t>(s.value)]; }

    int draw(int from, int to) { return std::uniform_int_distribution<int>{from, to}(random_); }

    Floats draw_rows(int n, float size) {
        Floats rows(static_cast<std::size_t>(n));
        std::uniform_real_distribution<float> any{-size, size};
        for (float& x : rows) x = any(random_);
        return rows;
    }

    CacheShape shape() const {
        const LayerShape own{dims_.kv_heads, dims_.key_dim, dims_.value_dim};
        LayerShape shared = own;
        shared.shares_layer = 0;
        return CacheShape{.each_layer = {own, own, shared}};
    }
    std::vector<double> frequencies(int layer) const {
        if (layer == 1) return {};
        return rope_frequencies(2 * dims_.pairs, 100.0); // large angles at few positions
    }
    Shift shift() const {
        std::vector<std::vector<double>> all{frequencies(0), frequencies(1), {0.3}}; // the last one is not used
        if constexpr (std::is_same_v<Pairing, RunTimePairing>) {
            return RopeShift<Pairing>::per_layer(std::move(all), {.interleaved = true}, dims_.begin);
        } else {
            return RopeShift<Pairing>::per_layer(std::move(all), dims_.begin);
        }
    }

    void copy(Sequence from, Sequence to) {
        const int end = draw(0, memory_.next(from).value);
        if (from == to || !memory_.copy_prefix(from, to, Position{end})) return;
        of(to) = {of(from).begin(), of(from).begin() + end};
    }
    void remove(Sequence s) {
        const int length = memory_.next(s).value;
        const int begin = draw(0, length), end = draw(begin, length);
        if (!memory_.remove(s, Position{begin}, Position{end})) return;
        if (end < length && begin < end) ++shifted_;
        of(s).erase(of(s).begin() + begin, of(s).begin() + end);
    }
    // The tokens of another sequence from its middle on, at positions from 0 on.
    void splice(Sequence s) {
        const Sequence from{(s.value + 1) % sequences};
        const int length = memory_.next(from).value;
        const int begin = draw(0, length);
        if (!memory_.copy_prefix(from, s, to_end)) return;
        of(s) = of(from);
        if (!memory_.remove(s, Position{0}, Position{begin})) return;
        shifted_ += begin > 0 && begin < length ? 1 : 0;
        of(s).erase(of(s).begin(), of(s).begin() + begin);
    }
    void rewind(Sequence s) {
        const int to = draw(0, memory_.next(s).value);
        if (memory_.rewind(s, Position{to})) of(s).resize(static_cast<std::size_t>(to));
    }
    // Offloaded rows come back to other cells.
    void go_back_to_a_snapshot(Sequence s) {
        auto snapshot = memory_.snapshot(s);
        if (!snapshot) return;
        if (draw(0, 1) == 0) memory_.offload(*snapshot);
        const std::vector<Token> kept = of(s);
        remove(s);
        if (memory_.restore(s, *snapshot)) of(s) = kept;
    }

    void attend_to_more() {
        BatchBuilder batch;
        std::vector<std::pair<Sequence, int>> rows;
        for (int s = 0; s < sequences; ++s) {
            const int n = draw(0, 3) == 0 ? draw(1, 60) : draw(0, 2);
            const int next = memory_.next(Sequence{s}).value;
            for (int i = 0; i < n; ++i) {
                batch.add(Sequence{s}, Position{next + i});
                rows.emplace_back(Sequence{s}, next + i);
            }
        }
        if (rows.empty()) return;
        auto pass = memory_.begin(batch);
        if (!pass) return;
        const int n = pass->tokens();
        std::vector<Token> added(rows.size(), Token{std::vector<Floats>(layers), std::vector<Floats>(layers)});
        for (int layer = 0; layer < 2; ++layer) {
            const Floats k = draw_rows(n * dims_.kv_heads * dims_.key_dim, 1);
            const Floats v = draw_rows(n * dims_.kv_heads * dims_.value_dim, 1);
            pass->put(layer, k, v);
            note(cellar_test::stored<typename Layout::key_format>(k, dims_.key_dim), layer, added, &Token::keys);
            note(cellar_test::stored<typename Layout::value_format>(v, dims_.value_dim), layer, added, &Token::values);
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            added[i].keys[2] = added[i].keys[0];
            added[i].values[2] = added[i].values[0];
            of(rows[i].first).push_back(added[i]);
        }
        for (int layer = 0; layer < layers; ++layer) compare(*pass, layer, rows);
        pass->commit();
    }
    static void note(const Floats& all, int layer, std::vector<Token>& to, std::vector<Floats> Token::*member) {
        const std::size_t n = all.size() / to.size();
        for (std::size_t i = 0; i < to.size(); ++i)
            (to[i].*member)[static_cast<std::size_t>(layer)] = {all.data() + i * n, all.data() + (i + 1) * n};
    }

    template <class Pass>
    void compare(Pass& pass, int layer, const std::vector<std::pair<Sequence, int>>& rows) {
        const Floats q = draw_rows(static_cast<int>(rows.size()) * dims_.heads() * dims_.key_dim, 3);
        const Floats slopes = draw_rows(draw(0, 2) == 0 ? dims_.heads() : 0, 0.1F);
        const AttentionOptions options{.slopes = slopes, .reads_shared_once = draw(0, 1) == 0};
        const double scale = 1 / std::sqrt(dims_.key_dim);
        const double product = 5 * scale * dims_.key_dim;
        // Rotating a key adds a few roundings of each product; values as codes have rounded weights.
        const double allowed = attention_test::bound(dims_.key_dim + 8, product, product, 20, 1.2, 300)
                               + (Element<typename Layout::value_format> ? 0 : 0x1p-9);
        std::vector<double> expected;
        std::vector<std::vector<double>> keys;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto [s, position] = rows[i];
            if (i == 0 || s != rows[i - 1].first) keys = moved_keys(s, layer);
            add_expected(q.data() + i * static_cast<std::size_t>(dims_.heads() * dims_.key_dim), slopes, layer, s,
                         position, keys, expected);
        }
        for (const detail::Instructions instructions : attention_test::instructions()) {
            Floats found(expected.size());
            const auto out = contiguous_view(found.data(), pass.tokens(), dims_.heads(), dims_.out_dim());
            const auto queries = contiguous_view(q.data(), pass.tokens(), dims_.heads(), dims_.key_dim);
            detail::attend_with(instructions, pass, layer, queries, out, options, SomeThreads{draw(1, 2)});
            std::size_t right = 0; // which no NaN is
            for (std::size_t i = 0; i < found.size(); ++i) right += std::abs(found[i] - expected[i]) <= allowed ? 1 : 0;
            REQUIRE(right == found.size());
            compared_ += static_cast<std::int64_t>(found.size());
            if (IsReference<Backend>) break; // it has no instructions of choice
        }
    }

    /// The keys of a sequence in a layer, each at its position.
    std::vector<std::vector<double>> moved_keys(Sequence s, int layer) {
        std::vector<std::vector<double>> keys;
        for (const Token& token : of(s)) {
            const Floats& stored = token.keys[static_cast<std::size_t>(layer)];
            const auto position = std::ssize(keys);
            std::vector<double>& row = keys.emplace_back();
            for (int head = 0; head < dims_.kv_heads; ++head) {
                const std::span key{stored.data() + head * dims_.key_dim, static_cast<std::size_t>(dims_.key_dim)};
                const auto moved = rotated(key, frequencies(layer % 2), interleaved, dims_.begin, position);
                row.insert(row.end(), moved.begin(), moved.end());
            }
        }
        return keys;
    }

    /// The results of one query [heads, key_dim].
    void add_expected(const float* q, const Floats& slopes, int layer, Sequence s, int position,
                      const std::vector<std::vector<double>>& keys, std::vector<double>& expected) {
        const int oldest = window_.oldest_visible(Position{position}).value;
        for (int head = 0; head < dims_.heads(); ++head) {
            const int kv_head = head / dims_.group;
            std::vector<double> weights, results(static_cast<std::size_t>(dims_.out_dim()));
            for (int p = 0; p <= position; ++p) {
                double score = 0;
                for (int d = 0; d < dims_.key_dim; ++d)
                    score += keys[static_cast<std::size_t>(p)][static_cast<std::size_t>(kv_head * dims_.key_dim + d)]
                             * q[head * dims_.key_dim + d];
                score /= std::sqrt(static_cast<double>(dims_.key_dim));
                if (!slopes.empty()) score -= slopes[static_cast<std::size_t>(head)] * static_cast<float>(position - p);
                weights.push_back(p < oldest && p >= window_.sinks() ? -1e9 : score);
            }
            const double largest = *std::max_element(weights.begin(), weights.end());
            double sum = 0;
            for (double& w : weights) sum += w = std::exp(w - largest);
            for (std::size_t p = 0; p < weights.size(); ++p) {
                const Token& other = of(s)[p];
                const bool in_keys = dims_.value_dim == 0; // as they are stored: without a rotation
                const Floats& values = (in_keys ? other.keys : other.values)[static_cast<std::size_t>(layer)];
                const int first = kv_head * (in_keys ? dims_.key_dim : dims_.value_dim);
                for (std::size_t d = 0; d < results.size(); ++d)
                    results[d] += weights[p] / sum * values[static_cast<std::size_t>(first) + d];
            }
            expected.insert(expected.end(), results.begin(), results.end());
        }
    }

    Dims dims_;
    Window window_;
    std::mt19937 random_;
    Memory memory_;
    std::vector<std::vector<Token>> tokens_;
    std::int64_t compared_ = 0;
    std::int64_t shifted_ = 0;
};

template <class Layout, class Window = FullCausal, class Pairing = Neox, class Backend = HostBackend>
void check(const Dims& dims, const Window& window = Window{}) {
    std::int64_t compared = 0;
    std::int64_t shifted = 0;
    for (unsigned seed = 0; seed < random_cases(2, 4); ++seed) {
        Trial<Layout, Window, Pairing, Backend> trial{dims, window, seed};
        trial.run(20);
        compared += trial.compared();
        shifted += trial.shifted();
    }
    CHECK(compared > 1000);
    CHECK(shifted > 3);
}

} // namespace

TEST_CASE("rotated as they are read, keys give what the naive model gives: elements") {
    check<StandardV<float>>({.kv_heads = 2, .group = 3, .key_dim = 40, .value_dim = 24, .pairs = 20});
    check<Blocked<half, 4>, SlidingWindow<>, Interleaved>(
        {.kv_heads = 1, .group = 4, .key_dim = 32, .value_dim = 32, .pairs = 11, .begin = 9},
        SlidingWindow<>{20, {.sinks = 3}});
    check<PermutedV<bf16>, ChunkedAttention<>>({.kv_heads = 2, .group = 1, .key_dim = 64, .value_dim = 8, .pairs = 32},
                                               ChunkedAttention<>{24});
}

TEST_CASE("rotated as they are read, keys give what the naive model gives: formats of fewer bits") {
    check<StandardV<q8_0, q4_0>, FullCausal, RunTimePairing>(
        {.kv_heads = 2, .group = 2, .key_dim = 64, .value_dim = 32, .pairs = 32});
    check<Blocked<int8_per_head, 16, half>>(
        {.kv_heads = 1, .group = 2, .key_dim = 64, .value_dim = 16, .pairs = 20, .begin = 24});
    check<StandardV<Rotated<Hadamard<32>, q4_0>, float>>(
        {.kv_heads = 1, .group = 3, .key_dim = 64, .value_dim = 16, .pairs = 32});
    check<StandardV<fp8_e4m3, float>>({.kv_heads = 2, .group = 1, .key_dim = 48, .value_dim = 16, .pairs = 24});
}

TEST_CASE("rotated as they are read, keys without values, and without any contiguity") {
    check<cellar_test::BackwardsLayout<float>>(
        {.kv_heads = 2, .group = 2, .key_dim = 10, .value_dim = 0, .pairs = 3, .begin = 1});
}

TEST_CASE("the reference rotates keys as it reads them, too") {
    check<StandardV<float>, FullCausal, Interleaved, EigenBackend>(
        {.kv_heads = 1, .group = 2, .key_dim = 10, .value_dim = 4, .pairs = 4, .begin = 1});
}

namespace {

constexpr int kv_heads = 2, heads = 4, dim = 64, row = kv_heads * dim;
const CacheShape small_shape{.layers = 1, .kv_heads = kv_heads, .head_dim = dim};

template <class Key>
using OnRead = Cache<StandardV<Key, float>, FullCausal, RotateOnRead<>>;
template <class Key>
using InPlace = Cache<StandardV<Key, float>, FullCausal, RopeShift<>>;

RopeShift<> rope() {
    return RopeShift<>{rope_frequencies(dim)};
}

/// The key or the value of token `id`, before any rotation.
Floats row_of(int id, int kind) {
    return attention_test::wave(row, 100 * id + kind);
}

/// Keys at a position, by the kernel that rotates stored keys.
Floats embedded(Floats keys, std::int32_t position) {
    const auto rotation = rope().rotation(0);
    for (int head = 0; head < kv_heads; ++head)
        for (int pair = 0; pair < rotation.pairs(); ++pair)
            rotation.rotate(keys[static_cast<std::size_t>(head * dim + rotation.first(pair))],
                            keys[static_cast<std::size_t>(head * dim + rotation.second(pair))],
                            rope().factor(0, pair, position));
    return keys;
}

/// Puts tokens `ids` of a sequence at its next positions, and returns attention's results for them.
template <class Memory>
Floats put(Memory& memory, Sequence s, const std::vector<int>& ids) {
    const Position next = memory.next(s);
    const auto n = static_cast<std::int32_t>(ids.size());
    auto pass = memory.begin(BatchBuilder{s, next, n}).value();
    Floats k, v, q;
    for (std::int32_t i = 0; i < n; ++i) {
        Floats key = row_of(ids[static_cast<std::size_t>(i)], 0);
        if (!rotates_on_read<typename Memory::shift_type>) key = embedded(key, (next + i).value);
        const Floats value = row_of(ids[static_cast<std::size_t>(i)], 1);
        const Floats query = attention_test::wave(heads * dim, 7 * ids[static_cast<std::size_t>(i)]);
        k.insert(k.end(), key.begin(), key.end());
        v.insert(v.end(), value.begin(), value.end());
        q.insert(q.end(), query.begin(), query.end());
    }
    pass.put(0, k, v);
    Floats out(q.size());
    attend(pass, 0, q, out);
    pass.commit();
    return out;
}

double distance(const Floats& a, const Floats& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
    return largest;
}

std::vector<int> numbers(int from, int count) {
    std::vector<int> ids;
    for (int i = 0; i < count; ++i) ids.push_back(from + i);
    return ids;
}

template <class Key>
double difference_from_rotating_before_put() {
    OnRead<Key> on_read{small_shape, {.capacity = 300, .batch = 200}, {}, rope()};
    InPlace<Key> in_place{small_shape, {.capacity = 300, .batch = 200}, {}, rope()};
    double largest = 0;
    for (const int count : {150, 1, 1}) {
        const std::vector<int> ids = numbers(on_read.next(Sequence{0}).value, count);
        largest = std::max(largest, distance(put(on_read, Sequence{0}, ids), put(in_place, Sequence{0}, ids)));
    }
    return largest;
}

} // namespace

TEST_CASE("before any shift, results are those of keys that were rotated before put, within the rounding of keys") {
    CHECK(difference_from_rotating_before_put<float>() < 2e-6);
    CHECK(difference_from_rotating_before_put<half>() < 2e-3);
    CHECK(difference_from_rotating_before_put<bf16>() < 2e-2);
    CHECK(difference_from_rotating_before_put<q8_0>() < 4e-2);
}

TEST_CASE_TEMPLATE(
    "after a thousand shifts, stored keys have the bits that were put, and results those of a new sequence", Key, float,
    half, q8_0) {
    constexpr int shifts = 1000, kept = 90;
    OnRead<Key> memory{small_shape, {.sequences = 1, .capacity = 1200, .batch = 1200}, {}, rope()};
    put(memory, Sequence{0}, numbers(0, shifts + kept));
    const auto cells_of = [](auto& cache) {
        std::vector<Cell> cells;
        cache.visit_cells(Sequence{0}, [&](Position, Cell first, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) cells.push_back(first + i);
        });
        return cells;
    };
    const auto stored = [&](auto& cache, const std::vector<Cell>& cells) {
        auto pass = cache.reserve(1);
        Floats k(cells.size() * row), v = k;
        pass.gather(0, cells, contiguous_view(k.data(), std::ssize(cells), kv_heads, dim),
                    contiguous_view(v.data(), std::ssize(cells), kv_heads, dim));
        pass.drop();
        return k;
    };
    std::vector<Cell> cells = cells_of(memory);
    cells.erase(cells.begin(), cells.begin() + shifts);
    const Floats before = stored(memory, cells);
    for (int i = 0; i < shifts; ++i) REQUIRE(memory.remove(Sequence{0}, Position{0}, Position{1}));
    CHECK(memory.next(Sequence{0}) == Position{kept});
    CHECK(cells_of(memory) == cells);
    CHECK(stored(memory, cells) == before);

    OnRead<Key> fresh{small_shape, {.sequences = 1, .capacity = 1200, .batch = 1200}, {}, rope()};
    put(fresh, Sequence{0}, numbers(shifts, kept));
    CHECK(put(memory, Sequence{0}, {5000}) == put(fresh, Sequence{0}, {5000})); // bit by bit
}

TEST_CASE("spliced texts share cells at different positions, and each is as if it had been put there") {
    const CacheLimits limits{.sequences = 3, .cells = 192, .batch = 128};
    OnRead<half> memory{small_shape, limits, {}, rope()};
    put(memory, Sequence{0}, numbers(0, 120));
    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    REQUIRE(memory.remove(Sequence{1}, Position{3}, Position{40})); // needs no cell, though 80 shared tokens move
    REQUIRE(memory.copy_prefix(Sequence{1}, Sequence{2}, Position{50}));
    REQUIRE(memory.remove(Sequence{2}, Position{0}, Position{7}));
    CHECK(memory.free_cells() == 72);

    InPlace<half> in_place{small_shape, limits, {}, rope()};
    put(in_place, Sequence{0}, numbers(0, 120));
    REQUIRE(in_place.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    CHECK(in_place.remove(Sequence{1}, Position{3}, Position{40}).error().reason == Reason::full);

    const auto expect = [&](Sequence s, std::vector<int> ids) {
        OnRead<half> fresh{small_shape, limits, {}, rope()};
        put(fresh, Sequence{0}, ids);
        CHECK(put(memory, s, {900 + s.value}) == put(fresh, Sequence{0}, {900 + s.value}));
    };
    std::vector<int> joined = numbers(0, 3);
    const std::vector<int> rest = numbers(40, 80);
    joined.insert(joined.end(), rest.begin(), rest.end());
    expect(Sequence{0}, numbers(0, 120));
    expect(Sequence{1}, joined);
    expect(Sequence{2}, {joined.begin() + 7, joined.begin() + 50});
}

TEST_CASE("a rotation that does not fit the cache is a violation, also if keys are rotated on read") {
    using Memory = Cache<StandardV<float>, FullCausal, RotateOnRead<>>;
    const auto made = [](const RopeShift<>& rotary) {
        return violation_of([&] { Memory{{.layers = 2, .kv_heads = 1, .head_dim = 8}, {.capacity = 4}, {}, rotary}; });
    };
    CHECK(made(RopeShift<>{rope_frequencies(8)}) == "none");
    CHECK(made(RopeShift<>{rope_frequencies(8), 2})
          == "shift: layer 0 has a key_dim of 8, expected at least 10, the elements that are rotated");
    CHECK(made(RopeShift<>::per_layer({{1.0}, {1.0}, {}}))
          == "shift: frequencies for 3 layers, expected for all, or for each of the cache's 2");
}

} // namespace test_rotated_rows
