// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention in cases that say by themselves what must come out. Random histories are in test_property.cpp.
#include "../violations.hpp"
#include "attended.hpp"
#include <cellar/attention/merge_attention.hpp>
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace test_attend {

using namespace cellar;
using attention_test::Floats;
using attention_test::SomeThreads;
using attention_test::wave;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

using F32 = Cache<StandardV<float>>;

/// Puts keys and values that depend on sequence and position alone.
template <class Memory>
auto begin(Memory& memory, int sequence, int n, int as = -1) {
    const int seed = as < 0 ? sequence : as; // what sequence `as` has at these positions
    const int first = memory.next(Sequence{sequence}).value;
    auto pass = memory.begin(BatchBuilder{Sequence{sequence}, Position{first}, n}).value();
    const int kv_heads = 2, dim = 16;
    Floats k, v;
    for (int i = 0; i < n; ++i) {
        const Floats key = wave(kv_heads * dim, 1000 * seed + 7 * (first + i));
        const Floats value = wave(kv_heads * dim, 500 + 1000 * seed + 7 * (first + i));
        k.insert(k.end(), key.begin(), key.end());
        v.insert(v.end(), value.begin(), value.end());
    }
    pass.put(0, k, v);
    return pass;
}

constexpr int heads = 4, dim = 16;
const CacheShape shape{.layers = 1, .kv_heads = 2, .head_dim = dim};

/// Numbers its threads from 1.
struct FromOne {
    static int count() { return 2; }
    static void run(auto&& f) { f(2); }
};

Floats attended(auto& pass, const AttentionOptions& options = {}, int threads = 1) {
    Floats out(static_cast<std::size_t>(pass.tokens() * heads * dim), not_a_number);
    attend(pass, 0, wave(pass.tokens() * heads * dim, 3), out, options, SomeThreads{threads});
    return out;
}

} // namespace

TEST_CASE("a token that sees only itself gets its own value") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 1}).value();
    const Floats k = wave(2 * dim, 1), v = wave(2 * dim, 2);
    pass.put(0, k, v);
    const Floats out = attended(pass);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == v[i / dim / 2 * dim + i % dim]); // two heads share one
}

TEST_CASE("equal scores average the values") {
    F32 cache{{.layers = 1, .kv_heads = 1, .head_dim = 2}, {.capacity = 8, .batch = 8}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    pass.put(0, Floats{1, 1, 1, 1, 1, 1}, Floats{3, 0, 6, 30, 0, 60});
    Floats out(6), sums(3);
    attend(pass, 0, Floats{2, 1, 2, 1, 2, 1}, out, {.scale = 1, .log_sum_exp = contiguous_view(sums.data(), 3, 1)});
    CHECK(out == Floats{3, 0, 4.5F, 15, 3, 30});
    CHECK(sums[0] == 3);
    CHECK(sums[1] == doctest::Approx(3 + std::log(2)));
    CHECK(sums[2] == doctest::Approx(3 + std::log(3)));
}

TEST_CASE_TEMPLATE("the result depends neither on where tokens lie nor on the number of threads", E, float, half,
                   bfloat16) {
    using Memory = Cache<StandardV<E>>;
    Memory alone{shape, {.sequences = 1, .capacity = 2000, .batch = 512}};
    Memory among{shape, {.sequences = 3, .capacity = 2000, .batch = 512}};
    for (int i = 0; i < 1500; i += 100) begin(alone, 0, 100).commit();
    for (int i = 0; i < 1500; ++i) { // every second cell, then every third one
        begin(among, 0, 1).commit();
        begin(among, 1, 1).commit();
        if (i % 2 == 0) begin(among, 2, 1).commit();
    }
    for (const int tokens : {1, 3, 40}) {
        auto one = begin(alone, 0, tokens);
        auto other = begin(among, 0, tokens);
        const Floats expected = attended(one);
        for (const int threads : {1, 2, 5}) {
            CHECK(attended(one, {}, threads) == expected);
            CHECK(attended(other, {}, threads) == expected);
        }
    }
}

template <class Window>
void check_shared_prefix(const Window& window) {
    using Memory = Cache<StandardV<float>, Window>;
    const CacheLimits limits{.sequences = 8, .cells = 16000, .batch = 512};
    Memory cache{shape, limits, window};
    Memory copied{shape, limits, window}; // the same tokens in cells of their own
    const auto begin_both = [&](int s, int tokens, int as = -1) {
        for (Memory* to : {&cache, &copied}) begin(*to, s, tokens, as).commit();
    };
    for (int i = 0; i < 1500; i += 100) begin_both(0, 100);
    const auto share = [&](int s, int length) {
        REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{s}, Position{length}).has_value());
        for (int i = 0; i < length; i += 100) begin(copied, s, 100, 0).commit();
    };
    for (int s = 1; s < 5; ++s) share(s, 1500);
    share(5, 1500);
    share(6, 1500);
    begin_both(2, 30); // behind the prefix, each goes on alone
    begin_both(7, 400);
    // A token of each sequence, in an order in which those that share are apart; then several of one.
    for (const std::vector<int>& batch :
         {std::vector<int>{7, 3, 6, 0, 1, 5, 4, 2}, {7, 3, 6, 0, 1, 5, 4, 2, 2}, {1, 2, 3}, {3, 3, 4, 4, 4, 0}}) {
        BatchBuilder tokens;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            const auto before = std::count(batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(i), batch[i]);
            tokens.add(Sequence{batch[i]}, cache.next(Sequence{batch[i]}) + static_cast<std::int32_t>(before));
        }
        const auto run = [&](Memory& of, bool reads_shared_once, int threads) {
            auto pass = of.begin(tokens).value();
            pass.put(0, wave(pass.tokens() * 2 * dim, 1), wave(pass.tokens() * 2 * dim, 2));
            Floats sums(static_cast<std::size_t>(pass.tokens() * heads), not_a_number);
            const AttentionOptions options{.reads_shared_once = reads_shared_once,
                                           .log_sum_exp = contiguous_view(sums.data(), pass.tokens(), heads)};
            Floats out = attended(pass, options, threads);
            out.insert(out.end(), sums.begin(), sums.end());
            return out;
        };
        const Floats expected = run(copied, false, 1);
        CHECK(run(cache, false, 2) == expected);
        CHECK(run(copied, true, 2) == expected); // nothing is shared
        const Floats found = run(cache, true, 1);
        CHECK(run(cache, true, 3) == found);
        CHECK(found != expected); // it is another order of the same sums
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-5F);
    }
}

