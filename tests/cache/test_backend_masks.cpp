// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks that a backend writes from bits.
#include "backend/mask_writer.hpp"
#include "backend/masks.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <span>
#include <vector>

namespace test_backend_masks {

using namespace cellar;
using cellar_test::MaskWriter;

TEST_CASE("a backend that writes masks expands every bit") {
    cellar_test::check_written_masks<MaskWriter>();
}

TEST_CASE("a backend that writes masks gets the bits of the cells that each token sees") {
    cellar_test::check_masks_of_passes<MaskWriter>();
}

TEST_CASE("a backend that writes masks: a reserved pass sees all cells, and later masks are at the same address") {
    cellar_test::check_reserved_masks<MaskWriter>();
}

TEST_CASE("a backend that writes masks writes one per pass and element, and is told how much to reserve") {
    Cache<StandardV<float>, FullCausal, DisabledShift, MaskWriter> cache{
        CacheShape{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 1, .capacity = 100, .batch = 7}};
    cache.reserve(5).drop();
    CHECK(cache.backend().reserved_tokens == 5);
    CHECK(cache.backend().reserved_cells == 100);
    CHECK(cache.backend().masks == 0);
    const std::vector<Position> positions{Position{0}, Position{1}};
    const std::vector<Sequence> sequences(2);
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    for (const int layer : {0, 1}) pass->mark_put(layer);
    static_cast<void>(pass->get(0));
    static_cast<void>(pass->get(1));
    CHECK(cache.backend().masks == 1);
    static_cast<void>(pass->get<bool>(0));
    CHECK(cache.backend().masks == 2);
}

namespace {

/// Fails to write masks now and then.
struct FailingMasks : MaskWriter {
    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden, StridedView<T, 2> mask) {
        if (fails) throw std::bad_alloc{};
        MaskWriter::write_mask(bits, visible, hidden, mask);
    }
    static inline bool fails = false;
};

} // namespace

TEST_CASE("a mask is written anew after the backend failed to write one of another element") {
    Cache<StandardV<float>, FullCausal, DisabledShift, FailingMasks> cache{
        CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 8, .batch = 2}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    CHECK_FALSE(pass.mask<bool>()(0, 1));
    FailingMasks::fails = true;
    CHECK_THROWS_AS((void)pass.mask<float>(), std::bad_alloc);
    FailingMasks::fails = false;
    const int before = cache.backend().masks;
    CHECK_FALSE(pass.mask<bool>()(0, 1));
    CHECK(cache.backend().masks == before + 1);
}

namespace {

/// Records how many elements were allocated last, and how often the host has waited.
struct Allocating : MaskWriter {
    template <Element E>
    Buffer<E> allocate(std::int64_t n) {
        allocated = n;
        return HostBackend::allocate<E>(n);
    }

    void fence() { ++fences; }

    std::int64_t allocated = 0;
    int fences = 0;
};

constexpr detail::MaskExtents largest{8, 1000};

} // namespace

TEST_CASE("a backend that writes masks: the memory does not grow beyond the largest mask") {
    Allocating backend;
    detail::MaskBuffer<Allocating> buffer{backend};
    static_cast<void>(buffer.reserve<float>(backend, 2, 30, {2, 35}));
    static_cast<void>(buffer.reserve<float>(backend, 2, 31, {2, 35}));
    CHECK(backend.allocated == 2 * 35);
}

TEST_CASE("a backend that writes masks: the memory has room for every element of the mask") {
    Allocating backend;
    detail::MaskBuffer<Allocating> buffer{backend};
    static_cast<void>(buffer.reserve<half>(backend, 3, 3, largest));
    REQUIRE(backend.allocated == 5); // floats
    static_cast<void>(buffer.reserve<float>(backend, 1, 6, largest));
    REQUIRE(backend.allocated == 10);
    static_cast<void>(buffer.reserve<bool>(backend, 1, 40, largest));
    CHECK(backend.allocated == 10);
    static_cast<void>(buffer.reserve<bool>(backend, 1, 41, largest));
    CHECK(backend.allocated >= 11);
}

TEST_CASE("a backend that writes masks: the memory of a mask is replaced only after its work is done") {
    Allocating backend;
    detail::MaskBuffer<Allocating> buffer{backend};
    static_cast<void>(buffer.reserve<float>(backend, 1, 6, largest));
    const int before = backend.fences;
    static_cast<void>(buffer.reserve<float>(backend, 1, 6, largest));
    CHECK(backend.fences == before);
    static_cast<void>(buffer.reserve<float>(backend, 1, 7, largest));
    CHECK(backend.fences == before + 1);
}

} // namespace test_backend_masks
