// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "scan_cache.hpp"
#include "whole_book.hpp"
#include <cellar/cellar.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace cellar::bench {

/// Fails the run if a scene is not as intended.
inline void expect(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "cellar_bench: %s\n", what.c_str());
    std::exit(1);
}

/// A cache for measuring bookkeeping. Scenes give it one layer, with one element per key and value.
template <WindowPolicy Window>
using Bookkeeping = Cache<StandardV<float>, Window>;

/// A cache of `cells` cells, of which `sequences` sequences together use `percent` percent.
struct Scene {
    std::int32_t sequences = 1;
    Cell cells = 0;
    std::int32_t percent = 90;
    Placement placement = Placement::blocks;

    std::string name() const { return std::to_string(sequences) + "/" + std::to_string(cells / 1024) + "k"; }
    /// Whether its sequences lie in neighbouring cells.
    std::string state() const {
        if (sequences == 1) return "contiguous";
        return placement == Placement::scattered ? "scattered" : "interleaved";
    }
    /// Tokens per sequence.
    std::int32_t tokens() const { return static_cast<std::int32_t>(std::int64_t{cells} * percent / 100) / sequences; }
};

inline constexpr std::int32_t max_batch = 512;

/// Ends a pass whose rows nobody reads.
template <class Pass>
void mark_put(Pass& pass, int layers) {
    for (int layer = 0; layer < layers; ++layer) pass.visit(layer, [](auto& own, int i) { own.mark_put(i); });
}

inline void store(WholeBook& book, const Batch& batch) {
    expect(book.begin(batch).has_value(), "the cache is too small for the scene");
    book.commit();
}
template <class Memory>
void store(Memory& cache, const Batch& batch) {
    auto pass = cache.begin(batch);
    expect(pass.has_value(), "the cache is too small for the scene");
    mark_put(*pass, cache.layers());
    pass->commit();
}

/// A batch: a prompt of one sequence, or one token for each of several.
class TokenList {
public:
    static TokenList prompt(Sequence s, Position from, std::int32_t n) {
        TokenList tokens;
        for (std::int32_t i = 0; i < n; ++i) tokens.add(s, from + i);
        return tokens;
    }
    /// The next token of each of sequences [0, n).
    static TokenList step(const detail::CellTable& table, std::int32_t n) {
        TokenList tokens;
        for (std::int32_t s = 0; s < n; ++s) {
            const detail::PositionRuns& runs = table.record(Sequence{s}).runs;
            tokens.add(Sequence{s}, runs.empty() ? Position{0} : runs.last() + 1);
        }
        return tokens;
    }

    void add(Sequence s, Position p) {
        sequences_.push_back(s);
        positions_.push_back(p);
    }
    Batch batch() const { return {positions_, sequences_}; }
    void advance(std::int32_t n) {
        for (Position& p : positions_) p = p + n;
    }

private:
    std::vector<Position> positions_;
    std::vector<Sequence> sequences_;
};

template <class Memory>
void prefill(Memory& memory, Sequence s, Position from, std::int32_t n) {
    const std::int32_t max_tokens = std::min(max_batch, memory.limits().batch);
    for (std::int32_t done = 0; done < n; done += max_tokens)
        store(memory, TokenList::prompt(s, from + done, std::min(max_tokens, n - done)).batch());
}

template <class Memory>
void decode(Memory& memory, std::int32_t sequences, std::int32_t steps) {
    TokenList tokens = TokenList::step(table_of(memory), sequences);
    for (std::int32_t i = 0; i < steps; ++i, tokens.advance(1)) store(memory, tokens.batch());
}

/// Fills the cache as the scene says. The first half of each sequence is a prompt in neighbouring cells. The second
/// half came in turn with the other sequences: runs of 64 cells under `Placement::blocks`, cells that lie `sequences`
/// apart under `Placement::scattered`. A single sequence is one prompt.
template <class Memory>
void fill(Memory& memory, const Scene& scene) {
    const std::int32_t prompt = scene.sequences == 1 ? scene.tokens() : scene.tokens() / 2;
    for (std::int32_t s = 0; s < scene.sequences; ++s) prefill(memory, Sequence{s}, Position{0}, prompt);
    decode(memory, scene.sequences, scene.tokens() - prompt);
}

/// `extra`: further sequences, without tokens.
inline CacheLimits limits_of(const Scene& scene, std::int32_t extra = 0) {
    return {.sequences = scene.sequences + extra,
            .capacity = scene.cells / (scene.sequences + extra),
            .batch = std::max(max_batch, scene.sequences),
            .placement = scene.placement};
}

template <WindowPolicy Window>
Bookkeeping<Window> empty(const Scene& scene, Positions positions);

template <>
inline Bookkeeping<FullCausal> empty(const Scene& scene, Positions positions) {
    CacheLimits limits = limits_of(scene);
    limits.positions = positions;
    return Bookkeeping<FullCausal>{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
}

/// As wide as a sequence's share of the cells.
inline std::int32_t window_of(const Scene& scene) {
    return scene.tokens() - 1;
}

template <>
inline Bookkeeping<SlidingWindow<>> empty(const Scene& scene, Positions positions) {
    const std::int32_t width = window_of(scene);
    const CacheLimits limits{.sequences = scene.sequences,
                             .capacity = scene.cells,
                             .batch = scene.cells - (width + (scene.sequences > 1 ? 1 : 0)) * scene.sequences,
                             .placement = scene.placement,
                             .positions = positions};
    Bookkeeping<SlidingWindow<>> cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits,
                                       SlidingWindow<>{width}};
    expect(cache.cells() == scene.cells, "the window does not fill the cache as intended");
    return cache;
}

inline void fill_all(Bookkeeping<FullCausal>& cache, const Scene& scene) {
    fill(cache, scene);
}
/// If there are several sequences, each has forgotten its prompt.
inline void fill_all(Bookkeeping<SlidingWindow<>>& cache, const Scene& scene) {
    fill(cache, scene);
    if (scene.sequences > 1) decode(cache, scene.sequences, window_of(scene));
}

template <WindowPolicy Window>
Bookkeeping<Window> filled(const Scene& scene, Positions positions = Positions::consecutive) {
    Bookkeeping<Window> cache = empty<Window>(scene, positions);
    fill_all(cache, scene);
    return cache;
}

/// Fails the run unless the table and the scan hold the same tokens in the same cells.
template <WindowPolicy Window>
void expect_same_tokens(const detail::CellTable& table, const ScanCache<Window>& scan, const std::string& job) {
    std::int64_t owners = 0;
    for (std::int32_t s = 0; s < table.sequences(); ++s)
        table.record(Sequence{s}).runs.for_each(Position{0}, to_end, [&](Position p, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i)
                expect(scan.owns(Sequence{s}, cell + i, p + i), job + ": the scan has different tokens or cells");
            owners += n;
        });
    expect(owners == scan.owners(), job + ": the scan has more tokens");
}

} // namespace cellar::bench