TEST_CASE("a prefix that sequences share may be read once for all of them") {
    check_shared_prefix(FullCausal{});
    check_shared_prefix(SlidingWindow<>{900, {.sinks = 4}});
}

TEST_CASE("sequences share no token at a position that has another one in each of them") {
    F32 cache{shape, {.sequences = 2, .cells = 1000, .batch = 400, .positions = Positions::any}};
    begin(cache, 0, 300).commit();
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{300}).has_value());
    for (const int s : {0, 1}) {
        auto own = cache.begin(BatchBuilder{Sequence{s}, Position{299}, 1}).value();
        own.put(0, wave(2 * dim, 3 + s), wave(2 * dim, 5 + s));
        own.commit();
    }
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{300}}.add(Sequence{1}, Position{300})).value();
    pass.put(0, wave(4 * dim, 7), wave(4 * dim, 8));
    const Floats expected = attended(pass), found = attended(pass, {.reads_shared_once = true});
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) < 1e-5F);
}

TEST_CASE("many tokens at one position, where a part of the history may end") {
    const CacheLimits limits{.capacity = 1500, .batch = 400, .positions = Positions::any};
    F32 fast{shape, limits};
    Cache<StandardV<float>, FullCausal, DisabledShift, EigenBackend> exact{shape, limits};
    // Parts end at multiples of 64 positions. There are more tokens than a tile has cells.
    const std::vector<Position> ends{Position{256}, Position{320}, Position{384}, Position{448}};
    for (const Position end : ends) {
        const std::vector<Position> positions(100, end);
        const std::vector<Sequence> sequences(100);
        const Floats k = wave(100 * 2 * dim, end.value), v = wave(100 * 2 * dim, end.value + 5);
        const auto put = [&](auto& cache) {
            begin(cache, 0, end.value - cache.next(Sequence{0}).value).commit();
            auto pass = cache.begin(Batch{positions, sequences}).value();
            pass.put(0, k, v);
            pass.commit();
        };
        put(fast);
        put(exact);
    }
    begin(fast, 0, 190).commit();
    begin(exact, 0, 190).commit();
    for (const int tokens : {1, 3, 40}) {
        auto found = begin(fast, 0, tokens);
        auto expected = begin(exact, 0, tokens);
        const Floats a = attended(found), b = attended(expected);
        for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 1e-5F);
    }
}

TEST_CASE_TEMPLATE("what other sequences and free cells hold does not reach a result", E, float, half, bfloat16) {
    using Memory = Cache<StandardV<E>>;
    for (const float bad : {not_a_number, infinity, -infinity}) {
        Memory clean{shape, {.sequences = 2, .capacity = 200, .batch = 64}};
        Memory dirty{shape, {.sequences = 2, .capacity = 200, .batch = 64}};
        // All cells, then a sequence that stays.
        auto all = dirty.begin(BatchBuilder{Sequence{0}, Position{0}, 64}).value();
        all.put(0, Floats(64 * 2 * dim, bad), Floats(64 * 2 * dim, bad));
        all.commit();
        REQUIRE(dirty.remove(Sequence{0}, Position{0}, to_end));
        for (int i = 0; i < 20; ++i) {
            begin(clean, 0, 1).commit();
            begin(dirty, 0, 1).commit();
            auto others = dirty.begin(BatchBuilder{Sequence{1}, Position{i}, 1}).value();
            others.put(0, Floats(2 * dim, bad), Floats(2 * dim, bad));
            others.commit();
        }
        for (const int tokens : {1, 5, 30}) {
            auto expected = begin(clean, 0, tokens);
            auto found = begin(dirty, 0, tokens);
            CHECK(attended(found) == attended(expected));
        }
    }
}

