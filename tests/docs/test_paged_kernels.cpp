// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/feed-paged-kernels.md.
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace test_paged_kernels {

using cellar::BatchBuilder;

namespace {

constexpr int heads = 2;
constexpr int dim = 4;

/// Elements of a row: the number of a token, and of the element in its row.
std::vector<float> rows_of(int first, int n) {
    std::vector<float> rows;
    for (int token = first; token < first + n; ++token)
        for (int e = 0; e < heads * dim; ++e) rows.push_back(static_cast<float>(100 * token + e));
    return rows;
}

template <class Cache>
void feed(Cache& cache, const BatchBuilder& tokens, int first_number, int n) {
    auto pass = cache.begin(tokens).value();
    pass.put(0, rows_of(first_number, n), rows_of(first_number, n));
    pass.commit();
}

/// Stands for a kernel: the first element of head 1 of each token that a row of the table has.
std::vector<float> hnd(const float* memory, int page_size, std::span<const std::int32_t> indptr,
                       std::span<const std::int32_t> indices, std::span<const std::int32_t> last_page_len) {
    std::vector<float> read;
    for (std::size_t r = 0; r + 1 < indptr.size(); ++r)
        for (std::int32_t i = indptr[r]; i < indptr[r + 1]; ++i) {
            const std::int32_t tokens = i + 1 == indptr[r + 1] ? last_page_len[r] : page_size;
            for (std::int32_t t = 0; t < tokens; ++t)
                read.push_back(memory[((indices[static_cast<std::size_t>(i)] * heads + 1) * page_size + t) * dim]);
        }
    return read;
}

template <class Pass>
void use_lists_of_cells(Pass&) {
    FAIL("the cells form no pages");
}

std::vector<float> numbered(std::vector<int> numbers) {
    std::vector<float> expected;
    for (const int number : numbers) expected.push_back(static_cast<float>(100 * number + dim));
    return expected;
}

} // namespace

TEST_CASE("lists of cells are page tables of page size 1") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                          {.sequences = 4, .capacity = 64, .batch = 16}};
    feed(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{0}}.add(cellar::Sequence{1}, cellar::Position{0}), 0,
         2);
    feed(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{1}}.add(cellar::Sequence{1}, cellar::Position{1}), 2,
         2);

    // [rows]
    cache.reserve_lists(64); // from now on, the addresses of the lists stay, for rows of up to 64 cells
    auto pass = cache.begin(
        BatchBuilder{cellar::Sequence{0}, cellar::Position{2}}.add(cellar::Sequence{1}, cellar::Position{2}));
    pass->put(0, rows_of(4, 2), rows_of(4, 2));

    const cellar::CellLists lists = pass->lists();
    const std::int32_t* const indices = lists.indices().data();    // row r begins at indices[starts[r]],
    const std::span<const std::int32_t> starts = lists.starts();   // one for each sequence of the batch,
    const std::span<const std::int32_t> lengths = lists.lengths(); // and has so many cells
    const cellar::CompressedLists compressed = lists.compressed(); // the same as CSR: a copy
    const std::vector<std::int32_t> last_page_len(compressed.indptr.size() - 1, 1); // for FlashInfer: pages of 1
    // [/rows]
    CHECK(std::equal(compressed.indices.begin(), compressed.indices.begin() + lengths[0], indices + starts[0]));
    CHECK(hnd(pass->in_place(0).keys.pointer, 1, compressed.indptr, compressed.indices, last_page_len)
          == numbered({0, 2, 4, 1, 3, 5}));
}

TEST_CASE("whole pages, with a block table that has a row for each sequence of the batch") {
    constexpr std::int32_t page_size = 8;
    cellar::Cache<cellar::Blocked<float, page_size>> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                                                           {.sequences = 4, .capacity = 64, .batch = 16}};
    feed(cache, BatchBuilder{cellar::Sequence{0}, cellar::Position{0}, 16}, 0, 16);
    feed(cache, BatchBuilder{cellar::Sequence{1}, cellar::Position{0}, 5}, 16, 5);

    // [pages]
    auto pass = cache.begin(BatchBuilder{cellar::Sequence{1}, cellar::Position{5}});
    pass->put(0, rows_of(21, 1), rows_of(21, 1));

    const cellar::Result<cellar::PageLists> pages = pass->pages(page_size);
    if (!pages) return use_lists_of_cells(*pass);                              // no_pages
    const cellar::CompressedLists compressed = pages->compressed();            // for FlashInfer
    const std::span<const std::int32_t> last_page_len = pages->last_lengths(); //
    const std::span<const std::int32_t> seqused_k = pages->lengths();          // for FlashAttention and vLLM

    std::vector<std::int32_t> block_table(static_cast<std::size_t>(pages->rows() * pages->pitch()));
    for (std::int32_t r = 0; r < pages->rows(); ++r)
        std::copy_n(pages->pages(r).data(), pages->pages(r).size(),
                    &block_table[static_cast<std::size_t>(r * pages->pitch())]);
    // [/pages]
    CHECK(seqused_k[0] == 6);
    CHECK(block_table[0] == pass->cells()[0] / page_size);
    CHECK(hnd(pass->in_place(0).keys.pointer, page_size, compressed.indptr, compressed.indices, last_page_len)
          == numbered({16, 17, 18, 19, 20, 21}));
}

TEST_CASE("forks of any length have pages") {
    constexpr std::int32_t page_size = 16;
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                          {.sequences = 4, .cells = 256, .batch = 64}};
    const cellar::Sequence prompt{0};
    const cellar::Sequence user{1};
    feed(cache, BatchBuilder{prompt, cellar::Position{0}, 40}, 0, 40);

    // [fork]
    REQUIRE(cache.copy_prefix(prompt, user, cellar::Position{40}));
    const cellar::Result<void> formed = cache.form_pages(user, page_size); // shares 32 tokens, and copies 8
    if (!formed) return;                                                   // full: too few free pages
    // [/fork]
    CHECK(cache.statistics().shared == 32);
    auto pass = cache.begin(BatchBuilder{prompt, cellar::Position{40}}.add(user, cellar::Position{40}));
    CHECK(pass->pages(page_size));
}

} // namespace test_paged_kernels
