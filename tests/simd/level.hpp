// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What test_simd.cpp calls, for one level of instructions: included once for each, with the macros of
// simd/operations.hpp.
#include <cellar/simd/operations.hpp>

namespace cellar::detail::CELLAR_KERNELS {

// For `lanes` vectors in `from`.
[[CELLAR_TARGET gnu::noinline]] inline void operate(const float* from, simd_test::Result* to) {
    constexpr std::make_index_sequence<std::size_t{lanes} / 2> halves;
    Floats rows[std::size_t{lanes}], sums[std::size_t{lanes}];
    for (int i = 0; i < lanes; ++i) rows[i] = sums[i] = load(from + i * lanes);
    store(to->swapped, swap_neighbours(rows[0], Lanes{}));
    store(to->rotated, rotate<1>(rows[0], Lanes{}));
    store(to->broadcast, broadcast(from[1]));
    store(to->in_register, Vector::in_register(rows[0]));
    Floats four_rows[] = {rows[0], rows[1], rows[2], rows[3]};
    transpose_fours(four_rows);
    for (int i = 0; i < 4; ++i) store(to->transposed_fours + i * lanes, four_rows[i]);
    transpose<lanes>(rows, halves);
    for (int i = 0; i < lanes; ++i) store(to->transposed + i * lanes, rows[i]);
    sum_lanes(sums, halves);
    store(to->sums, sums[0]);
}

template <class E>
[[CELLAR_TARGET gnu::noinline]] void load_from(const E* from, float* to) {
    store(to, load(from));
}

template <class E, class V = Vector>
[[CELLAR_TARGET gnu::noinline]] void store_to(const float* from, E* first, E* second) {
    V::store(first, second, load(from), load(from + lanes));
}

} // namespace cellar::detail::CELLAR_KERNELS