TEST_CASE_TEMPLATE("what a later token of the batch holds does not reach an earlier one", E, float, half, bfloat16) {
    using Memory = Cache<StandardV<E>>;
    for (const float bad : {not_a_number, infinity}) {
        for (const int tokens : {2, 40}) { // read in place, and packed
            Memory clean{shape, {.capacity = 200, .batch = 64}};
            Memory dirty{shape, {.capacity = 200, .batch = 64}};
            auto expected = begin(clean, 0, tokens);
            auto found = dirty.begin(BatchBuilder{Sequence{0}, Position{0}, tokens}).value();
            const auto keys = expected.keys(0), values = expected.values(0);
            std::vector<E> k(keys.data_handle(), keys.data_handle() + keys.size());
            std::vector<E> v(values.data_handle(), values.data_handle() + values.size());
            std::fill(k.end() - 2 * dim, k.end(), E(bad));
            std::fill(v.end() - 2 * dim, v.end(), E(bad));
            found.put(0, k, v);
            const Floats a = attended(expected), b = attended(found);
            const std::size_t before = static_cast<std::size_t>((tokens - 1) * heads * dim);
            // With AMX, a NaN beside them changes the last bits of halves.
            constexpr float allowed = std::is_same_v<E, float> ? 0 : 1e-6F;
            CHECK(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(before), b.begin(),
                             [](float x, float y) { return std::abs(x - y) <= allowed; }));
            CHECK(std::isnan(b[before]));
        }
    }
}

TEST_CASE("queries and results have any strides, and are float, half or bfloat16") {
    F32 cache{shape, {.capacity = 20, .batch = 16}};
    auto pass = begin(cache, 0, 3);
    const Floats expected = attended(pass);
    const Floats q = wave(3 * heads * dim, 3);
    // [heads, dim, tokens], backwards along the heads
    Floats turned(q.size()), out(q.size());
    const auto at = [&](Floats& floats) {
        return StridedView<float, 3>{floats.data() + (heads - 1) * dim * 3, {3, heads, dim}, {1, -dim * 3, 3}};
    };
    const auto rows = contiguous_view(q.data(), 3, heads, dim);
    for (int t = 0; t < 3; ++t)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) at(turned)(t, h, d) = rows(t, h, d);
    attend(pass, 0, at(turned), at(out));
    const auto same = contiguous_view(expected.data(), 3, heads, dim);
    for (int t = 0; t < 3; ++t)
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) CHECK(at(out)(t, h, d) == same(t, h, d));
    // Halves of numbers with few bits are exact.
    Floats coarse(q.size());
    for (std::size_t i = 0; i < q.size(); ++i) coarse[i] = std::round(q[i] * 64) / 64;
    std::vector<half> halves(coarse.begin(), coarse.end()), half_out(q.size());
    Floats of_floats(q.size());
    attend(pass, 0, coarse, of_floats);
    attend(pass, 0, halves, half_out);
    std::vector<bfloat16> rounded(q.size());
    attend(pass, 0, coarse, rounded);
    for (std::size_t i = 0; i < q.size(); ++i) {
        CHECK(static_cast<float>(half_out[i]) == static_cast<float>(half{of_floats[i]}));
        CHECK(static_cast<float>(rounded[i]) == static_cast<float>(bfloat16{of_floats[i]}));
    }
}

TEST_CASE("keys alone: values are their first elements") {
    Cache<StandardV<float>> latent{CacheShape{.each_layer = std::vector<LayerShape>{{1, 24, 0}}},
                                   {.capacity = 8, .batch = 8}};
    Cache<StandardV<float>> both{CacheShape{.each_layer = std::vector<LayerShape>{{1, 24, 16}}},
                                 {.capacity = 8, .batch = 8}};
    const Floats k = wave(5 * 24, 1);
    Floats v;
    for (std::ptrdiff_t i = 0; i < 5; ++i) v.insert(v.end(), k.begin() + 24 * i, k.begin() + 24 * i + 16);
    auto one = latent.begin(BatchBuilder{Sequence{0}, Position{0}, 5}).value();
    auto other = both.begin(BatchBuilder{Sequence{0}, Position{0}, 5}).value();
    one.put(0, k, Floats{});
    other.put(0, k, v);
    for (const int query_heads : {1, 3, 128}) {
        const Floats q = wave(5 * query_heads * 24, 9);
        Floats a(static_cast<std::size_t>(5 * query_heads * 16)), b(a.size());
        attend(one, 0, q, contiguous_view(a.data(), 5, query_heads, 16));
        attend(other, 0, q, b);
        CHECK(a == b);
    }
    const Floats q = wave(5 * 3 * 24, 9);
    for (const int value_dim : {0, 25}) {
        Floats out(static_cast<std::size_t>(5 * 3 * value_dim), 7);
        const std::string expected = "attend: the results have " + std::to_string(value_dim)
                                     + " elements a head, expected 1 to 24, because the values are the first elements "
                                       "of the keys";
        CHECK(violation_of([&] { attend(one, 0, q, contiguous_view(out.data(), 5, 3, value_dim)); }) == expected);
        if (value_dim != 0) CHECK(violation_of([&] { attend(one, 0, q, out); }) == expected);
        CHECK(out == Floats(out.size(), 7));
    }
}

