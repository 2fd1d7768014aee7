// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares device work with the host backend, at sizes around those that choose packs, tiles or single elements.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "backend/memory.hpp"
#include "shift/archetypes.hpp"
#include <cellar/backend/host.hpp>
#include <cellar/base/function.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace test_device_shapes {

using namespace cellar;
using cellar_test::LateDevice;
using cellar_test::same;

namespace {

struct Extents {
    int tokens;
    int heads;
    int dim;
    std::int64_t first; // the element of the buffer at which the rows begin
};

/// Scatters rows of T to elements E and gathers them again. Returns the names of the kernels, which are the same for
/// both.
template <class Mapping, class E, class T>
std::set<std::string> check(std::mt19937& random, const Extents& extents) {
    const int count = 2 * extents.tokens + 3;
    const Mapping mapping{count, extents.heads, extents.dim};
    auto cells = cellar_test::first_cells(count);
    if (random() % 2 == 0) std::shuffle(cells.begin(), cells.end(), random);
    cells.resize(static_cast<std::size_t>(extents.tokens));
    const std::int64_t size = std::int64_t{extents.tokens} * extents.heads * extents.dim;
    const auto rows = cellar_test::random_elements<T>(random, extents.first + size);
    const auto view = contiguous_view(rows.data() + extents.first, extents.tokens, extents.heads, extents.dim);

    HostBackend host;
    auto expected = host.allocate<E>(mapping.required_size());
    host.scatter(mapping, expected, std::span<const Cell>{cells}, view);

    std::set<std::string> kernels;
    const cellar_test::Listener listener{{.kernel = [&](std::string_view name) { kernels.emplace(name); }}};
    LateDevice device;
    auto buffer = device.allocate<E>(mapping.required_size());
    auto source = device.allocate<T>(std::ssize(rows));
    device.copy_from_host(std::span<const T>{rows}, source, 0);
    kernels.clear();
    const T* const from = source.data() + extents.first;
    device.scatter(mapping, buffer, std::span<const Cell>{cells},
                   contiguous_view(from, extents.tokens, extents.heads, extents.dim));
    const auto scattered = kernels;
    std::vector<E> elements(static_cast<std::size_t>(mapping.required_size()));
    device.copy_to_host(buffer, 0, std::span<E>{elements});
    CHECK(same(elements, std::vector<E>(expected.data(), expected.data() + expected.size())));

    std::vector<T> read(rows.size());
    host.gather(mapping, expected, std::span<const Cell>{cells},
                contiguous_view(read.data() + extents.first, extents.tokens, extents.heads, extents.dim));
    auto target = device.allocate<T>(std::ssize(rows));
    kernels.clear();
    device.gather(mapping, buffer, std::span<const Cell>{cells},
                  contiguous_view(target.data() + extents.first, extents.tokens, extents.heads, extents.dim));
    CHECK(kernels == scattered);
    std::vector<T> gathered(rows.size());
    device.copy_to_host(target, 0, std::span<T>{gathered});
    CHECK(same(gathered, read));
    return scattered;
}

template <class E, class T>
void check_shapes() {
    std::mt19937 random{3};
    for (const int tokens : {1, 15, 16, 31, 32, 33, 70}) {
        for (const int dim : {1, 3, 4, 8, 12, 16, 31, 32, 33, 64, 80}) {
            for (const std::int64_t first : {0, 1, 4}) {
                CAPTURE(tokens);
                CAPTURE(dim);
                CAPTURE(first);
                const Extents extents{tokens, tokens % 3 + 1, dim, first};
                const int width = 16 / static_cast<int>(std::max(sizeof(E), sizeof(T)));
                const bool packs = dim % width == 0 && first % width == 0;
                using Names = std::set<std::string>;
                CHECK(check<CellsHeadsDims, E, T>(random, extents) == Names{packs ? "cellar: packs" : "cellar"});
                CHECK(check<HeadsDimsCells, E, T>(random, extents) == Names{tokens < 16 ? "cellar" : "cellar: tiles"});
            }
        }
    }
}

} // namespace

TEST_CASE("device work: scatter and gather take rows of all shapes, aligned or not") {
    check_shapes<float, float>();
    check_shapes<cellar::half, cellar::half>();
    check_shapes<cellar::bfloat16, float>();
}

TEST_CASE("device work: move takes rows of all shapes") {
    std::mt19937 random{4};
    for (const int dim : {1, 3, 4, 8, 20}) {
        for (const int heads : {1, 2, 3}) {
            CAPTURE(dim);
            CAPTURE(heads);
            cellar_test::Memory<LateDevice, CellsHeadsDims, cellar::half> device{40, heads, dim};
            cellar_test::Memory<HostBackend, CellsHeadsDims, cellar::half> host{40, heads, dim};
            device.fill(random);
            host.image = device.image;
            host.backend.copy_from_host(std::span<const cellar::half>{host.image}, host.buffer, 0);
            const std::vector<Move> moves{{30, 2, 5}, {20, 10, 1}, {35, 15, 5}, {7, 39, 1}};
            device.move(moves);
            host.move(moves);
            CHECK(same(device.read(), host.read()));
        }
    }
}

