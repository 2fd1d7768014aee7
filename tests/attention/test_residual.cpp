// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention over two memories, one of which has the newest tokens, beside a plain loop that takes each key and value
// from the memory that must show it.
#include "../violations.hpp"
#include "attended.hpp"
#include "backend/own_attention.hpp"
#include "random_cases.hpp"
#include <cellar/attention/attend_residual.hpp>
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_residual {

using namespace cellar;
using attention_test::bound;
using attention_test::Floats;
using attention_test::SomeThreads;
using cellar_test::OwnAttention;

namespace {

constexpr int dim = 32;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

template <class Layout, class Window, class Backend = HostBackend>
using Unrotated = Cache<Layout, Window, UnrotatedShift, Backend>;

/// What `attend_residual` objects to in passes of so many tokens of two memories with one layer and one head.
std::string objection(auto& older_memory, auto& newer_memory, int tokens = 1) {
    const Floats rows(static_cast<std::size_t>(tokens) * dim);
    auto older = older_memory.begin(Sequence{0}, tokens).value();
    auto newer = newer_memory.begin(Sequence{0}, tokens).value();
    older.put(0, rows, rows), newer.put(0, rows, rows);
    Floats out(rows.size());
    return violation_of([&] { attend_residual(older, newer, 0, rows, out); });
}

/// Passes of 40 tokens in two memories, of which the newer one shows the last four, with values of 1.
template <class Backend>
struct TwoPasses {
    CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
    CacheLimits limits{.capacity = 40, .batch = 40};
    Unrotated<StandardV<float>, FullCausal, Backend> older{shape, limits};
    Unrotated<StandardV<half>, SlidingWindow<>, Backend> newer{shape, limits, SlidingWindow<>{4}};
    CachePass<decltype(older)> pass = older.begin(Sequence{0}, 40).value();
    CachePass<decltype(newer)> newest = newer.begin(Sequence{0}, 40).value();
    Floats k = attention_test::wave(40 * dim, 1);

    TwoPasses() {
        pass.put(0, k, attention_test::wave(40 * dim, 2));
        newest.put(0, k, Floats(k.size(), 1));
    }
    Floats plain() {
        Floats out(k.size());
        attend(pass, 0, k, out);
        return out;
    }
    Floats with_residual() {
        Floats out(k.size());
        attend_residual(pass, newest, 0, k, out);
        return out;
    }
};

/// A batch as lists.
struct Tokens {
    std::vector<Position> positions{};
    std::vector<Sequence> sequences{};
    std::vector<std::int32_t> groups{};
    std::vector<std::int32_t> parents{};

    int count() const { return static_cast<int>(positions.size()); }
    Batch batch() const { return {positions, sequences, groups, {}, parents}; }

    /// The end of what a token's group or its own position reaches.
    int end(std::size_t token) const {
        int end = positions[token].value + 1;
        if (groups.empty() || groups[token] < 0) return end;
        for (std::size_t i = 0; i < groups.size(); ++i)
            if (groups[i] == groups[token] && sequences[i] == sequences[token])
                end = std::max(end, positions[i].value + 1);
        return end;
    }
    /// True if a token of the batch is not in another branch.
    bool reaches(std::size_t token, std::size_t other) const {
        if (parents.empty()) return true;
        auto at = static_cast<std::int32_t>(token);
        while (at >= 0 && at != static_cast<std::int32_t>(other)) at = parents[static_cast<std::size_t>(at)];
        return at >= 0;
    }
};

/// What both memories decode of a token.
struct Row {
    Floats keys, values; ///< [kv_heads, dim]
};
struct Stored {
    Row older, newer;
};

struct Options {
    int kv_heads = 1;
    int group = 1;
    AttentionOptions attention{};
};

/// A key that a token sees.
struct Seen {
    int position;
    const Row* row;
};

/// The definition, in double. Returns the logarithm of the sum.
double plain(const Floats& q, int head, int position, const std::vector<Seen>& seen, const Options& options,
             double* out) {
    const AttentionOptions& o = options.attention;
    const auto first = static_cast<std::size_t>(head / options.group * dim);
    const auto h = static_cast<std::size_t>(head);
    std::vector<double> scores;
    for (const Seen& s : seen) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += double{q[d]} * s.row->keys[first + d];
        score *= o.scale != 0 ? o.scale : 1 / std::sqrt(double{dim});
        if (o.soft_cap != 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
        if (!o.slopes.empty()) score -= double{o.slopes[h]} * std::abs(position - s.position);
        scores.push_back(score);
    }
    double sum = o.sinks.empty() ? 0 : std::exp(double{o.sinks[h]}); // scores are small
    std::fill_n(out, dim, 0.0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const double weight = std::exp(scores[i]);
        sum += weight;
        for (std::size_t d = 0; d < dim; ++d) out[d] += weight * seen[i].row->values[first + d];
    }
    for (std::size_t d = 0; d < dim && sum != 0; ++d) out[d] /= sum;
    return std::log(sum);
}

/// Both memories in a hybrid, and what they must show.
template <class Older, class Newer>
class Trial {
    using Memory = Hybrid<WithResidual, Older, Newer>;
    using OlderWindow = typename Older::window_type;
    using NewerWindow = typename Newer::window_type;

public:
    static constexpr int sequences = 3;

    Trial(const OlderWindow& older, const NewerWindow& newer, int kv_heads, unsigned seed)
        : older_{older},
          newer_{newer},
          kv_heads_{kv_heads},
          random_{seed},
          memory_{1, Older{shape(kv_heads), limits(), older}, Newer{shape(kv_heads), limits(), newer}} {}

    Memory& memory() { return memory_; }
    int checked() const { return checked_; }

    int draw(int from, int to) { return std::uniform_int_distribution<int>{from, to}(random_); }
    bool draw_true(int of = 2) { return draw(1, of) == 1; }

    int next(int s) const { return static_cast<int>(tokens_[static_cast<std::size_t>(s)].size()); }

    Result<void> remove(int s, int begin, int end) {
        auto done = memory_.remove(Sequence{s}, Position{begin}, Position{end});
        auto& of = tokens_[static_cast<std::size_t>(s)];
        if (done) of.erase(of.begin() + begin, of.begin() + std::min(end, next(s)));
        return done;
    }
    Result<void> copy(int from, int to, int end) {
        if (from == to) return {};
        auto done = memory_.copy_prefix(Sequence{from}, Sequence{to}, Position{end});
        if (done) {
            tokens_[static_cast<std::size_t>(to)] = tokens_[static_cast<std::size_t>(from)];
            tokens_[static_cast<std::size_t>(to)].resize(static_cast<std::size_t>(std::min(end, next(from))));
        }
        return done;
    }

    /// Puts the tokens, and compares what they attend to. False if they were refused.
    bool attend_to(const Tokens& tokens, const Options& options) {
        auto pass = memory_.begin(tokens.batch());
        if (!pass) return false;
        std::vector<Stored> stored(static_cast<std::size_t>(tokens.count()));
        const Floats k = random(tokens.count() * kv_heads_ * dim), v = random(tokens.count() * kv_heads_ * dim);
        pass->put(0, k, v);
        gather(pass->template of<Older>(), stored, &Stored::older);
        gather(pass->template of<Newer>(), stored, &Stored::newer);
        compare(*pass, tokens, stored, options);
        if (!tokens.parents.empty()) return true; // a tree is not kept
        pass->commit();
        for (std::size_t i = 0; i < stored.size(); ++i)
            tokens_[static_cast<std::size_t>(tokens.sequences[i].value)].push_back(stored[i]);
        return true;
    }

private:
    static CacheShape shape(int kv_heads) { return {.layers = 1, .kv_heads = kv_heads, .head_dim = dim}; }
    static CacheLimits limits() { return {.sequences = sequences, .cells = sequences * 1000, .batch = 600}; }

    Floats random(int n) {
        Floats floats(static_cast<std::size_t>(n));
        std::uniform_real_distribution<float> any{-1, 1};
        for (float& x : floats) x = any(random_);
        return floats;
    }

    void gather(auto& pass, std::vector<Stored>& stored, Row Stored::*of) const {
        const int n = pass.tokens();
        Floats keys(static_cast<std::size_t>(n * kv_heads_) * dim), values(keys.size());
        pass.gather(0, pass.cells(), contiguous_view(keys.data(), n, kv_heads_, dim),
                    contiguous_view(values.data(), n, kv_heads_, dim));
        const std::ptrdiff_t row = std::ptrdiff_t{kv_heads_} * dim;
        for (std::size_t i = 0; i < stored.size(); ++i) {
            const auto at = static_cast<std::ptrdiff_t>(i) * row;
            (stored[i].*of) = {Floats(keys.begin() + at, keys.begin() + at + row),
                               Floats(values.begin() + at, values.begin() + at + row)};
        }
    }

    std::vector<Seen> seen_by(const Tokens& tokens, std::size_t token, const std::vector<Stored>& stored) const {
        std::vector<Seen> seen;
        const Position own = tokens.positions[token];
        const auto add = [&](int position, const Stored& of) {
            if (position >= tokens.end(token)) return;
            if (position >= newer_.oldest_visible(own).value || position < newer_.sinks()) {
                seen.push_back({position, &of.newer});
            } else if (position >= older_.oldest_visible(own).value || position < older_.sinks()) {
                seen.push_back({position, &of.older});
            }
        };
        const auto& before = tokens_[static_cast<std::size_t>(tokens.sequences[token].value)];
        for (std::size_t i = 0; i < before.size(); ++i) add(static_cast<int>(i), before[i]);
        for (std::size_t i = 0; i < stored.size(); ++i)
            if (tokens.sequences[i] == tokens.sequences[token] && tokens.reaches(token, i))
                add(tokens.positions[i].value, stored[i]);
        return seen;
    }

    void compare(auto& pass, const Tokens& tokens, const std::vector<Stored>& stored, Options options) {
        const int n = tokens.count();
        const int heads = kv_heads_ * options.group;
        options.kv_heads = kv_heads_;
        const Floats q = random(n * heads * dim);
        std::vector<double> expected(q.size());
        std::vector<double> sums(static_cast<std::size_t>(n * heads));
        for (int t = 0; t < n; ++t) {
            const auto token = static_cast<std::size_t>(t);
            const std::vector<Seen> seen = seen_by(tokens, token, stored);
            for (int h = 0; h < heads; ++h) {
                const std::ptrdiff_t row = std::ptrdiff_t{t} * heads + h;
                const Floats query(q.begin() + row * dim, q.begin() + (row + 1) * dim);
                sums[static_cast<std::size_t>(row)] =
                    plain(query, h, tokens.positions[token].value, seen, options, expected.data() + row * dim);
            }
        }
        // Two of them may have been rounded up.
        constexpr double product = 1.1 * dim;
        // Codes are multiplied by queries and weights of few bits, where there are few.
        constexpr double coarse = Element<typename Older::layout_type::key_format> ? 0 : 0.03;
        const double allowed = bound(dim, product, product, 0.2 * 2000, 1.1, 2000) + coarse;
        for (const detail::Instructions instructions : attention_test::instructions()) {
            Floats found(q.size(), not_a_number), found_sums(sums.size(), not_a_number);
            options.attention.log_sum_exp = contiguous_view(found_sums.data(), n, heads);
            detail::attend_residual_with(instructions, pass.template of<Older>(), pass.template of<Newer>(), 0, q,
                                         found, options.attention, SomeThreads{draw(1, 3)});
            int wrong = 0;
            for (std::size_t i = 0; i < found.size(); ++i)
                if (!(std::abs(found[i] - expected[i]) <= allowed)) ++wrong;
            for (std::size_t i = 0; i < sums.size(); ++i)
                if (!(std::abs(found_sums[i] - sums[i]) <= 8 * allowed)) ++wrong;
            REQUIRE(wrong == 0);
            constexpr bool on_host = std::is_same_v<typename Older::backend_type, HostBackend>; // else: one way
            if (!on_host || instructions == detail::best_instructions()) {
                Floats same(q.size());
                attend(pass, 0, q, same, options.attention);
                REQUIRE(same == found);
            }
            if (!on_host) break;
        }
        checked_ += n * heads;
    }

    OlderWindow older_;
    NewerWindow newer_;
    int kv_heads_;
    std::mt19937 random_;
    Memory memory_;
    std::array<std::vector<Stored>, sequences> tokens_;
    int checked_ = 0;
};

/// The next tokens of some sequences: in the order of positions, as groups, or as a tree.
template <class T>
Tokens next_tokens(T& trial) {
    Tokens tokens;
    std::array<int, T::sequences> next{};
    for (int s = 0; s < T::sequences; ++s) next[static_cast<std::size_t>(s)] = trial.next(s);
    const bool grouped = trial.draw_true(4);
    const bool tree = !grouped && trial.draw_true(4);
    const int count = trial.draw_true() ? trial.draw(1, 6) : trial.draw(1, 70);
    int s = trial.draw(0, T::sequences - 1);
    for (int i = 0; i < count; ++i) {
        if (!tree && trial.draw_true(5)) s = trial.draw(0, T::sequences - 1);
        tokens.sequences.push_back(Sequence{s});
        int position = next[static_cast<std::size_t>(s)];
        if (tree) {
            // A child of the token before it, or another child of that one's parent.
            const int parent = i == 0 || trial.draw_true() ? i - 1 : tokens.parents.back();
            tokens.parents.push_back(parent);
            if (parent >= 0) position = tokens.positions[static_cast<std::size_t>(parent)].value + 1;
        } else {
            ++next[static_cast<std::size_t>(s)];
        }
        tokens.positions.push_back(Position{position});
        if (!grouped) continue;
        const auto first = std::find(tokens.sequences.begin(), tokens.sequences.end(), Sequence{s});
        tokens.groups.push_back(trial.draw_true() ? -1 : static_cast<int>(first - tokens.sequences.begin()));
    }
    return tokens;
}

template <class Older, class Newer>
void run(Trial<Older, Newer>& trial) {
    for (int i = 0; i < 14; ++i) {
        const int s = trial.draw(0, 2);
        if (trial.draw_true(4)) static_cast<void>(trial.copy(s, trial.draw(0, 2), trial.draw(0, trial.next(s))));
        if (trial.draw_true(4)) static_cast<void>(trial.remove(s, trial.draw(0, trial.next(s)), trial.next(s)));
        if (trial.draw_true(4) && trial.next(s) > 1) {
            const int begin = trial.draw(0, trial.next(s) - 1);
            static_cast<void>(trial.remove(s, begin, trial.draw(begin, trial.next(s))));
        }
        const int group = trial.draw(1, 5);
        Floats slopes, sinks;
        for (int h = 0; h < 2 * group; ++h) {
            slopes.push_back(0.02F * static_cast<float>(trial.draw(-1, 10)));
            sinks.push_back(0.3F * static_cast<float>(trial.draw(-5, 5)));
        }
        const std::size_t heads =
            static_cast<std::size_t>(group * trial.memory().template member<Older>().shape()[0].kv_heads);
        slopes.resize(heads), sinks.resize(heads);
        Options options{.group = group};
        if (trial.draw_true(3)) options.attention.slopes = slopes;
        if (trial.draw_true(3)) options.attention.sinks = sinks;
        if (trial.draw_true(3)) options.attention.soft_cap = 1.5F;
        if (trial.draw_true(3)) options.attention.scale = 0.3F;
        options.attention.reads_shared_once = trial.draw_true();
        if (!trial.attend_to(next_tokens(trial), options))
            REQUIRE(trial.remove(s, 0, trial.next(s))); // a sequence that cannot go on
    }
}

/// A sequence of tokens.
Tokens of_sequence(int s, int first, int count) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) {
        tokens.sequences.push_back(Sequence{s});
        tokens.positions.push_back(Position{first + i});
    }
    return tokens;
}

