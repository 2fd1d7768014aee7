// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention over random histories, compared with the same cache on the backend for reference, which computes every
// element by itself, in double. With every set of instructions that the processor has.
#include "../layout/archetypes.hpp"
#include "../property/series.hpp"
#include "attended.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>
#include <numeric>
#include <optional>
#include <random>

namespace test_property {

using namespace cellar;
using attention_test::bound;
using attention_test::Floats;
using attention_test::SomeThreads;

namespace {

constexpr int least_series = 40;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

int draw(int from, int to) {
    return *rc::gen::inRange(from, to + 1);
}
bool draw_true(int of = 2) {
    return draw(1, of) == 1;
}

/// A batch as lists.
struct RandomBatch {
    std::vector<Position> positions;
    std::vector<Sequence> sequences;
    std::vector<std::int32_t> groups;
    std::vector<std::int32_t> parents;
    std::vector<std::uint8_t> stored;

    int count() const { return static_cast<int>(positions.size()); }
    Batch batch() const { return {positions, sequences, groups, stored, parents}; }
};

template <class Layout, class Window>
class Trial {
    template <class Backend>
    using Cache = cellar::Cache<Layout, Window, DisabledShift, Backend>;

public:
    explicit Trial(const Window& window, int step)
        : step_{step}, fast_{shape(), limits(), window}, exact_{shape(), limits(), window} {}

    void run() {
        for (int i = draw(1, 12); i > 0; --i) {
            if (draw_true(6)) copy(Sequence{draw(0, 3)}, Sequence{draw(0, 3)});
            if (draw_true(8))
                for (int s = 1, from = draw(0, 3); s < 4; ++s) copy(Sequence{from}, Sequence{(from + s) % 4});
            if (draw_true(8)) remove();
            if (draw_true(6)) read_long_text();
            attend_to(next_tokens());
        }
    }

private:
    CacheShape shape() const {
        return CacheShape{.each_layer = std::vector<LayerShape>{{kv_heads_, key_dim_, value_dim_}}};
    }
    CacheLimits limits() const {
        return {.sequences = 4, .cells = 4 * 1000, .batch = 700, .positions = Positions::any};
    }

    // Most dims are those of models, and some of none.
    static int draw_dim(int step) { return draw_true() ? step * draw(1, 40 / step + 1) : 16 * draw(1, 5); }

    void copy(Sequence from, Sequence to) {
        const int next = fast_.next(from).value;
        const int length = draw_true() ? next : draw(0, next);
        RC_ASSERT(fast_.copy_prefix(from, to, Position{length}).has_value()
                  == exact_.copy_prefix(from, to, Position{length}).has_value());
    }
    // Without attention, which would take long.
    void read_long_text() {
        const Sequence s{draw(0, 3)};
        const cellar::BatchBuilder text{s, fast_.next(s), draw(300, 700)};
        auto fast = fast_.begin(text);
        auto exact = exact_.begin(text);
        RC_ASSERT(fast.has_value() == exact.has_value());
        if (!fast) return;
        const Floats k = random(fast->tokens() * kv_heads_ * key_dim_, 1);
        const Floats v = random(fast->tokens() * kv_heads_ * value_dim_, 1);
        fast->put(0, k, v);
        exact->put(0, k, v);
        fast->commit();
        exact->commit();
    }
    void remove() {
        const Sequence s{draw(0, 3)};
        const int from = draw(0, fast_.next(s).value);
        RC_ASSERT(fast_.remove(s, Position{from}, to_end).has_value()
                  == exact_.remove(s, Position{from}, to_end).has_value());
    }

    RandomBatch next_tokens() const {
        RandomBatch tokens;
        std::vector<int> next(4);
        for (int s = 0; s < 4; ++s) next[static_cast<std::size_t>(s)] = fast_.next(Sequence{s}).value;
        const bool grouped = draw_true(4);
        const bool tree = !grouped && draw_true(4);
        const int count = draw_true() ? draw(1, 6) : draw(1, 80);
        const bool in_part = draw_true(4);
        int s = draw(0, 3);
        std::vector<int> depth;
        for (int i = 0; i < count; ++i) {
            if (draw_true(5)) s = draw(0, 3);
            tokens.sequences.push_back(Sequence{s});
            if (tree) {
                const int parent = draw(-1, i - 1);
                const bool same = parent >= 0 && tokens.sequences[static_cast<std::size_t>(parent)].value == s;
                tokens.parents.push_back(same ? parent : -1);
                depth.push_back(same ? depth[static_cast<std::size_t>(parent)] + 1 : 0);
                tokens.positions.push_back(Position{next[static_cast<std::size_t>(s)] + depth.back()});
            } else {
                tokens.positions.push_back(Position{next[static_cast<std::size_t>(s)]++});
            }
            if (in_part) tokens.stored.push_back(draw_true() ? 1 : 0);
            if (grouped) tokens.groups.push_back(draw_true() ? -1 : first_of(tokens.sequences));
        }
        return tokens;
    }

    // The number of a sequence's group: its first token.
    static int first_of(const std::vector<Sequence>& sequences) {
        const auto first = std::find(sequences.begin(), sequences.end(), sequences.back());
        return static_cast<int>(first - sequences.begin());
    }

