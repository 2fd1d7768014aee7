// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Device work in packs, in tiles and by elements, at sizes around those of all three, against the host backend.
#include "backend/memory.hpp"
#include "kokkos/device_on_host.hpp"
#include "kokkos/tools.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace cellar;
using cellar_test::DeviceOnHost;
using cellar_test::same;

namespace {

struct Extents {
    int tokens;
    int heads;
    int dim;
    std::int64_t first; // element of a buffer in which the rows begin
};

/// Rows of T put into E and taken out again; returns the kernels that did it.
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
    DeviceOnHost device;
    auto buffer = device.allocate<E>(mapping.required_size());
    auto source = device.allocate<T>(std::ssize(rows));
    device.copy_from_host(std::span<const T>{rows}, source, 0);
    kernels.clear();
    const T* const from = source.data() + extents.first;
    device.scatter(mapping, buffer, std::span<const Cell>{cells},
                   contiguous_view(from, extents.tokens, extents.heads, extents.dim));
    const auto launched = kernels;
    std::vector<E> elements(static_cast<std::size_t>(mapping.required_size()));
    device.copy_to_host(buffer, 0, std::span<E>{elements});
    CHECK(same(elements, std::vector<E>(expected.data(), expected.data() + expected.size())));

    std::vector<T> read(rows.size());
    host.gather(mapping, expected, std::span<const Cell>{cells},
                contiguous_view(read.data() + extents.first, extents.tokens, extents.heads, extents.dim));
    auto target = device.allocate<T>(std::ssize(rows));
    device.gather(mapping, buffer, std::span<const Cell>{cells},
                  contiguous_view(target.data() + extents.first, extents.tokens, extents.heads, extents.dim));
    std::vector<T> gathered(rows.size());
    device.copy_to_host(target, 0, std::span<T>{gathered});
    CHECK(same(gathered, read));
    return launched;
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

TEST_CASE("device work: rows of all shapes, aligned and not") {
    check_shapes<float, float>();
    check_shapes<cellar::half, cellar::half>();
    check_shapes<cellar::bfloat16, float>();
}

TEST_CASE("device work: moves of rows of all shapes") {
    std::mt19937 random{4};
    for (const int dim : {1, 3, 4, 8, 20}) {
        for (const int heads : {1, 2, 3}) {
            CAPTURE(dim);
            CAPTURE(heads);
            cellar_test::Memory<DeviceOnHost, CellsHeadsDims, cellar::half> device{40, heads, dim};
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