using Coarse = Unrotated<StandardV<fp8_e4m3>, FullCausal>;
using Exact = Unrotated<StandardV<half>, SlidingWindow<>>;

/// Two memories of floats, and one that has all tokens: with the same keys and values, a residual changes nothing.
template <class Shift = UnrotatedShift>
struct Same {
    using All = Cache<StandardV<float>, FullCausal, Shift>;
    using Newest = Cache<StandardV<float>, SlidingWindow<>, Shift>;

    explicit Same(int n, CacheShape shape = {.layers = 1, .kv_heads = 2, .head_dim = dim}, const Shift& shift = {})
        : kv_heads{shape[0].kv_heads},
          value_dim{shape[0].value_dim},
          all{shape, limits, {}, shift},
          older{shape, limits, {}, shift},
          newer{shape, limits, SlidingWindow<>{n}, shift} {}

    /// What the tokens attend to with a residual, less what they attend to without one; and so for the logarithms.
    void check(const Batch& batch, AttentionOptions options = {}) {
        auto pass = all.begin(batch).value();
        auto of_older = older.begin(batch).value();
        auto of_newer = newer.begin(batch).value();
        const int n = pass.tokens();
        const Floats k = attention_test::wave(n * kv_heads * dim, 1 + static_cast<int>(batch.positions[0].value));
        const Floats v = attention_test::wave(n * kv_heads * value_dim, 2);
        const Floats q = attention_test::wave(n * heads * dim, 3);
        pass.put(0, k, v), of_older.put(0, k, v), of_newer.put(0, k, v);
        const int out_dim = value_dim == 0 ? 20 : value_dim;
        Floats expected(static_cast<std::size_t>(n * heads * out_dim)), found(expected.size(), not_a_number);
        Floats expected_sums(static_cast<std::size_t>(n * heads)), sums(expected_sums.size(), not_a_number);
        options.log_sum_exp = contiguous_view(expected_sums.data(), n, heads);
        attend(pass, 0, q, contiguous_view(expected.data(), n, heads, out_dim), options);
        options.log_sum_exp = contiguous_view(sums.data(), n, heads);
        attend_residual(of_older, of_newer, 0, q, contiguous_view(found.data(), n, heads, out_dim), options);
        for (std::size_t i = 0; i < found.size(); ++i) REQUIRE(std::abs(found[i] - expected[i]) < 1e-5F);
        for (std::size_t i = 0; i < sums.size(); ++i) REQUIRE(std::abs(sums[i] - expected_sums[i]) < 1e-5F);
        pass.commit(), of_older.commit(), of_newer.commit();
    }