TEST_CASE("an encoder's inputs: tokens that see none get zeros") {
    EncoderMemory<StandardV<float>> inputs{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    auto written = inputs.write(Sequence{0}, Position{1}, 3).value();
    written.put(0, wave(3 * 2 * dim, 1), wave(3 * 2 * dim, 2));
    written.commit();
    const std::vector<Position> positions{Position{0}, Position{1}, Position{5}};
    const std::vector<Sequence> sequences{Sequence{0}, Sequence{0}, Sequence{1}};
    auto pass = inputs.begin(Batch{positions, sequences}).value();
    Floats sums(std::size_t{3} * heads);
    const Floats out = attended(pass, {.log_sum_exp = contiguous_view(sums.data(), 3, heads)});
    const auto token = [&](std::ptrdiff_t i) {
        return Floats(out.begin() + i * heads * dim, out.begin() + (i + 1) * heads * dim);
    };
    CHECK(token(0) == Floats(heads * dim));
    CHECK(token(2) == Floats(heads * dim));
    CHECK(token(1) != Floats(heads * dim));
    CHECK(sums[0] == -infinity);
    CHECK(std::isfinite(sums[heads]));
}

TEST_CASE("a reserved pass gets zeros") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = cache.reserve(4);
    CHECK(attended(pass) == Floats(4 * heads * dim));
}

TEST_CASE("what does not fit together is a violation, and nothing is written") {
    F32 cache{{.layers = 2, .kv_heads = 2, .head_dim = dim}, {.capacity = 8, .batch = 8}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    pass.put(0, wave(4 * dim, 1), wave(4 * dim, 2));
    const Floats q = wave(2 * heads * dim, 3);
    Floats out(q.size(), 5);
    const auto violation = [&](auto... arguments) { return violation_of([&] { attend(pass, arguments...); }); };
    const auto rows = [](const Floats& floats, int tokens, int of_heads, int of_dim) {
        return contiguous_view(const_cast<float*>(floats.data()), tokens, of_heads, of_dim);
    };
    const auto good = rows(out, 2, heads, dim);
    CHECK(violation(1, q, good) == "attend: layer 1 was not put in this pass, expected a put before it is read");
    CHECK(violation(2, q, good) == "attend: layer 2, expected 0 to 1");
    CHECK(violation(0, rows(q, 1, heads, dim), good)
          == "attend: the queries are [1, 4, 16], expected [2 tokens, heads, 16]");
    CHECK(violation(0, rows(q, 2, heads, 8), good)
          == "attend: the queries are [2, 4, 8], expected [2 tokens, heads, 16]");
    CHECK(violation(0, Floats(33), good)
          == "attend: the queries are 33 elements, expected a multiple of 32 for [2 "
             "tokens, heads, 16]");
    CHECK(violation(0, rows(q, 2, 3, dim), rows(out, 2, 3, dim))
          == "attend: 3 query heads, expected a multiple of the layer's 2 heads of keys");
    CHECK(violation(0, q, rows(out, 2, 2, dim))
          == "attend: the results are [2, 2, 16], expected [2 tokens, 4 heads, dim]");
    CHECK(violation(0, q, rows(out, 2, heads, 8))
          == "attend: the results have 8 elements a head, expected the layer's value_dim of 16");
    CHECK(violation(0, good, good) == "attend: the results overlap the queries, expected other memory");
    const Floats three(3);
    CHECK(violation(0, q, good, AttentionOptions{.slopes = three})
          == "attend: 3 slopes, expected one for each of 4 query heads");
    CHECK(violation(0, q, good, AttentionOptions{.sinks = three})
          == "attend: 3 sinks, expected one for each of 4 query heads");
    for (const float bad : {-1.0F, 0x1p-127F, infinity, not_a_number})
        CHECK(
            violation(0, q, good, AttentionOptions{.soft_cap = bad})
            == "attend: the soft_cap is negative, below 2^-126, infinite or not a number, expected a finite one, or 0 "
               "for none");
    for (const float bad : {infinity, -infinity, not_a_number}) {
        CHECK(violation(0, q, good, AttentionOptions{.scale = bad})
              == "attend: the scale is infinite or not a number, expected a finite one");
        const Floats numbers{0, 1, bad, 0};
        CHECK(violation(0, q, good, AttentionOptions{.slopes = numbers})
              == "attend: the slope of query head 2 is infinite or not a number, expected a finite one");
        if (bad != -infinity)
            CHECK(violation(0, q, good, AttentionOptions{.sinks = numbers})
                  == "attend: the sink of query head 2 is infinite or not a number, expected a finite one, or "
                     "-infinity for none");
    }
    CHECK(violation(0, q, good, AttentionOptions{.log_sum_exp = contiguous_view(out.data(), 2, 3)})
          == "attend: the log_sum_exp is [2, 3], expected [2 tokens, 4 heads]");
    const auto null = contiguous_view(static_cast<float*>(nullptr), 2, heads, dim);
    CHECK(violation(0, null, good) == "attend: the queries are a null pointer, expected memory for [2, 4, 16]");
    CHECK(violation(0, q, null) == "attend: the results are a null pointer, expected memory for [2, 4, 16]");
    std::vector<half> halves(q.size() + 1);
    auto odd = contiguous_view(halves.data(), 2, heads, dim);
    odd.pointer = reinterpret_cast<half*>(reinterpret_cast<char*>(halves.data()) + 1);
    CHECK(violation(0, odd, good)
          == "attend: the queries are not aligned, expected an address that is a multiple of 2");
    CHECK(violation(0, q, odd) == "attend: the results are not aligned, expected an address that is a multiple of 2");
    CHECK(violation(0, q, StridedView<float, 3>{out.data(), {2, heads, dim}, {}}) // its strides were forgotten
          == "attend: stride 0 of the results is 0 and the extent 2, expected at least 1, a place for each element");
    CHECK(violation(0, q, StridedView<float, 3>{out.data(), {2, heads, dim}, {dim, dim, 1}})
          == "attend: stride 1 of the results is 16 and the extent 4, expected at least 32, a place for each element");
    Floats sums(16, 5);
    CHECK(
        violation(0, q, good, AttentionOptions{.log_sum_exp = {sums.data(), {2, heads}, {heads, 0}}})
        == "attend: stride 1 of the log_sum_exp is 0 and the extent 4, expected at least 1, a place for each element");
    auto between = contiguous_view(sums.data(), 2, heads);
    between.pointer = reinterpret_cast<float*>(reinterpret_cast<char*>(sums.data()) + 2);
    CHECK(violation(0, q, good, AttentionOptions{.log_sum_exp = between})
          == "attend: the elements of the log_sum_exp are not aligned, expected an address that is a multiple of 4");
    const std::string overlaps = "attend: the log_sum_exp overlaps the queries or the results, expected other memory";
    const auto sums_at = [](const float* at) {
        return AttentionOptions{.log_sum_exp = contiguous_view(const_cast<float*>(at), 2, heads)};
    };
    CHECK(violation(0, q, good, sums_at(out.data())) == overlaps);
    CHECK(violation(0, q, good, sums_at(out.data() + out.size() - 1)) == overlaps);
    CHECK(violation(0, rows(q, 2, heads, dim), good, sums_at(q.data() + 40)) == overlaps);
    CHECK(sums == Floats(16, 5));
    CHECK(violation(0, q, good, AttentionOptions{}, SomeThreads{0}) == "attend: 0 threads, expected at least 1");
    CHECK(violation(0, Floats{}, good) == "attend: 0 query heads, expected a multiple of the layer's 2 heads of keys");
    CHECK(out == Floats(q.size(), 5));
}

TEST_CASE("the log_sum_exp may lie behind each row of the results") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = begin(cache, 0, 2);
    Floats sums(2 * heads);
    const Floats expected = attended(pass, {.log_sum_exp = contiguous_view(sums.data(), 2, heads)});
    Floats joined(2 * heads * (dim + 1));
    const StridedView<float, 3> out{joined.data(), {2, heads, dim}, {heads * (dim + 1), dim + 1, 1}};
    const StridedView<float, 2> of_rows{joined.data() + dim, {2, heads}, {heads * (dim + 1), dim + 1}};
    attend(pass, 0, wave(2 * heads * dim, 3), out, {.log_sum_exp = of_rows});
    for (std::size_t row = 0; row < 2 * heads; ++row) {
        const std::size_t first = row * (dim + 1);
        CHECK(joined[first + dim] == sums[row]);
        for (std::size_t d = 0; d < dim; ++d) CHECK(joined[first + d] == expected[row * dim + d]);
    }
}