namespace {

/// Moves on a device and on the host. Returns the number of device kernels.
template <class Mapping, class E>
int check_moves(std::mt19937& random, int cells, int heads, int dim, const std::vector<Move>& moves) {
    cellar_test::Memory<LateDevice, Mapping, E> device{cells, heads, dim};
    cellar_test::Memory<HostBackend, Mapping, E> host{cells, heads, dim};
    device.fill(random);
    host.image = device.image;
    host.backend.copy_from_host(std::span<const E>{host.image}, host.buffer, 0);
    int kernels = 0;
    {
        const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++kernels; }}};
        device.move(moves);
    }
    host.move(moves);
    CHECK(same(device.read(), host.read()));
    return kernels;
}

} // namespace

// The scratch memory of 4 MiB holds 256 cells of 16 KiB.
TEST_CASE("device work: runs that overlap themselves go through scratch memory in pieces") {
    std::mt19937 random{5};
    const auto check = [&](const std::vector<Move>& moves) {
        const int kernels = check_moves<CellsHeadsDims, float>(random, 1500, 32, 128, moves);
        CHECK(check_moves<HeadsDimsCells, float>(random, 1500, 32, 128, moves) == kernels);
        return kernels;
    };
    CHECK(check({{1, 0, 1000}}) == 2 * 4);    // down by one
    CHECK(check({{0, 1, 1000}}) == 2 * 4);    // up by one
    CHECK(check({{700, 300, 800}}) == 2 * 4); // by more cells than fit at once
    CHECK(check({{10, 7, 256}}) == 2);        // fits at once
    CHECK(check({{10, 7, 257}}) == 2 * 2);
    CHECK(check({{3, 0, 100}, {200, 205, 300}}) == 4); // two runs, pieces of which go together
    CHECK(check({{3, 0, 100}, {1000, 500, 60}, {700, 705, 40}}) == 1 + 2);
    CHECK(check({{5, 5, 100}}) == 0);
}

namespace {

/// The pairs of `AddShift`, except for the last two.
struct MixedShift {
    static constexpr bool possible = true;
    using Factor = float;
    struct Rotation {
        CELLAR_FUNCTION int pairs() const { return 8; }
        CELLAR_FUNCTION int first(int pair) const { return pair < 6 ? 2 * pair : 6 + pair; }
        CELLAR_FUNCTION int second(int pair) const { return pair < 6 ? 2 * pair + 1 : 8 + pair; }
        CELLAR_FUNCTION static void rotate(float& a, float& b, Factor delta) {
            a += delta;
            b -= delta;
        }
    };
    Rotation rotation(int) const { return {}; }
    Factor factor(int, int pair, std::int32_t delta) const { return static_cast<float>(delta + pair); }
};

template <class E, class Shift>
void check_rotations(std::mt19937& random, const Shift& shift, int dim) {
    cellar_test::Memory<LateDevice, CellsHeadsDims, E> device{40, 2, dim};
    cellar_test::Memory<HostBackend, CellsHeadsDims, E> host{40, 2, dim};
    device.fill(random);
    host.image = device.image;
    host.backend.copy_from_host(std::span<const E>{host.image}, host.buffer, 0);
    const std::vector<KeyRotation> rotations{{3, 5, -2}, {20, 1, -2}, {30, 10, 7}};
    device.rotate(shift, 0, rotations);
    host.rotate(shift, 0, rotations);
    const auto actual = device.read();
    const auto expected = host.read();
    float largest = 0.0F;
    for (std::size_t i = 0; i < actual.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<float>(actual[i]) - static_cast<float>(expected[i])));
    // Compilers may fuse a product and a sum. The shifts of 16-bit elements add without products.
    CHECK(largest <= (sizeof(E) == 4 ? 1e-5F : 0.0F));
}

} // namespace

TEST_CASE("device work: keys are rotated in packs and pair by pair") {
    std::mt19937 random{6};
    for (const int dim : {32, 33, 40}) { // whole packs; no packs; whole packs and elements that are not rotated
        CAPTURE(dim);
        check_rotations<float>(random, RopeShift<Neox>{std::vector<double>(16, 0.3)}, dim);
        check_rotations<float>(random, RopeShift<Interleaved>{std::vector<double>(12, 0.3)}, dim);
        check_rotations<float>(random, RopeShift<RunTimePairing>{std::vector<double>(12, 0.3), {true}}, dim);
        check_rotations<cellar::half>(random, cellar_test::AddShift{16}, dim);
        check_rotations<cellar::half>(random, cellar_test::AddShift{4}, dim);
        check_rotations<cellar::bfloat16>(random, MixedShift{}, dim);
        check_rotations<float>(random, MixedShift{}, dim);
    }
}

} // namespace test_device_shapes