    static constexpr int heads = 4;
    static inline const CacheLimits limits{.sequences = 3, .cells = 3000, .batch = 800};
    int kv_heads, value_dim;
    All all, older;
    Newest newer;
};

} // namespace

TEST_CASE("a residual shows the newest tokens of each query, and the other memory shows the rest") {
    for (const int n : {1, 2, 5, 63, 64, 65, 200}) {
        Trial<Coarse, Exact> trial{{}, SlidingWindow<>{n}, 2, 7};
        // A prompt, token by token, several, one more.
        for (const int count : {100, 1, 1, 3, 40, 1})
            REQUIRE(trial.attend_to(of_sequence(0, trial.next(0), count), {.group = 2}));
        REQUIRE(trial.attend_to(of_sequence(1, 0, 1), {.group = 2}));
        for (int i = 0; i < 3; ++i) REQUIRE(trial.attend_to(of_sequence(1, trial.next(1), 2), {.group = 2}));
    }
}

TEST_CASE("a residual over random histories") {
    int checked = 0;
    for (unsigned seed = 0; seed < random_cases(3, 8); ++seed) {
        std::mt19937 random{seed};
        const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>{from, to}(random); };
        const int n = draw(0, 2) == 0 ? draw(60, 70) : draw(1, 12);
        const WindowOptions kept{.retention = n + draw(0, 20), .sinks = draw(0, 1) == 0 ? 0 : draw(1, 5)};
        const int heads = draw(1, 2);
        const auto check = [&](auto trial) {
            run(trial);
            checked += trial.checked();
        };
        check(Trial<Coarse, Exact>{{}, SlidingWindow<>{n, kept}, heads, seed});
        check(Trial<Unrotated<StandardV<q4_0>, FullCausal>, Exact>{{}, SlidingWindow<>{n, kept}, heads, seed});
        check(Trial<Unrotated<StandardV<Rotated<Hadamard<32>, fp8_e4m3>>, FullCausal>,
                    Unrotated<StandardV<float>, ChunkedAttention<>>>{{}, ChunkedAttention<>{n}, heads, seed});
        const int of_older = draw(n, 90); // at least as much as the residual shows
        const SlidingWindow<> wide{of_older, {.retention = 120, .sinks = kept.sinks}};
        check(Trial<Unrotated<Blocked<bfloat16>, SlidingWindow<>>, Exact>{wide, SlidingWindow<>{n, kept}, heads, seed});
        const SlidingWindow<> with_sinks{of_older, {.retention = 120, .sinks = 3}};
        check(Trial<Unrotated<PermutedV<bfloat16>, SlidingWindow<>>, Exact>{
            with_sinks, SlidingWindow<>{n, {.retention = kept.retention}}, heads, seed});
        check(Trial<Unrotated<StandardV<bfloat16>, FullCausal, EigenBackend>,
                    Unrotated<StandardV<half>, SlidingWindow<>, EigenBackend>>{
            {}, SlidingWindow<>{n, kept}, heads, seed});
        // Backends that compute attention themselves, and merge it as they write it.
        check(Trial<Unrotated<StandardV<bfloat16>, FullCausal, OwnAttention>,
                    Unrotated<StandardV<half>, SlidingWindow<>, OwnAttention>>{
            {}, SlidingWindow<>{n, kept}, heads, seed});
        check(Trial<Unrotated<Blocked<bfloat16>, SlidingWindow<>, OwnAttention>,
                    Unrotated<StandardV<half>, SlidingWindow<>, OwnAttention>>{
            with_sinks, SlidingWindow<>{n, {.retention = kept.retention}}, heads, seed});
    }
    MESSAGE(checked << " queries of a head were compared");
    CHECK(checked > 1000);
}