TEST_CASE("an empty batch needs no heads") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = begin(cache, 0, 0);
    const Floats numbers{0, 1, 2, 3};
    Floats none, sums(heads);
    attend(pass, 0, none, none, {.slopes = numbers, .log_sum_exp = contiguous_view(sums.data(), 0, heads)});
    attend(pass, 0, none, none, {.sinks = numbers});
    CHECK(sums == Floats(heads));
}

TEST_CASE("a thread that does not exist is noticed before it works") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = begin(cache, 0, 2);
    const Floats q = wave(2 * heads * dim, 3);
    Floats out(q.size(), 5);
    CHECK(violation_of([&] { attend(pass, 0, q, out, {}, FromOne{}); }) == "attend: thread 2, expected 0 to 1");
    CHECK(out == Floats(q.size(), 5));
}

TEST_CASE("queries and results may be neighbours in one buffer, and overlap nowhere else") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = begin(cache, 0, 2);
    const Floats expected = attended(pass), q = wave(2 * heads * dim, 3);
    Floats buffer(5 * heads * dim);
    const auto in_buffer = [&](int first) {
        return StridedView<float, 3>{
            &buffer[static_cast<std::size_t>(first)], {2, heads, dim}, {2 * heads * dim, dim, 1}};
    };
    const auto queries = contiguous_view(q.data(), 2, heads, dim),
               found = contiguous_view(expected.data(), 2, heads, dim);
    for (const int first : {0, heads * dim}) { // the queries come first, or last
        const auto from = in_buffer(first), to = in_buffer(heads * dim - first);
        const auto each = [&](auto f) {
            for (int t = 0; t < 2; ++t)
                for (int h = 0; h < heads; ++h)
                    for (int d = 0; d < dim; ++d) f(t, h, d);
        };
        each([&](int t, int h, int d) { from(t, h, d) = queries(t, h, d); });
        attend(pass, 0, from, to);
        each([&](int t, int h, int d) { CHECK(to(t, h, d) == found(t, h, d)); });
    }
    const std::string overlap = "attend: the results overlap the queries, expected other memory";
    for (const int apart : {1, heads * dim - 1, heads * dim + 1}) {
        CHECK(violation_of([&] { attend(pass, 0, in_buffer(0), in_buffer(apart)); }) == overlap);
        CHECK(violation_of([&] { attend(pass, 0, in_buffer(apart), in_buffer(0)); }) == overlap);
    }
    // Results that go backwards lie before the address of the first one.
    const auto first = contiguous_view(buffer.data(), 2, heads, dim);
    const StridedView<float, 3> backwards{
        &buffer[static_cast<std::size_t>((2 * heads + 1) * dim)], {2, heads, dim}, {-heads * dim, -dim, 1}};
    CHECK(violation_of([&] { attend(pass, 0, first, backwards); }) == overlap);
    CHECK(violation_of([&] { attend(pass, 0, backwards, first); }) == overlap);
}

