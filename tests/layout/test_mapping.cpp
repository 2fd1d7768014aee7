// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layout/archetypes.hpp"
#include <cellar/layout/mapping.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

using cellar::CellRange;
using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;
using cellar_test::Backwards;

static_assert(cellar::LayoutMapping<CellsHeadsDims> && cellar::LayoutMapping<HeadsDimsCells>);
static_assert(cellar::LayoutMapping<Backwards>);
static_assert(!cellar::LayoutMapping<int>);

namespace {

struct WithoutContiguity : CellsHeadsDims {
    using CellsHeadsDims::CellsHeadsDims;

private:
    using CellsHeadsDims::contiguous_rows;
};
static_assert(cellar::detail::has_offset<WithoutContiguity>);
static_assert(!cellar::LayoutMapping<WithoutContiguity>);

/// Calls `body(mapping)` with mappings of random extents, including the smallest.
template <class Mapping, class Body>
void for_random_extents(Body body) {
    std::mt19937 random{7};
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>{1, n}(random); };
    body(Mapping{1, 1, 1});
    for (int i = 0; i < 200; ++i) body(Mapping{up_to(40), up_to(6), up_to(20)});
}

template <class Mapping, class Body>
void for_all_elements(const Mapping& mapping, Body body) {
    for (std::int64_t cell = 0; cell < mapping.cells(); ++cell)
        for (int head = 0; head < mapping.heads(); ++head)
            for (int d = 0; d < mapping.dim(); ++d) body(cell, head, d);
}

} // namespace

TEST_CASE_TEMPLATE("offsets are injective and below the required size", Mapping, CellsHeadsDims, HeadsDimsCells,
                   Backwards) {
    for_random_extents<Mapping>([](const Mapping& mapping) {
        std::vector<int> uses(static_cast<std::size_t>(mapping.required_size()));
        bool valid = true;
        for_all_elements(mapping, [&](std::int64_t cell, int head, int d) {
            const std::int64_t offset = mapping(cell, head, d);
            valid = valid && offset >= 0 && offset < mapping.required_size()
                    && uses[static_cast<std::size_t>(offset)]++ == 0;
        });
        CHECK(valid);
    });
}

TEST_CASE_TEMPLATE("a mapping has the contiguity that it claims", Mapping, CellsHeadsDims, HeadsDimsCells, Backwards) {
    for_random_extents<Mapping>([](const Mapping& mapping) {
        bool valid = true;
        for_all_elements(mapping, [&](std::int64_t cell, int head, int d) {
            const std::int64_t offset = mapping(cell, head, d);
            if (Mapping::contiguous_rows)
                valid = valid && offset == (cell * mapping.heads() + head) * mapping.dim() + d;
            if (Mapping::contiguous_cells) valid = valid && offset == mapping(0, head, d) + cell;
        });
        CHECK(valid);
    });
}

TEST_CASE_TEMPLATE("offsets follow the strides, and no memory is wasted", Mapping, CellsHeadsDims, HeadsDimsCells) {
    for_random_extents<Mapping>([](const Mapping& mapping) {
        CHECK(mapping.required_size() == mapping.cells() * mapping.heads() * mapping.dim());
        bool valid = true;
        for_all_elements(mapping, [&](std::int64_t cell, int head, int d) {
            valid = valid
                    && mapping(cell, head, d)
                           == cell * mapping.stride_cell() + head * mapping.stride_head() + d * mapping.stride_dim();
        });
        CHECK(valid);
    });
}

TEST_CASE("offsets are 64 bits wide") {
    const CellsHeadsDims rows{1 << 20, 64, 128};
    CHECK(rows((1 << 20) - 1, 63, 127) == rows.required_size() - 1);
    CHECK(rows.required_size() == std::int64_t{1} << 33);
    const HeadsDimsCells columns{1 << 20, 64, 128};
    CHECK(columns((1 << 20) - 1, 63, 127) == columns.required_size() - 1);
    CHECK(columns.required_size() == std::int64_t{1} << 33);
}

TEST_CASE("a view of CellsHeadsDims is [cells, heads, dim] and agrees with the offsets") {
    const CellsHeadsDims mapping{9, 2, 3};
    std::vector<int> memory(static_cast<std::size_t>(mapping.required_size()));
    const auto view = mapping.view(memory.data(), {4, 5});
    CHECK(view.extent(0) == 5);
    CHECK(view.extent(1) == 2);
    CHECK(view.extent(2) == 3);
    CHECK(view.is_contiguous());
    for (int i = 0; i < 5; ++i)
        for (int head = 0; head < 2; ++head)
            for (int d = 0; d < 3; ++d) CHECK(&view(i, head, d) == memory.data() + mapping(4 + i, head, d));
}

TEST_CASE("a view of HeadsDimsCells is [cells, heads, dim] with stride 1 along the cells") {
    const HeadsDimsCells mapping{9, 2, 3};
    const std::vector<int> memory(static_cast<std::size_t>(mapping.required_size()));
    const auto view = mapping.view(memory.data(), {4, 5});
    CHECK(view.extent(0) == 5);
    CHECK(view.extent(1) == 2);
    CHECK(view.extent(2) == 3);
    CHECK(view.stride(0) == 1);
    for (int i = 0; i < 5; ++i)
        for (int head = 0; head < 2; ++head)
            for (int d = 0; d < 3; ++d) CHECK(&view(i, head, d) == memory.data() + mapping(4 + i, head, d));
}

TEST_CASE("a view of no cells is empty") {
    std::vector<int> memory(54);
    CHECK(CellsHeadsDims{9, 2, 3}.view(memory.data(), {4, 0}).size() == 0);
    CHECK(HeadsDimsCells{9, 2, 3}.view(memory.data(), {4, 0}).size() == 0);
}