TEST_CASE("sequences that share a prefix read it once, less the newest tokens") {
    for (const int n : {5, 300, 590, 599, 600, 601, 700}) {
        Same same{n};
        same.check(BatchBuilder{Sequence{0}, Position{0}, 600});
        for (const int s : {1, 2}) {
            REQUIRE(same.all.copy_prefix(Sequence{0}, Sequence{s}, Position{600}));
            REQUIRE(same.older.copy_prefix(Sequence{0}, Sequence{s}, Position{600}));
            REQUIRE(same.newer.copy_prefix(Sequence{0}, Sequence{s}, Position{600}));
        }
        for (int i = 0; i < 3; ++i) {
            BatchBuilder tokens;
            for (const int s : {0, 1, 2}) tokens.add(Sequence{s}, Position{600 + i});
            same.check(tokens, {.reads_shared_once = true});
        }
    }
}

TEST_CASE("keys that are rotated on read may have a residual, and so may latents") {
    const RopeShift<> rope{rope_frequencies(dim)};
    Same<RotateOnRead<>> rotated{7, {.layers = 1, .kv_heads = 2, .head_dim = dim}, RotateOnRead<>{rope}};
    rotated.check(BatchBuilder{Sequence{0}, Position{0}, 30});
    rotated.check(BatchBuilder{Sequence{0}, Position{30}, 1});
    Same latent{7, {.layers = 1, .kv_heads = 1, .head_dim = dim, .value_dim = 0}};
    latent.check(BatchBuilder{Sequence{0}, Position{0}, 30});
    latent.check(BatchBuilder{Sequence{0}, Position{30}, 1});
}