TEST_CASE("a batch without tokens has no queries and no results") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    Cache<StandardV<float>> latent{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = dim, .value_dim = 0},
                                   {.capacity = 8, .batch = 8}};
    const auto attend_to_nothing = [](auto pass, int value_dim) {
        Floats out, one(1);
        attend(pass, 0, Floats{}, out);
        CHECK(violation_of([&] { attend(pass, 0, Floats{}, one); })
              == "attend: the results are 1 elements, expected a multiple of 0 for [0 tokens, heads, "
                     + std::to_string(value_dim) + "]");
    };
    attend_to_nothing(cache.begin(BatchBuilder{}).value(), dim);
    attend_to_nothing(cache.reserve(0), dim);
    attend_to_nothing(latent.begin(BatchBuilder{}).value(), 1);
}

TEST_CASE("a learned sink of -infinity is none") {
    EncoderMemory<StandardV<float>> inputs{shape, {.sequences = 2, .capacity = 8, .batch = 4}};
    auto written = inputs.write(Sequence{0}, Position{0}, 3).value();
    written.put(0, wave(3 * 2 * dim, 1), wave(3 * 2 * dim, 2));
    written.commit();
    const std::vector<Position> positions{Position{2}, Position{2}};
    const std::vector<Sequence> sequences{Sequence{0}, Sequence{1}}; // the second one sees nothing
    auto pass = inputs.begin(Batch{positions, sequences}).value();
    const Floats none(heads, -infinity);
    Floats sums(2 * heads);
    CHECK(attended(pass, {.sinks = none, .log_sum_exp = contiguous_view(sums.data(), 2, heads)}) == attended(pass));
    CHECK(std::isfinite(sums[0]));
    CHECK(sums[heads] == -infinity);
}

TEST_CASE("a small soft cap caps") {
    F32 cache{shape, {.capacity = 8, .batch = 8}};
    auto pass = begin(cache, 0, 8);
    Floats out(std::size_t{8} * heads * dim);
    attend(pass, 0, Floats(out.size()), out, {.soft_cap = 0x1p-126F}); // scores of 0
    for (const float x : out) CHECK(std::isfinite(x));
}

TEST_CASE_TEMPLATE("values that are not finite, of cells whose scores are -infinity", E, float, half, bfloat16) {
    using Fast = Cache<StandardV<E>>;
    using Exact = Cache<StandardV<E>, FullCausal, DisabledShift, EigenBackend>;
    constexpr int length = 1000; // of several parts
    struct Range {
        int first, end;
    };
    // None, some in the first or in the last part of the history, whole parts, all.
    for (const Range finite :
         {Range{0, 0}, {0, 1}, {length - 1, length}, {1, length}, {0, 384}, {0, 512}, {0, length}}) {
        const auto result = [&](auto&& cache, int tokens) {
            Floats k(std::size_t{length} * 2 * dim, -infinity), v(k.size(), infinity);
            const auto fill = [&](Floats& rows, float x) {
                std::fill(rows.begin() + std::ptrdiff_t{finite.first} * 2 * dim,
                          rows.begin() + std::ptrdiff_t{finite.end} * 2 * dim, x);
            };
            fill(k, 0.5F);
            fill(v, 2.0F);
            auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, length}).value();
            pass.put(0, k, v);
            pass.commit();
            auto next = cache.begin(BatchBuilder{Sequence{0}, Position{length}, tokens}).value();
            const auto last = std::ptrdiff_t{length - tokens} * 2 * dim;
            next.put(0, Floats(k.begin() + last, k.end()), Floats(v.begin() + last, v.end()));
            Floats out(static_cast<std::size_t>(tokens * heads * dim));
            attend(next, 0, Floats(out.size(), 1), out);
            return out;
        };
        for (const int tokens : {1, 20}) { // read in place, and packed
            const CacheLimits limits{.capacity = length + tokens, .batch = length};
            const Floats found = result(Fast{shape, limits}, tokens);
            const Floats expected = result(Exact{shape, limits}, tokens);
            for (std::size_t i = 0; i < found.size(); ++i)
                CHECK((std::isnan(found[i]) ? std::isnan(expected[i]) : std::abs(found[i] - expected[i]) < 1e-6F));
        }
    }
}

TEST_CASE_TEMPLATE("what earlier calls left in memory does not reach a result", E, float, half, bfloat16) {
    using Memory = Cache<StandardV<E>>;
    for (const int some_dim : {1, 8, 24, 40, 129}) {
        Memory cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = some_dim}, {.capacity = 64, .batch = 64}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 40}).value();
        pass.put(0, wave(40 * 2 * some_dim, 1), wave(40 * 2 * some_dim, 2));
        const Floats q = wave(40 * heads * some_dim, 3);
        for (const detail::Instructions instructions : attention_test::instructions()) {
            Floats expected(q.size()), found(q.size());
            detail::attend_with(instructions, pass, 0, q, expected, {}, CallingThread{});
            auto& left = MemoryAccess::state(cache).scratch.attention.rows;
            std::fill_n(left.reserve(0), left.bytes(), std::byte{0xff}); // not a number
            detail::attend_with(instructions, pass, 0, q, found, {}, CallingThread{});
            CHECK(found == expected);
        }
    }
}