    Floats random(int n, float size) {
        Floats floats(static_cast<std::size_t>(n));
        std::uniform_real_distribution<float> any{-size, size};
        for (float& x : floats) x = any(random_);
        return floats;
    }

    static float largest(const Floats& floats) {
        return std::accumulate(floats.begin(), floats.end(), 0.0F,
                               [](float a, float b) { return std::max(a, std::abs(b)); });
    }

    void attend_to(const RandomBatch& tokens) {
        auto fast = fast_.begin(tokens.batch());
        auto exact = exact_.begin(tokens.batch());
        RC_ASSERT(fast.has_value() == exact.has_value());
        if (!fast) return;
        const int n = tokens.count();
        const int heads = kv_heads_ * draw(1, 9);
        const int stored = tokens.batch().stored_tokens();
        RC_ASSERT(fast->stored_tokens() == stored);
        const Floats k = random(stored * kv_heads_ * key_dim_, 1), v = random(stored * kv_heads_ * value_dim_, 1);
        fast->put(0, k, v);
        exact->put(0, k, v);
        const Floats q = random(n * heads * key_dim_, 4);
        const Floats slopes = random(draw_true(3) ? heads : 0, 0.1F), sinks = random(draw_true(3) ? heads : 0, 2);
        const int out_dim = value_dim_ != 0 ? value_dim_ : draw(1, key_dim_);
        AttentionOptions options{.scale = draw_true() ? 0.0F : 0.25F,
                                 .soft_cap = draw_true(3) ? 1.5F : 0.0F,
                                 .slopes = slopes,
                                 .sinks = sinks,
                                 .reads_shared_once = draw_true()};
        Floats expected(static_cast<std::size_t>(n * heads * out_dim), not_a_number);
        Floats expected_sums(static_cast<std::size_t>(n * heads), not_a_number);
        options.log_sum_exp = contiguous_view(expected_sums.data(), n, heads);
        attend(*exact, 0, q, expected, options);
        const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(key_dim_);
        // Half and bfloat16 may be a little larger than what was put.
        const double product = scale * key_dim_ * 4.1 * largest(k);
        const double score = options.soft_cap != 0 ? options.soft_cap : product;
        const double allowed = bound(key_dim_, product, score, largest(slopes) * 9000.0, 1.01, 4000);
        std::optional<Floats> first;
        for (const detail::Instructions instructions : attention_test::instructions()) {
            Floats found(expected.size(), not_a_number);
            Floats sums(expected_sums.size(), not_a_number);
            options.log_sum_exp = contiguous_view(sums.data(), n, heads);
            detail::attend_with(instructions, *fast, 0, q, found, options, SomeThreads{draw(1, 3)});
            for (std::size_t i = 0; i < found.size(); ++i) RC_ASSERT(std::abs(found[i] - expected[i]) <= allowed);
            for (std::size_t i = 0; i < sums.size(); ++i) {
                if (std::isinf(expected_sums[i]))
                    RC_ASSERT(sums[i] == expected_sums[i]);
                else
                    RC_ASSERT(std::abs(sums[i] - expected_sums[i]) <= 8 * allowed);
            }
            Floats again(expected.size(), not_a_number);
            detail::attend_with(instructions, *fast, 0, q, again, options, CallingThread{});
            RC_ASSERT(again == found);
            cases_ += n * heads;
        }
        if (!tokens.parents.empty()) return; // a tree is not kept
        fast->commit();
        exact->commit();
    }

public:
    std::int64_t cases() const { return cases_; }

private:
    int step_;
    int kv_heads_ = draw(1, 3);
    int key_dim_ = draw_dim(step_);
    int value_dim_ = draw_true(8) ? 0 : draw_dim(step_);
    Cache<HostBackend> fast_;
    Cache<EigenBackend> exact_;
    std::mt19937 random_{static_cast<unsigned>(draw(0, 1000))};
    std::int64_t cases_ = 0;
};

template <class Layout, class Window>
void check(const Window& window = Window{}, int step = 1) {
    std::int64_t cases = 0;
    CHECK(property::holds("attention equals the definition", least_series, [&] {
        Trial<Layout, Window> trial{window, step};
        trial.run();
        cases += trial.cases();
    }));
    MESSAGE(cases << " queries of a head were compared");
    CHECK(cases > 0);
}

} // namespace

TEST_CASE("attention equals the definition: float") {
    check<StandardV<float>, FullCausal>();
}

TEST_CASE("attention equals the definition: half, in a window with sinks") {
    check<StandardV<half>>(SlidingWindow<>{20, {.sinks = 3}}, 4);
}

TEST_CASE("attention equals the definition: bfloat16 with permuted values, in chunks") {
    check<PermutedV<bfloat16>>(ChunkedAttention<>{24});
}

TEST_CASE("attention equals the definition: blocks of half and bfloat16") {
    check<Blocked<half, 16, bfloat16>, FullCausal>();
}

TEST_CASE("attention equals the definition: a mapping without any contiguity") {
    check<cellar_test::BackwardsLayout<float>, FullCausal>();
}

} // namespace test_property