TEST_CASE_TEMPLATE("layers of a pass may have a residual or not", Backend, HostBackend, OwnAttention) {
    TwoPasses<Backend> both;
    const Floats plain = both.plain(), first = both.with_residual();
    CHECK(both.plain() == plain);
    CHECK(both.with_residual() == first);
    CHECK(first != plain);
    CHECK(std::all_of(first.begin(), first.begin() + 4 * dim, [](float x) { return std::abs(x - 1) < 1e-6F; }));
}

TEST_CASE("after a device had no memory for what a residual leaves to see, a call without one starts anew") {
    TwoPasses<OwnAttention> both;
    const Floats plain = both.plain();
    bool& fails = both.pass.attention_source("test", 0).backend().fails;
    fails = true;
    CHECK_THROWS_AS(both.with_residual(), std::bad_alloc);
    fails = false;
    CHECK(both.plain() == plain);
}

TEST_CASE("what a memory does not show to a token does not reach it through the other one") {
    for (const int count : {1, 30}) { // read in place, and packed
        for (const float bad : {not_a_number, infinity}) {
            const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
            Cache<StandardV<float>> older{shape, {.capacity = 80, .batch = 64}};
            Cache<StandardV<half>, SlidingWindow<>> newer{
                shape, {.capacity = 80, .batch = 64}, SlidingWindow<>{6, {.retention = 40}}};
            const auto put = [&](auto& cache, const Floats& rows, int n) {
                auto pass = cache.begin(Sequence{0}, n).value();
                pass.put(0, rows, rows);
                return pass;
            };
            const Floats good(std::size_t{35} * dim, 0.5F), wrong(good.size(), bad);
            put(older, good, 35).commit();
            put(newer, wrong, 35).commit();
            Floats last(std::size_t{5} * dim, bad);
            put(older, last, 5).commit();
            std::fill(last.begin(), last.end(), 0.5F);
            put(newer, last, 5).commit();
            const Floats rows(static_cast<std::size_t>(count) * dim, 0.5F);
            const Floats hidden(rows.size(), count == 1 ? bad : 0.5F); // tokens behind it see more of the first memory
            auto pass = put(older, hidden, count);
            auto newest = put(newer, rows, count);
            Floats out(rows.size(), not_a_number);
            attend_residual(pass, newest, 0, rows, out);
            CHECK(std::all_of(out.begin(), out.begin() + dim, [](float x) { return std::abs(x - 0.5F) < 1e-6F; }));
        }
    }
}