TEST_CASE("parts of a history are merged exactly") {
    F32 whole{shape, {.capacity = 64, .batch = 32}};
    begin(whole, 0, 20).commit();
    auto pass = begin(whole, 0, 2);
    const Floats expected = attended(pass);
    // The same keys and values, of which one memory has the first 12, and the other one the rest.
    const auto keys = pass.keys(0), values = pass.values(0);
    const Floats q = wave(2 * heads * dim, 3);
    struct Part {
        Floats out = Floats(std::size_t{2} * heads * dim), sums = Floats(std::size_t{2} * heads);
        PartialAttention<float> view() {
            return {contiguous_view(out.data(), 2, heads, dim), contiguous_view(sums.data(), 2, heads)};
        }
    };
    std::vector<Part> parts(2);
    for (const int i : {0, 1}) {
        // As inputs, because all queries see all of a part but the batch's own last token.
        const int first = i == 0 ? 0 : 12, n = i == 0 ? 12 : 8;
        EncoderMemory<StandardV<float>> part{shape, {.capacity = 64, .batch = 32}};
        for (int t = 0; t < n + 2 * i; ++t) {
            auto written = part.write(Sequence{0}, Position{t}, 1).value();
            const float* const k = keys.data_handle() + (first + t) * 2 * dim;
            const float* const v = values.data_handle() + (first + t) * 2 * dim;
            written.put(0, Floats(k, k + 2 * dim), Floats(v, v + 2 * dim));
            written.commit();
        }
        const std::vector<Position> positions{Position{n - 1 + i}, Position{n - 1 + 2 * i}};
        const std::vector<Sequence> sequences(2);
        auto reading = part.begin(Batch{positions, sequences}).value();
        const auto view = parts[static_cast<std::size_t>(i)].view();
        attend(reading, 0, q, view.out, {.log_sum_exp = view.log_sum_exp});
    }
    merge_attention(parts[0].view(), parts[1].view());
    Floats sums(std::size_t{2} * heads);
    Floats again(expected.size());
    attend(pass, 0, q, again, {.log_sum_exp = contiguous_view(sums.data(), 2, heads)});
    for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(parts[0].out[i] == doctest::Approx(expected[i]).epsilon(1e-6));
    for (std::size_t i = 0; i < sums.size(); ++i) CHECK(parts[0].sums[i] == doctest::Approx(sums[i]).epsilon(1e-6));
    // A part that has seen nothing changes nothing.
    Part nothing;
    std::fill(nothing.sums.begin(), nothing.sums.end(), -infinity);
    const Floats before = parts[0].out;
    merge_attention(parts[0].view(), nothing.view());
    CHECK(parts[0].out == before);
    merge_attention(nothing.view(), parts[0].view());
    CHECK(nothing.out == before);
    Part neither;
    std::fill(neither.sums.begin(), neither.sums.end(), -infinity);
    Part nor;
    std::fill(nor.sums.begin(), nor.sums.end(), -infinity);
    merge_attention(neither.view(), nor.view());
    CHECK(neither.out == Floats(expected.size()));
    // What is not a number stays that, whichever part it is in.
    Part unknown;
    std::fill(unknown.out.begin(), unknown.out.end(), not_a_number);
    std::fill(unknown.sums.begin(), unknown.sums.end(), not_a_number);
    merge_attention(neither.view(), unknown.view());
    CHECK(std::isnan(neither.out[0]));
    CHECK(std::isnan(neither.sums[0]));
    const auto narrow = contiguous_view(nothing.out.data(), 2, heads, dim / 2);
    CHECK(violation_of([&] {
              merge_attention(parts[0].view(), {narrow, nothing.view().log_sum_exp});
          })
          == "merge_attention: extent 2 is 16, expected 8 as in the other part");
    CHECK(violation_of([&] {
              merge_attention(parts[0].view(), {nothing.view().out, contiguous_view(nothing.sums.data(), 2, 3)});
          })
          == "merge_attention: extent 1 of the results is 4, expected the same of each log_sum_exp, which have 4 and "
             "3");
    const auto null = contiguous_view(static_cast<float*>(nullptr), 2, heads, dim);
    const auto null_sums = contiguous_view(static_cast<float*>(nullptr), 2, heads);
    const Floats whole_out = parts[0].out, whole_sums = parts[0].sums;
    for (const PartialAttention<float>& part : {PartialAttention<float>{null, parts[1].view().log_sum_exp},
                                                PartialAttention<float>{parts[1].view().out, null_sums}}) {
        CHECK(violation_of([&] { merge_attention(parts[0].view(), part); })
              == "merge_attention: a part of null pointers, expected memory for its results");
        CHECK(violation_of([&] { merge_attention(part, parts[0].view()); })
              == "merge_attention: a part of null pointers, expected memory for its results");
    }
    const auto odd = [](auto view) {
        view.pointer = reinterpret_cast<float*>(reinterpret_cast<char*>(view.pointer) + 2);
        return view;
    };
    const auto other = parts[1].view();
    CHECK(violation_of([&] {
              merge_attention(parts[0].view(), {odd(other.out), other.log_sum_exp});
          })
          == "merge_attention: the results are not aligned, expected an address that is a multiple of 4");
    CHECK(violation_of([&] {
              merge_attention({other.out, odd(other.log_sum_exp)}, parts[0].view());
          })
          == "merge_attention: the elements of the log_sum_exp are not aligned, expected an address that is a multiple "
             "of 4");
    CHECK(violation_of([&] { merge_attention(parts[0].view(), parts[0].view()); })
          == "merge_attention: the results of the parts overlap, expected other memory");
    Floats shared(static_cast<std::size_t>(2 * heads * dim) + 1);
    const auto shifted = [&](int by) {
        return PartialAttention<float>{contiguous_view(shared.data() + by, 2, heads, dim),
                                       parts[static_cast<std::size_t>(by)].view().log_sum_exp};
    };
    CHECK(violation_of([&] { merge_attention(shifted(0), shifted(1)); })
          == "merge_attention: the results of the parts overlap, expected other memory");
    CHECK(violation_of([&] {
              merge_attention(parts[0].view(), {parts[1].view().out, parts[0].view().log_sum_exp});
          })
          == "merge_attention: the log_sum_exp of the parts overlap, expected other memory");
    auto same_place = parts[0].view();
    same_place.out.strides[0] = 0;
    CHECK(violation_of([&] { merge_attention(same_place, parts[1].view()); })
          == "merge_attention: stride 0 of the results is 0 and the extent 2, expected at least 1, a place for each "
             "element");
    auto moved = parts[1].view();
    moved.log_sum_exp.pointer = parts[0].sums.data() + 1;
    CHECK(violation_of([&] { merge_attention(parts[0].view(), moved); })
          == "merge_attention: the log_sum_exp of the parts overlap, expected other memory");
    // The logarithms of two parts may take turns in one array.
    Floats turns(std::size_t{2} * 2 * heads);
    auto first = parts[0].view();
    auto second = parts[1].view();
    first.log_sum_exp = {turns.data(), {2, heads}, {2 * heads, 2}};
    second.log_sum_exp = {turns.data() + 1, {2, heads}, {2 * heads, 2}};
    CHECK(violation_of([&] { merge_attention(first, second); }) == "none");
    parts[0].out = whole_out;
    for (float* const inside : {parts[0].out.data(), parts[1].out.data()}) {
        auto into = parts[0].view();
        into.log_sum_exp.pointer = inside;
        CHECK(violation_of([&] { merge_attention(into, parts[1].view()); })
              == "merge_attention: a log_sum_exp overlaps the results, expected other memory");
    }
    CHECK(parts[0].out == whole_out);
    CHECK(parts[0].sums == whole_sums);
}

