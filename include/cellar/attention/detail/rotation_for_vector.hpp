// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Rotates rows of floats as attention reads them, for one set of instructions. Included by kernels_for_vector.hpp,
// with the same macros. Without them the file is empty.
#ifdef CELLAR_KERNELS

namespace cellar::detail::CELLAR_KERNELS {

/// The angles of cell `to` of the tile = those of a block + those of a place in it. Lists of a multiple of dim_unit.
CELLAR_KERNEL void add_angles(const float* block_cosines, const float* block_sines, const float* cosines,
                              const float* sines, const RowAngles& to, int cell) {
    for (std::int64_t i = 0; i < to.stride; i += lanes) {
        const Floats block_cosine = load(block_cosines + i);
        const Floats block_sine = load(block_sines + i);
        const Floats cosine = load(cosines + i);
        const Floats sine = load(sines + i);
        store(to.cosines + cell * to.stride + i, block_cosine * cosine - block_sine * sine);
        store(to.sines + cell * to.stride + i, block_sine * cosine + block_cosine * sine);
    }
}

CELLAR_INLINE void rotate_apart(float* first, float* second, std::int64_t count, const float* cosines,
                                const float* sines) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const Floats a = load(first + i);
        const Floats b = load(second + i);
        const Floats cosine = load(cosines + i);
        const Floats sine = load(sines + i);
        store(first + i, a * cosine - b * sine);
        store(second + i, a * sine + b * cosine);
    }
    for (; i < count; ++i) {
        const float a = first[i];
        const float b = second[i];
        first[i] = a * cosines[i] - b * sines[i];
        second[i] = a * sines[i] + b * cosines[i];
    }
}

CELLAR_INLINE void rotate_neighbours(float* first, std::int64_t count, const float* cosines, const float* sines) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const Floats a = load(first + i);
        store(first + i, a * load(cosines + i) + swap_neighbours(a, Lanes{}) * load(sines + i));
    }
    for (; i < count; i += 2) {
        const float a = first[i];
        const float b = first[i + 1];
        first[i] = a * cosines[i] + b * sines[i];
        first[i + 1] = b * cosines[i + 1] + a * sines[i + 1];
    }
}

/// Rotates rows [count, dim] in place: row i by the angles of cell cells[i] of the tile. Prefetches `next`.
CELLAR_KERNEL void rotate_rows(float* rows, std::int64_t dim, int count, const RowAngles& angles, const int* cells,
                               const FetchedRows& next) {
    SpreadLines<CacheLevel::second> ahead{next, count};
    for (int i = 0; i < count; ++i) {
        ahead.step();
        float* const row = rows + i * dim;
        const float* const cosines = angles.cosines + cells[i] * angles.stride;
        const float* const sines = angles.sines + cells[i] * angles.stride;
        if (angles.neighbours) {
            rotate_neighbours(row + angles.first, angles.count, cosines, sines);
        } else {
            rotate_apart(row + angles.first, row + angles.second, angles.count, cosines, sines);
        }
    }
}

} // namespace cellar::detail::CELLAR_KERNELS

#endif
