// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "layout/archetypes.hpp"
#include "violations.hpp"
#include <cellar/layout/mapping.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace test_mapping {

using cellar::BlocksHeadsCellsDims;
using cellar::CellRange;
using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;
using cellar_test::Backwards;

static_assert(cellar::LayoutMapping<CellsHeadsDims> && cellar::LayoutMapping<HeadsDimsCells>);
static_assert(cellar::LayoutMapping<Backwards>);
static_assert(cellar::LayoutMapping<BlocksHeadsCellsDims<64>> && cellar::LayoutMapping<BlocksHeadsCellsDims<2>>);
static_assert(!cellar::LayoutMapping<int>);

namespace {

struct WithoutSegments : CellsHeadsDims {
    using CellsHeadsDims::CellsHeadsDims;

private:
    using CellsHeadsDims::segment;
};
static_assert(cellar::detail::has_offset<WithoutSegments>);
static_assert(!cellar::LayoutMapping<WithoutSegments>);
struct SegmentsOfNoCells : CellsHeadsDims {
    using CellsHeadsDims::CellsHeadsDims;
    static constexpr std::int32_t segment_cells = 0;
};
static_assert(!cellar::LayoutMapping<SegmentsOfNoCells>);

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
                   BlocksHeadsCellsDims<2>, BlocksHeadsCellsDims<16>, Backwards) {
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

TEST_CASE_TEMPLATE("a mapping has the segments that it claims", Mapping, CellsHeadsDims, HeadsDimsCells,
                   BlocksHeadsCellsDims<2>, BlocksHeadsCellsDims<16>, Backwards) {
    using cellar::Segment;
    for_random_extents<Mapping>([](const Mapping& mapping) {
        const std::int64_t row = std::int64_t{mapping.heads()} * mapping.dim();
        const std::int64_t length = Mapping::segment == Segment::row    ? row
                                    : Mapping::segment == Segment::head ? mapping.dim()
                                                                        : 1;
        bool valid = true;
        for_all_elements(mapping, [&](std::int64_t cell, int head, int d) {
            const std::int64_t offset = mapping(cell, head, d);
            if (Mapping::segment == Segment::row)
                valid = valid && offset == mapping(cell, 0, 0) + head * mapping.dim() + d;
            if (Mapping::segment == Segment::head) valid = valid && offset == mapping(cell, head, 0) + d;
            if (Mapping::segment != Segment::element && head > 0)
                valid = valid && offset == mapping(cell, 0, d) + head * (mapping(0, 1, 0) - mapping(0, 0, 0));
            if (cell > 0 && (Mapping::segment_cells == cellar::all_cells || cell % Mapping::segment_cells != 0))
                valid = valid && offset == mapping(cell - 1, head, d) + length;
        });
        CHECK(valid);
    });
}

TEST_CASE_TEMPLATE("a mapping of packs places packs where their elements lie", Mapping, CellsHeadsDims,
                   BlocksHeadsCellsDims<2>, BlocksHeadsCellsDims<16>) {
    for_random_extents<Mapping>([](const Mapping& mapping) {
        for (const int n : {2, 4, 8}) {
            const Mapping elements{mapping.cells(), mapping.heads(), mapping.dim() * n};
            bool valid = true;
            for_all_elements(mapping, [&](std::int64_t cell, int head, int d) {
                valid = valid && mapping(cell, head, d) * n == elements(cell, head, d * n);
            });
            CHECK(valid);
        }
    });
}

TEST_CASE_TEMPLATE("segments end where blocks do", Mapping, CellsHeadsDims, BlocksHeadsCellsDims<4>, Backwards) {
    for (std::int64_t first = 0; first < 12; ++first)
        for (std::int64_t n = 1; n < 12; ++n) {
            std::int64_t before = 0; // counted one by one
            std::int64_t behind = 0;
            const auto ends = [](std::int64_t cell) {
                return Mapping::segment_cells != cellar::all_cells && cell % Mapping::segment_cells == 0;
            };
            for (std::int64_t i = 0; i < n && (i == 0 || !ends(first + i)); ++i) ++behind;
            for (std::int64_t i = 0; i < n && (i == 0 || !ends(first + n - i)); ++i) ++before;
            CHECK(cellar::detail::cells_in_segment<Mapping>(first, n) == behind);
            CHECK(cellar::detail::cells_in_segment_before<Mapping>(first + n, n) == before);
        }
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
    const BlocksHeadsCellsDims<64> blocks{1 << 20, 64, 128};
    CHECK(blocks((1 << 20) - 1, 63, 127) == blocks.required_size() - 1);
    CHECK(blocks.required_size() == std::int64_t{1} << 33);
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

TEST_CASE("the last block has memory for all its cells") {
    CHECK(BlocksHeadsCellsDims<4>{8, 2, 3}.required_size() == 48);
    CHECK(BlocksHeadsCellsDims<4>{9, 2, 3}.required_size() == 72);
    CHECK(BlocksHeadsCellsDims<4>{9, 2, 0}.required_size() == 0);
}

TEST_CASE("a view of blocks is indexed (cell, head, d) for every range") {
    const BlocksHeadsCellsDims<4> mapping{13, 2, 3};
    std::vector<int> memory(static_cast<std::size_t>(mapping.required_size()));
    for (int first = 0; first < 13; ++first)
        for (int count = 0; first + count <= 13; ++count) {
            const auto view = mapping.view(memory.data(), {first, count});
            const cellar::BlockedView<const int, 4> constant = view;
            REQUIRE(view.extent(0) == count);
            REQUIRE(view.extent(1) == 2);
            REQUIRE(view.extent(2) == 3);
            REQUIRE(view.size() == count * 6);
            for (int i = 0; i < count; ++i)
                for (int head = 0; head < 2; ++head)
                    for (int d = 0; d < 3; ++d) {
                        REQUIRE(&view(i, head, d) == memory.data() + mapping(first + i, head, d));
                        REQUIRE(&constant(i, head, d) == &view(i, head, d));
                    }
            std::int64_t cell = 0; // all cells, block by block
            for (std::int64_t block = 0; block < view.blocks(); ++block) {
                const std::int64_t begin = cell;
                for (int head = 0; head < 2; ++head) {
                    const auto rows = view.rows(block, head);
                    REQUIRE(rows.extent(0) > 0);
                    REQUIRE(rows.extent(1) == 3);
                    for (std::int64_t i = 0; i < rows.extent(0); ++i) REQUIRE(&rows(i, 0) == &view(begin + i, head, 0));
                    cell = begin + rows.extent(0);
                }
            }
            REQUIRE(cell == count);
        }
}

TEST_CASE("whole blocks are a strided view") {
    const BlocksHeadsCellsDims<4> mapping{16, 2, 3};
    std::vector<int> memory(static_cast<std::size_t>(mapping.required_size()));
    const auto view = mapping.view(memory.data(), {4, 8});
    const auto blocks = view.whole_blocks();
    CHECK(blocks.extent(0) == 2);
    CHECK(blocks.extent(2) == 4);
    for (int i = 0; i < 8; ++i)
        for (int head = 0; head < 2; ++head)
            for (int d = 0; d < 3; ++d) CHECK(&blocks(i / 4, head, i % 4, d) == &view(i, head, d));
    CHECK(violation_of([&] {
              mapping.view(memory.data(), {5, 4}).whole_blocks();
          }).find("cells [1, 5)")
          != std::string::npos);
    CHECK(violation_of([&] {
              mapping.view(memory.data(), {4, 3}).whole_blocks();
          }).find("cells [0, 3)")
          != std::string::npos);
}

TEST_CASE("a view of no cells is empty") {
    std::vector<int> memory(54);
    CHECK(CellsHeadsDims{9, 2, 3}.view(memory.data(), {4, 0}).size() == 0);
    CHECK(HeadsDimsCells{9, 2, 3}.view(memory.data(), {4, 0}).size() == 0);
    CHECK(BlocksHeadsCellsDims<4>{9, 2, 3}.view(memory.data(), {4, 0}).blocks() == 0);
}

} // namespace test_mapping
