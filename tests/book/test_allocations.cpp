// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decode steps allocate nothing.
#include "allocation_count.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_book_allocations {

namespace {

using namespace cellar;

constexpr int heads = 2;
constexpr int dim = 4;
constexpr std::int32_t capacity = 200;
constexpr std::int32_t batch = 64;
constexpr int layers = 2;

template <WindowPolicy Window>
using TestCache = Cache<PermutedV<half>, Window>;

/// Decode steps of `count` sequences, with one token each.
template <WindowPolicy Window>
struct Decoding {
    Decoding(const Window& window, std::int32_t count)
        : cache{CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim},
                {.sequences = count, .capacity = capacity, .batch = batch},
                window},
          keys(static_cast<std::size_t>(count) * heads * dim, 1.0F),
          own_mask(static_cast<std::size_t>(count * cache.cells())),
          own_cells(static_cast<std::size_t>(count)) {
        for (std::int32_t s = 0; s < count; ++s) {
            sequences.push_back(Sequence{s});
            positions.push_back(Position{0});
        }
        cache.reserve_lists(capacity, 16);
        auto reserved = cache.reserve(count);
        static_cast<void>(reserved.mask());
    }

    /// One pass, committed if `keep`, else dropped. Masks are optional, because they take longer than all the rest.
    void step(bool keep, bool with_mask) {
        auto pass = cache.begin({positions, sequences});
        refused = refused || !pass.has_value();
        if (refused) return;
        for (int layer = 0; layer < layers; ++layer) {
            pass->put(layer, keys, keys);
            used += pass->keys(layer).size() + pass->values(layer).size();
        }
        if (with_mask) used += pass->mask().size();
        if (with_mask) used += pass->template mask<half>().size() + pass->template mask<bool>().size();
        if (with_mask) pass->mask_into(contiguous_view(own_mask.data(), pass->tokens(), pass->history().count));
        pass->copy_cells(own_cells);
        used += pass->lists().compressed().indices.size();
        if (with_mask) used += pass->pages(16).has_value() ? 1 : 0;
        if (!keep) {
            pass->drop();
            return;
        }
        pass->commit();
        for (std::size_t i = 0; i < positions.size(); ++i) {
            positions[i] = positions[i] + 1;
            used += cache.can_resume(sequences[i], positions[i] - 1) ? 1 : 0;
        }
    }

    TestCache<Window> cache;
    std::vector<float> keys;
    std::vector<half> own_mask;
    std::vector<std::int64_t> own_cells;
    std::vector<Sequence> sequences;
    std::vector<Position> positions;
    bool refused = false;
    std::int64_t used = 0;
};

/// The number of allocations in `steps` decode steps. With `restart`, sequences start from position 0 again when their
/// capacity is used up.
template <WindowPolicy Window>
std::int64_t allocations_of(const Window& window, std::int32_t sequences, int steps, bool restart) {
    Decoding<Window> decoding{window, sequences};
    allocations = 0;
    for (int i = 0; i < steps; ++i) {
        counting = true;
        if (i % 7 == 0) decoding.step(false, false);
        decoding.step(true, i % 16 == 0);
        counting = false;
        if (!restart || decoding.positions[0].value < capacity) continue;
        for (const Sequence s : decoding.sequences) REQUIRE(decoding.cache.remove(s, Position{0}, to_end).has_value());
        for (Position& p : decoding.positions) p = Position{0};
    }
    CHECK_FALSE(decoding.refused);
    CHECK(decoding.used > 0);
    return allocations;
}

} // namespace

TEST_CASE("allocations: the counter counts") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    allocations = 0;
    counting = true;
    const ZeroedArray<int> zeros{1000};
    const std::vector<int> vector(1000);
    counting = false;
    CHECK(zeros[999] == 0);
    CHECK(vector[999] == 0);
    CHECK(allocations == 2);
}

TEST_CASE("allocations: decode steps of a full causal cache do not allocate, up to the last free cell") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t sequences : {1, 8, 64}) {
        CAPTURE(sequences);
        CHECK(allocations_of(FullCausal{}, sequences, 1000, true) == 0);
    }
}

TEST_CASE("allocations: decode steps with a window never allocate") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t sequences : {1, 8, 64}) {
        CAPTURE(sequences);
        CHECK(allocations_of(SlidingWindow<48>{}, sequences, 1000, false) == 0);
        CHECK(allocations_of(SlidingWindow<48>{{.retention = 60, .sinks = 4}}, sequences, 1000, false) == 0);
        CHECK(allocations_of(ChunkedAttention<32>{}, sequences, 1000, false) == 0);
    }
}

} // namespace test_book_allocations