TEST_CASE_TEMPLATE("results of few bits and with strides are rounded once", T, float, half, bfloat16) {
    Same same{3};
    const BatchBuilder tokens{Sequence{0}, Position{0}, 10};
    auto older = same.older.begin(tokens).value();
    auto newer = same.newer.begin(tokens).value();
    const Floats rows = attention_test::wave(10 * 2 * dim, 1), q = attention_test::wave(10 * 4 * dim, 2);
    older.put(0, rows, rows);
    newer.put(0, rows, rows);
    Floats expected(q.size());
    attend_residual(older, newer, 0, q, expected);
    std::vector<T> out(2 * q.size(), static_cast<T>(7.0F)); // every second element
    attend_residual(older, newer, 0, q, StridedView<T, 3>{out.data(), {10, 4, dim}, {4 * dim * 2, dim * 2, 2}});
    for (std::size_t i = 0; i < q.size(); ++i) {
        CHECK(static_cast<float>(out[2 * i]) == static_cast<float>(static_cast<T>(expected[i])));
        CHECK(static_cast<float>(out[2 * i + 1]) == 7);
    }
}

TEST_CASE("attend_residual: backends that compute attention, but not in one order, are a violation") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
    OwnAttention other;
    other.queue = 1;
    Unrotated<StandardV<float>, FullCausal, OwnAttention> older_memory{shape, {.capacity = 8}};
    Unrotated<StandardV<half>, SlidingWindow<>, OwnAttention> newer_memory{
        shape, {.capacity = 8}, SlidingWindow<>{3}, {}, other};
    CHECK(objection(older_memory, newer_memory)
          == "attend_residual: the memories have backends with different instances of the execution space, expected "
             "one, so that their work is done in order");
}

TEST_CASE("a hybrid with a residual goes back as far as the residual's retention") {
    const auto fill = [](auto& trial) {
        for (int i = 0; i < 30; ++i) REQUIRE(trial.attend_to(of_sequence(0, i, 1), {}));
    };
    Trial<Coarse, Exact> usual{{}, SlidingWindow<>{8}, 1, 1};
    fill(usual);
    CHECK(usual.remove(0, 27, 30).error() == Reason::cannot_resume);
    CHECK(usual.memory().next(Sequence{0}) == Position{30}); // nothing has changed
    Trial<Coarse, Exact> further{{}, SlidingWindow<>{8, {.retention = 8 + 3 - 1}}, 1, 1};
    fill(further);
    CHECK(further.remove(0, 26, 30).error() == Reason::cannot_resume);
    REQUIRE(further.remove(0, 27, 30));
    REQUIRE(further.attend_to(of_sequence(0, 27, 2), {}));
}

TEST_CASE("a hybrid with a residual may be a member of another one") {
    using Pair = Hybrid<WithResidual, Coarse, Exact>;
    using Sliding = Unrotated<StandardV<float>, SlidingWindow<>>;
    using Both = Hybrid<Repeat<Sliding, Pair>, Sliding, Pair>;
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = dim};
    const CacheLimits limits{.capacity = 40, .batch = 40};
    const SlidingWindow<> window{4};
    const auto pair = [&] { return Pair{2, Coarse{shape, limits}, Exact{shape, limits, window}}; };
    Both both{4, Sliding{shape, limits, window}, pair()};
    Pair alone = pair();
    CHECK(pair().layers_of(0, 2) == 2);
    CHECK(pair().layers_of(1, 2) == 2);
    CHECK(pair().layers_of(no_memory, 2) == 0);
    const Floats rows = attention_test::wave(40 * dim, 1);
    Floats out(rows.size()), expected(rows.size());
    auto pass = both.begin(Sequence{0}, 40).value();
    auto of_alone = alone.begin(Sequence{0}, 40).value();
    for (int layer = 0; layer < 4; ++layer)
        pass.visit(layer, [&](auto& own, int index) {
            CHECK(index == layer / 2);
            own.put(index, rows, rows);
            attend(own, index, rows, out);
        });
    for (int layer = 0; layer < 2; ++layer) of_alone.put(layer, rows, rows);
    attend(of_alone, 1, rows, expected);
    CHECK(out == expected);
    pass.commit();
    CHECK(both.next(Sequence{0}) == Position{40});
    CHECK(both.remove(Sequence{0}, Position{30}, to_end).error() == Reason::cannot_resume); // the residual's window
}

