// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Attention that a backend computes itself, and what `attend` asks of a pass.
#include "attended.hpp"
#include "backend/own_attention.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace test_own_backend {

using namespace cellar;
using attention_test::Floats;
using attention_test::wave;
using cellar_test::OwnAttention;

static_assert(MergesAttention<OwnAttention> && BackendPolicy<OwnAttention> && !IsReference<OwnAttention>);
static_assert(!ComputesAttention<HostBackend> && !ComputesAttention<EigenBackend>);
static_assert(IsReference<EigenBackend> && !IsReference<HostBackend>);

namespace {

struct WithoutLists : OwnAttention {
    void begin_attention() const {}
};
struct WithoutLayers : OwnAttention {
    void attend() const {}
};
struct WithoutMemory : OwnAttention {
    void prior_results() const {}
};
struct WithoutOrder : OwnAttention {
    void shares_order() const {}
};

constexpr int layers = 2, kv_heads = 2, heads = 4, dim = 8;

template <class Backend>
using Windowed = Cache<StandardV<half>, SlidingWindow<>, DisabledShift, Backend>;
using Pass = CachePass<Windowed<HostBackend>>;

struct NoPass {
    int attention_source(const char*, int) const { return 0; }
};

template <class Backend>
Windowed<Backend> cache() {
    return {{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
            {.sequences = 2, .capacity = 200, .batch = 60},
            SlidingWindow<>{20, {.sinks = 3}}};
}

struct Found {
    Floats out, sums;
};

/// The results of all layers.
template <class Backend>
Found attend_to(Windowed<Backend>& memory, const Batch& batch, AttentionOptions options, bool commits) {
    auto pass = memory.begin(batch).value();
    const int n = pass.tokens();
    for (int layer = 0; layer < layers; ++layer)
        pass.put(layer, wave(n * kv_heads * dim, layer), wave(n * kv_heads * dim, 10 + layer));
    Found found;
    for (int layer = 0; layer < layers; ++layer) {
        Floats out(static_cast<std::size_t>(n * heads * dim)), sums(static_cast<std::size_t>(n * heads));
        options.log_sum_exp = contiguous_view(sums.data(), n, heads);
        attend(pass, layer, wave(n * heads * dim, 20 + layer), out, options);
        found.out.insert(found.out.end(), out.begin(), out.end());
        found.sums.insert(found.sums.end(), sums.begin(), sums.end());
    }
    if (commits) pass.commit();
    return found;
}

/// Compares both backends.
struct Twins {
    Windowed<OwnAttention> own = cache<OwnAttention>();
    Windowed<EigenBackend> exact = cache<EigenBackend>();

    void check(const Batch& batch, const AttentionOptions& options, bool commits = true) {
        const Found found = attend_to(own, batch, options, commits);
        const Found expected = attend_to(exact, batch, options, commits);
        const double allowed = attention_test::bound(dim, 3, 3, 0.1 * 200, 1, 60);
        int wrong = 0;
        for (std::size_t i = 0; i < found.out.size(); ++i)
            if (!(std::abs(found.out[i] - expected.out[i]) <= allowed)) ++wrong;
        for (std::size_t i = 0; i < found.sums.size(); ++i)
            if (!(std::abs(found.sums[i] - expected.sums[i]) <= 8 * allowed)) ++wrong;
        CHECK(wrong == 0);
        CHECK(found.out != Floats(found.out.size()));
    }
};

} // namespace

static_assert(!ComputesAttention<WithoutLists> && !ComputesAttention<WithoutLayers>);
static_assert(!MergesAttention<WithoutMemory> && !MergesAttention<WithoutOrder> && !MergesAttention<WithoutLists>);
static_assert(detail::attended_pass<Pass> && detail::attended_pass<const Pass>);
static_assert(detail::attended_pass<CachePass<EncoderMemory<StandardV<float>, HostBackend>>>);
static_assert(!detail::attended_pass<int> && !detail::attended_pass<NoPass> && !detail::attended_pass<Result<Pass>>);

TEST_CASE("a backend of one's own computes attention from the lists of a pass and the work of each layer") {
    Twins twins;
    const Floats slopes{0.1F, 0.05F, 0, 0.02F}, sinks{1, 0, -1, 2};
    BatchBuilder both;
    for (int i = 0; i < 50; ++i) both.add(Sequence{i % 2}, Position{i / 2});
    twins.check(both, {});
    BatchBuilder next;
    next.add(Sequence{1}, Position{25}), next.add(Sequence{0}, Position{25}), next.add(Sequence{0}, Position{26});
    twins.check(next, {.scale = 0.7F, .soft_cap = 2, .slopes = slopes, .sinks = sinks});
    BatchBuilder drafts;
    drafts.add(Sequence{0}, Position{27}), drafts.add(Sequence{0}, Position{28}), drafts.add(Sequence{1}, Position{26});
    drafts.add_child(1);
    twins.check(drafts, {}, false);
}

TEST_CASE("a backend that computes attention gets the lists of a pass once, and its tree with each layer") {
    using Own = Cache<StandardV<half>, FullCausal, DisabledShift, OwnAttention>;
    Own memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
               {.sequences = 1, .capacity = 100, .batch = 20, .positions = Positions::any}};
    const BatchBuilder chain = BatchBuilder{Sequence{0}, Position{0}, 2}.add(Sequence{0}, Position{1});
    const BatchBuilder drafts = BatchBuilder{Sequence{0}, Position{0}}.add_child(0).add_child(0);
    const Floats rows = wave(3 * kv_heads * dim, 1), q = wave(3 * heads * dim, 2);
    Floats all(q.size()), tree(q.size()), second(q.size());
    {
        auto pass = memory.begin(chain).value();
        pass.put(0, rows, rows);
        attend(pass, 0, q, all);
    }
    auto pass = memory.begin(drafts).value();
    for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
    attend(pass, 0, q, tree);
    attend(pass, 1, q, second);
    auto source = pass.attention_source("test", 0);
    CHECK(source.backend().passes == 2);
    CHECK(source.backend().layers == 3);
    CHECK(second == tree);
    // The children of the first token are at one position, so without a tree they see each other.
    CHECK(Floats(tree.begin(), tree.begin() + heads * dim) == Floats(all.begin(), all.begin() + heads * dim));
    CHECK(tree != all);
}

TEST_CASE("a backend that computes attention writes the zeros of a reserved pass") {
    auto memory = cache<OwnAttention>();
    auto pass = memory.reserve(3);
    Floats out(3 * heads * dim, 7);
    attend(pass, 0, wave(3 * heads * dim, 1), out);
    CHECK(out == Floats(out.size()));
}

} // namespace test_own_backend