TEST_CASE("drafted tokens in a tree see their branch alone") {
    // Two branches of two tokens after a text of three: each must get what it would get without the other.
    F32 cache{shape, {.sequences = 2, .capacity = 16, .batch = 8, .positions = Positions::any}};
    const auto put = [](auto& pass, const std::vector<int>& texts) {
        Floats k, v;
        for (const int text : texts) {
            const Floats key = wave(2 * dim, text), value = wave(2 * dim, text + 100);
            k.insert(k.end(), key.begin(), key.end());
            v.insert(v.end(), value.begin(), value.end());
        }
        pass.put(0, k, v);
    };
    auto text = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    put(text, {1, 2, 3});
    text.commit();
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    const std::vector<Position> drafted{Position{3}, Position{3}, Position{4}, Position{4}};
    const std::vector<Sequence> one(4);
    const std::vector<std::int32_t> parents{-1, -1, 0, 1};
    auto both = cache.begin(Batch{.positions = drafted, .sequences = one, .parents = parents}).value();
    put(both, {10, 20, 11, 21});
    const Floats q = wave(heads * dim, 3);
    Floats queries;
    for (int i = 0; i < 4; ++i) queries.insert(queries.end(), q.begin(), q.end());
    Floats found(queries.size());
    attend(both, 0, queries, found);
    CHECK(violation_of([&] { both.commit(); }) == "commit: the tokens have branches, expected a pass of one branch");
    both.drop();
    for (const int branch : {0, 1}) {
        auto alone = cache.begin(BatchBuilder{Sequence{1}, Position{3}, 2}).value();
        put(alone, {10 + 10 * branch, 11 + 10 * branch});
        Floats expected(static_cast<std::size_t>(2 * heads * dim));
        attend(alone, 0, Floats(queries.begin(), queries.begin() + 2 * heads * dim), expected);
        for (int depth : {0, 1})
            for (std::ptrdiff_t i = 0; i < heads * dim; ++i)
                CHECK(found[static_cast<std::size_t>((2 * depth + branch) * heads * dim + i)]
                      == doctest::Approx(expected[static_cast<std::size_t>(depth * heads * dim + i)]).epsilon(1e-6));
    }
}

TEST_CASE("tokens of a tree see an encoder's inputs as others do") {
    EncoderMemory<StandardV<float>> inputs{shape, {.capacity = 8, .batch = 4}};
    auto input = inputs.write(Sequence{0}, Position{0}, 3).value();
    input.put(0, wave(6 * dim, 1), wave(6 * dim, 2));
    input.commit();
    const BatchBuilder plain = BatchBuilder{Sequence{0}, Position{0}, 2}.add(Sequence{0}, Position{1});
    const BatchBuilder tree = BatchBuilder{Sequence{0}, Position{0}}.add_child(0).add_child(0);
    const auto seen = [&](const BatchBuilder& batch) {
        auto pass = inputs.begin(batch).value();
        return attended(pass);
    };
    CHECK(seen(tree) == seen(plain));
}

} // namespace test_attend