TEST_CASE("a hybrid with a residual: violations") {
    using Pair = Hybrid<WithResidual, Coarse, Exact>;
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = dim};
    const CacheLimits limits{.capacity = 8};
    const SlidingWindow<> window{4};
    CHECK(violation_of([&] {
              Pair{2, Coarse{shape, limits}, Exact{{.layers = 1, .kv_heads = 1, .head_dim = dim}, limits, window}};
          })
          == "hybrid: member 1 has 1 layers, expected 2 of 2 in its pattern");
    CHECK(violation_of([&] {
              Pair{0, Coarse{shape, limits}, Exact{shape, limits, window}};
          })
          == "hybrid: 0 layers, expected at least 1");
    Pair pair{2, Coarse{shape, limits}, Exact{shape, limits, window}};
    auto pass = pair.begin(Sequence{0}, 2).value();
    const Floats rows(std::size_t{2} * dim);
    pass.put(0, rows, rows);
    CHECK(violation_of([&] { pass.put(1, rows, Floats(3)); })
          == "put: the values of layer 1 of the model (layer 1 of member 0) are 3 elements, expected 64 for [2 tokens, "
             "1 heads, 32]");
    CHECK(violation_of([&] { pass.commit(); })
          == "commit: layer 1 of the model (layer 1 of member 0) was not put, expected a put of every layer");
    pass.of<Coarse>().put(1, rows, rows);
    CHECK(violation_of([&] { pass.commit(); })
          == "commit: layer 1 of member 1 was not put, expected a put of every layer");
    pass.mark_put(1);
    pass.commit();
}

TEST_CASE("a reserved pass with a residual gives zeros") {
    Same same{3};
    auto older = same.older.reserve(5);
    auto newer = same.newer.reserve(5);
    Floats out(std::size_t{5} * 4 * dim, not_a_number);
    attend_residual(older, newer, 0, Floats(out.size(), 1), out);
    CHECK(out == Floats(out.size(), 0));
}

TEST_CASE("a pass without tokens needs no heads, with a residual") {
    Same same{3};
    auto older = same.older.begin(Sequence{0}, 0).value();
    auto newer = same.newer.begin(Sequence{0}, 0).value();
    Floats none, sums(4);
    attend_residual(older, newer, 0, none, none, {.log_sum_exp = contiguous_view(sums.data(), 0, 4)});
    CHECK(sums == Floats(4));
}

TEST_CASE("attend_residual: passes of batches with other parents or groups are violations") {
    Same same{3};
    const std::vector<Sequence> sequences(4, Sequence{0});
    Floats out(std::size_t{4} * 4 * dim);
    const auto message = [&](const Batch& batch, const Batch& other) {
        auto older = same.older.begin(batch).value();
        auto newer = same.newer.begin(other).value();
        const Floats rows(std::size_t{4} * 2 * dim);
        older.put(0, rows, rows);
        newer.put(0, rows, rows);
        return violation_of([&] { attend_residual(older, newer, 0, Floats(out.size()), out); });
    };
    const std::vector<Position> branches{Position{0}, Position{1}, Position{1}, Position{2}};
    const std::vector<std::int32_t> one{-1, 0, 0, 1}, two{-1, 0, 0, 2};
    CHECK(message({branches, sequences, {}, {}, one}, {branches, sequences, {}, {}, two})
          == "attend_residual: the tokens of the residual have other parents than those of the other pass");
    const std::vector<Position> line{Position{0}, Position{1}, Position{2}, Position{3}};
    const std::vector<std::int32_t> groups{-1, 1, 1, -1};
    CHECK(message({line, sequences, groups}, {line, sequences})
          == "attend_residual: token 1 sees positions up to 2 in the residual, expected 3: the passes have different "
             "groups");
}

TEST_CASE("attend_residual: violations") {
    Same same{3};
    const auto begin = [](auto& cache, int n, int sequence = 0) {
        auto pass = cache.begin(Sequence{sequence}, n).value();
        const Floats rows(static_cast<std::size_t>(n * cache.shape()[0].kv_heads) * dim);
        pass.put(0, rows, rows);
        return pass;
    };
    Floats out(std::size_t{2} * 4 * dim);
    const auto message = [&](auto& older, auto& newer) {
        return violation_of([&] { attend_residual(older, newer, 0, Floats(out.size()), out); });
    };
    {
        auto older = begin(same.older, 2);
        auto newer = begin(same.newer, 3);
        CHECK(message(older, newer)
              == "attend_residual: the pass of the residual has 3 tokens, expected the 2 of the other pass");
    }
    {
        auto older = begin(same.older, 2);
        auto newer = begin(same.newer, 2, 1);
        CHECK(message(older, newer)
              == "attend_residual: token 0 is at position 0 of sequence 1 in the residual, expected position 0 of "
                 "sequence 0");
    }
    {
        Cache<StandardV<float>> other{{.layers = 1, .kv_heads = 4, .head_dim = dim}, {.capacity = 8}};
        auto older = begin(other, 2);
        auto newer = begin(same.newer, 2);
        CHECK(message(older, newer)
              == "attend_residual: layer 0 of the residual has 2 heads of 32 and 32 elements, expected 4 of 32 and 32 "
                 "as in the other memory");
    }
    using Windowed = Cache<StandardV<float>, SlidingWindow<>>;
    const CacheShape shape{.layers = 1, .kv_heads = 2, .head_dim = dim};
    Windowed wide{shape, {.capacity = 8}, SlidingWindow<>{20, {.sinks = 4}}};
    Windowed narrow{shape, {.capacity = 8}, SlidingWindow<>{3, {.sinks = 2}}};
    auto older = begin(wide, 2);
    auto newer = begin(narrow, 2);
    CHECK(message(older, newer)
          == "attend_residual: the residual has 2 sinks, expected none, or at least the 4 of the other memory");
}

