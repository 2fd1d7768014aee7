// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/layout/layout.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace test_rows {

using cellar::Cell;
using cellar::CellsHeadsDims;
using cellar::HeadsDimsCells;

namespace {

constexpr Cell cells[] = {6, 0, 3};
constexpr int heads = 2;
constexpr int dim = 4;

/// Distinct numbers that every element type holds exactly.
template <class T>
std::vector<T> numbers(std::int64_t n) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<T>(static_cast<float>(i + 1)));
    return values;
}

template <class Kernel>
void run_backwards(const Kernel& kernel) {
    for (int token = 2; token >= 0; --token)
        for (int head = heads - 1; head >= 0; --head)
            for (int d = dim - 1; d >= 0; --d) cellar::detail::kernel::apply(kernel, token, head, d);
}

template <class Mapping, class Element, class T>
void scatter_and_gather() {
    const Mapping mapping{7, heads, dim};
    std::vector<Element> memory(static_cast<std::size_t>(mapping.required_size()), Element{});
    const auto rows = numbers<T>(3 * heads * dim);
    const auto from = cellar::contiguous_view(rows.data(), 3, heads, dim);
    run_backwards(cellar::detail::kernel::Scatter<Mapping, Element, T>{mapping, memory.data(), {cells}, from});

    std::vector<T> read(rows.size(), T{});
    const auto to = cellar::contiguous_view(read.data(), 3, heads, dim);
    run_backwards(cellar::detail::kernel::Gather<Mapping, Element, T>{mapping, memory.data(), {cells}, to});

    float sum = 0.0f;
    for (const Element element : memory) sum += static_cast<float>(element);
    CHECK(sum == 24 * 25 / 2);
    for (int token = 0; token < 3; ++token) {
        for (int head = 0; head < heads; ++head) {
            for (int d = 0; d < dim; ++d) {
                const auto expected = static_cast<float>(from(token, head, d));
                CHECK(static_cast<float>(memory[static_cast<std::size_t>(mapping(cells[token], head, d))]) == expected);
                CHECK(static_cast<float>(to(token, head, d)) == expected);
            }
        }
    }
}

} // namespace

TEST_CASE_TEMPLATE("scatter and gather may visit the elements in any order", Mapping, CellsHeadsDims, HeadsDimsCells) {
    scatter_and_gather<Mapping, float, float>();
    scatter_and_gather<Mapping, cellar::half, cellar::half>();
    scatter_and_gather<Mapping, cellar::half, float>();
    scatter_and_gather<Mapping, cellar::bfloat16, cellar::bfloat16>();
    scatter_and_gather<Mapping, cellar::bfloat16, float>();
}

} // namespace test_rows
