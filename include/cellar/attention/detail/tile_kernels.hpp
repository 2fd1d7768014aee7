// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/matrix_unit.hpp>
#include <cellar/attention/detail/rows_ahead.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>
#include <cellar/simd/amx.hpp>
#include <cellar/simd/vector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The kernels that read rows of one element type.
template <class E>
struct RowKernels {
    void (*dot)(const float*, std::ptrdiff_t, int, std::int64_t, HeadRows<E>, HeadRows<E>, int, float*);
    void (*add_values)(const float*, int, int, HeadRows<E>, HeadRows<E>, std::int64_t, float*, std::ptrdiff_t);
    void (*pack_keys)(HeadRows<E>, int, std::int64_t, float*);
    bool (*pack_values)(HeadRows<E>, int, std::int64_t, float*);
    // Null without a matrix unit.
    bool (*split_keys)(HeadRows<E>, int, std::int64_t, std::byte*) = nullptr;
    bool (*split_values)(HeadRows<E>, int, std::int64_t, std::byte*) = nullptr;
};

/// The kernels that work on floats.
struct FloatKernels {
    RowKernels<float> rows;
    void (*multiply)(const float*, std::ptrdiff_t, int, std::int64_t, const float*, int, float*, const FetchedRows&);
    void (*add_packed_values)(const float*, int, int, const float*, std::int64_t, float*, std::ptrdiff_t,
                              const FetchedRows&);
    void (*softmax)(const SoftmaxStep&);
};

/// The kernels that rotate rows.
struct RotationKernels {
    void (*add_angles)(const float*, const float*, const float*, const float*, const RowAngles&, int);
    void (*rotate)(float*, std::int64_t, int, const RowAngles&, const int*, const FetchedRows&);
};

} // namespace cellar::detail

#define CELLAR_KERNELS baseline_kernels
#define CELLAR_VECTOR BaselineVector
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_vector.hpp>

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_KERNELS avx2_kernels
#define CELLAR_VECTOR Avx2Vector
#define CELLAR_TARGET CELLAR_AVX2_FMA,
#include <cellar/attention/detail/kernels_for_vector.hpp>

#define CELLAR_KERNELS avx512_kernels
#define CELLAR_VECTOR Avx512Vector
#define CELLAR_TARGET CELLAR_AVX512,
#include <cellar/attention/detail/kernels_for_vector.hpp>

#endif

#ifdef CELLAR_HAS_AMX

#define CELLAR_KERNELS amx_kernels
#define CELLAR_MATRICES AmxMatrices
#define CELLAR_VECTORS avx512_kernels
#define CELLAR_TARGET CELLAR_AMX,
#include <cellar/attention/detail/kernels_for_matrix_unit.hpp>

#endif

namespace cellar::detail {

enum class Instructions { baseline, avx2, avx512, amx };

/// The best ones that the processor has.
inline Instructions best_instructions() {
#ifdef CELLAR_HAS_X86_VECTORS
    static const Instructions best = has_matrix_unit()                     ? Instructions::amx
                                     : Avx512Vector::is_available()        ? Instructions::avx512
                                     : Avx2Vector::is_available_with_fma() ? Instructions::avx2
                                                                           : Instructions::baseline;
    return best;
#else
    return Instructions::baseline;
#endif
}

/// f(kernels), with the `VectorKernels` of these instructions.
template <class F>
auto with_vector_kernels(Instructions instructions, F f) {
    switch (instructions) {
#ifdef CELLAR_HAS_X86_VECTORS
    case Instructions::amx:
    case Instructions::avx512:
        return f(avx512_kernels::VectorKernels{});
    case Instructions::avx2:
        return f(avx2_kernels::VectorKernels{});
#endif
    default:
        return f(baseline_kernels::VectorKernels{});
    }
}

/// Null where these instructions cannot load the element: its rows are converted to floats first.
template <class E>
RowKernels<E> row_kernels(Instructions instructions) {
    RowKernels<E> kernels = with_vector_kernels(instructions, [](auto vectors) { return vectors.template rows<E>(); });
#ifdef CELLAR_HAS_AMX
    if (instructions == Instructions::amx) {
        kernels.split_keys = amx_kernels::split_keys<E>;
        kernels.split_values = amx_kernels::split_values<E>;
    }
#endif
    return kernels;
}

inline FloatKernels float_kernels(Instructions instructions) {
    const RowKernels<float> rows = row_kernels<float>(instructions);
    return with_vector_kernels(instructions, [&](auto vectors) { return vectors.floats(rows); });
}

inline RotationKernels rotation_kernels(Instructions instructions) {
    return with_vector_kernels(instructions, [](auto vectors) { return vectors.rotation(); });
}

/// Null where these instructions have no matrix unit, or the system does not permit to use it. The first call asks it.
inline MatrixKernels matrix_kernels(Instructions instructions) {
#ifdef CELLAR_HAS_AMX
    if (instructions == Instructions::amx) {
        static const bool are_permitted = AmxMatrices::are_permitted();
        if (are_permitted) return {amx_kernels::split_left, amx_kernels::multiply_split};
    }
#endif
    static_cast<void>(instructions);
    return {};
}

} // namespace cellar::detail