TEST_CASE("attend_residual: a residual that shows more than the other memory is a violation") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
    const CacheLimits limits{.capacity = 20};
    const auto message = [&](auto window, const SlidingWindow<>& exact, int tokens) {
        Unrotated<StandardV<float>, decltype(window)> older_memory{shape, limits, window};
        Exact newer_memory{shape, limits, exact};
        return objection(older_memory, newer_memory, tokens);
    };
    CHECK(message(SlidingWindow<>{3}, SlidingWindow<>{4}, 3) == "none"); // both show everything
    CHECK(
        message(SlidingWindow<>{3}, SlidingWindow<>{4}, 5)
        == "attend_residual: token 3 sees positions from 0 on and 0 sinks in the residual, expected no more than from "
           "1 on and 0 sinks, as in the other memory");
    CHECK(message(ChunkedAttention<>{4}, SlidingWindow<>{2}, 4) == "none");
    CHECK(
        message(ChunkedAttention<>{4}, SlidingWindow<>{2}, 5)
        == "attend_residual: token 4 sees positions from 3 on and 0 sinks in the residual, expected no more than from "
           "4 on and 0 sinks, as in the other memory");
    CHECK(
        message(SlidingWindow<>{4}, SlidingWindow<>{3, {.sinks = 1}}, 5)
        == "attend_residual: token 4 sees positions from 2 on and 1 sinks in the residual, expected no more than from "
           "1 on and 0 sinks, as in the other memory");
    CHECK(message(SlidingWindow<>{4, {.sinks = 1}}, SlidingWindow<>{4, {.sinks = 1}}, 9) == "none");
    CHECK(message(SlidingWindow<>{4, {.sinks = 1}}, SlidingWindow<>{4}, 9) == "none");
    CHECK(message(FullCausal{}, SlidingWindow<>{4, {.sinks = 1}}, 9) == "none");
}

TEST_CASE("attend_residual: a residual whose window may have gaps is a violation") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
    Coarse older_memory{shape, {.capacity = 8, .positions = Positions::any}};
    Exact newer_memory{shape, {.capacity = 8, .positions = Positions::any}, SlidingWindow<>{3}};
    CHECK(objection(older_memory, newer_memory)
          == "attend_residual: the residual has Positions::any, expected consecutive ones, so that all that its window "
             "shows is there");
}

TEST_CASE("a hybrid with a residual: caches that rotate keys differently are a violation") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = dim};
    const RopeShift<> rope{rope_frequencies(dim)};
    const auto message = [&]<class OfCoarse, class OfExact>(const OfCoarse& of_coarse, const OfExact& of_exact) {
        using Older = Cache<StandardV<fp8_e4m3>, FullCausal, OfCoarse>;
        using Newer = Cache<StandardV<half>, SlidingWindow<>, OfExact>;
        return violation_of([&] {
            Hybrid<WithResidual, Older, Newer>{1, Older{shape, {.capacity = 8}, {}, of_coarse},
                                               Newer{shape, {.capacity = 8}, SlidingWindow<>{3}, of_exact}};
        });
    };
    const std::string differs = "hybrid: the exact cache rotates other elements of keys than the coarse one, or at "
                                "another time, expected the same shift in both";
    CHECK(message(rope, UnrotatedShift{}) == differs);
    CHECK(message(rope, RotateOnRead<>{rope}) == differs);
    CHECK(message(rope, RopeShift<Interleaved>{rope_frequencies(dim)}) == differs);
    CHECK(message(rope, RopeShift<>{rope_frequencies(dim / 2)}) == differs);
    const std::string frequencies = "hybrid: the exact cache rotates keys of layer 0 by other frequencies than the "
                                    "coarse one, expected the same shift in both";
    const RopeShift<> of_another_base{rope_frequencies(dim, 500000.0)};
    CHECK(message(rope, of_another_base) == frequencies);
    CHECK(message(RotateOnRead<>{rope}, RotateOnRead<>{of_another_base}) == frequencies);
    CHECK(message(rope, RopeShift<>::per_layer({rope_frequencies(dim)})) == "none");
    CHECK(message(rope, rope) == "none");
    CHECK(message(RotateOnRead<>{rope}, RotateOnRead<>{rope}) == "none");
    CHECK(message(UnrotatedShift{}, DisabledShift{}) == "none");
}

} // namespace test_residual
