// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/code_tile.hpp>
#include <cellar/attention/detail/rows_ahead.hpp>
#include <cellar/attention/detail/tile.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/simd/byte_numbers.hpp>
#include <cellar/simd/byte_products.hpp>
#include <cellar/simd/levels.hpp>
#include <cellar/simd/vector.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The factors of a head of `dim` values, and the offsets after them, of a format whose codes are looked up.
template <looks_up_codes Format, class Factor>
[[gnu::always_inline]] inline void unpack_factors(const unit_of<Format>* units, const scale_of<Format>* scales,
                                                  std::int64_t dim, Factor* factors) {
    const auto groups = static_cast<std::size_t>(factors_in<Format>(dim));
    const std::span from{units, static_cast<std::size_t>(dim / values_per_unit<Format>)};
    if constexpr (has_scale_plane<Format>) {
        const std::span from_scales{scales, static_cast<std::size_t>(scales_in<Format>(static_cast<int>(dim)))};
        Format::unpack_factors(from_scales, factors, factors + groups);
    } else if constexpr (has_offsets<Format>) {
        Format::unpack_factors(from, factors, factors + groups);
    } else {
        Format::unpack_factors(from, factors);
    }
}

/// Unpacks a head of `dim` values. The offsets follow the factors.
template <class Format, class Lookup, class Code, class Factor>
[[gnu::always_inline]] inline void unpack_head(const unit_of<Format>* units, const scale_of<Format>* scales,
                                               std::int64_t dim, Code* codes, Factor* factors) {
    const auto groups = static_cast<std::size_t>(factors_in<Format>(dim));
    const std::span of_head{factors, groups};
    const std::span to{codes, static_cast<std::size_t>(dim)};
    const std::span from{units, static_cast<std::size_t>(dim / values_per_unit<Format>)};
    const std::span from_scales{scales, static_cast<std::size_t>(scales_in<Format>(static_cast<int>(dim)))};
    if constexpr (looks_up_codes<Format>) {
        constexpr std::size_t bytes = Format::values_per_unit / 2;
        for (std::size_t i = 0; i < from.size(); ++i)
            for (std::size_t b = 0; b < bytes; b += 16)
                Lookup::template unpack<Format::levels>(units[i].*Format::nibbles + b, codes + 2 * (i * bytes + b));
        unpack_factors<Format>(units, scales, dim, factors);
    } else if constexpr (stores_codes<Format>) {
        std::copy(from.begin(), from.end(), codes);
        std::copy(from_scales.begin(), from_scales.end(), factors);
    } else if constexpr (has_scale_plane<Format> && has_offsets<Format>) {
        Format::unpack(from, from_scales, to, of_head, std::span{factors + groups, groups});
    } else if constexpr (has_scale_plane<Format>) {
        Format::unpack(from, from_scales, to, of_head);
    } else if constexpr (has_offsets<Format>) {
        Format::unpack(from, to, of_head, std::span{factors + groups, groups});
    } else {
        Format::unpack(from, to, of_head);
    }
}

} // namespace cellar::detail

#define CELLAR_KERNELS baseline_codes
#define CELLAR_VECTORS baseline_kernels
#define CELLAR_SUMS baseline_kernels
#define CELLAR_PRODUCTS BaselineProducts
#define CELLAR_LEVELS BaselineLevels
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_codes.hpp>

#ifdef CELLAR_HAS_NEON

#define CELLAR_KERNELS neon_codes
#define CELLAR_VECTORS baseline_kernels
#define CELLAR_SUMS baseline_kernels
#define CELLAR_PRODUCTS NeonProducts
#define CELLAR_LEVELS BaselineLevels
#define CELLAR_TARGET
#include <cellar/attention/detail/kernels_for_codes.hpp>

#endif

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_KERNELS avx2_codes
#define CELLAR_VECTORS avx2_kernels
#define CELLAR_SUMS avx2_kernels
#define CELLAR_PRODUCTS Avx2Products
#define CELLAR_LEVELS Avx2Levels
#define CELLAR_TARGET CELLAR_AVX2_FMA,
#include <cellar/attention/detail/kernels_for_codes.hpp>

#define CELLAR_KERNELS vnni_codes
#define CELLAR_VECTORS avx512_kernels
#define CELLAR_SUMS avx2_kernels
#define CELLAR_PRODUCTS VnniProducts
#define CELLAR_LEVELS Avx2Levels
#define CELLAR_COLUMNS
#define CELLAR_TARGET CELLAR_AVX512_VNNI,
#include <cellar/attention/detail/kernels_for_codes.hpp>

#endif

namespace cellar::detail {

/// The kernels that read rows of one format.
template <class Format>
struct CodeKernels {
    using Code = typename Format::code;
    using Factor = factor_of<Format>;

    void (*unpack)(HeadRows<unit_of<Format>>, HeadRows<scale_of<Format>>, int, std::int64_t, Code*, std::int64_t,
                   Factor*, Factor*) = nullptr;
    void (*widen_factors)(const Factor*, std::int64_t, float*) = nullptr;
    void (*round_queries)(const float*, std::ptrdiff_t, int, int, std::int64_t, std::int64_t, int,
                          const ByteQueries&) = nullptr;
    void (*dot)(const ByteQueries&, int, const CodeTile<std::int8_t>&, int, float*, float*,
                const FetchedRows&) = nullptr;
    void (*scale_scores)(float*, int, int, const float*) = nullptr;
    void (*add_values)(const float*, int, int, const CodeTile<Code>&, float*, float*, std::ptrdiff_t,
                       const FetchedRows&) = nullptr;
    void (*widen)(const CodeTile<Code>&, int, float*) = nullptr;

    /// `dot` and `add_values` for codes of 4 bits and numbers of 8 bits as they are stored; null: they are unpacked.
    void (*dot_packed)(const ByteQueries&, int, const CodeTile<std::int8_t>&, int, float*, float*,
                       const FetchedRows&) = nullptr;
    void (*add_packed_values)(const float*, int, int, const CodeTile<std::int8_t>&, float*, float*, std::ptrdiff_t,
                              const FetchedRows&) = nullptr;
};

#ifdef CELLAR_HAS_X86_VECTORS

/// Units are unpacked to memory with vectors of 32 bytes at most: g++ copies what it computed in these in vectors of 64
/// bytes, and then waits until they are in the cache.
template <class Format>
CodeKernels<Format> vnni_code_kernels() {
    using Code = typename CodeKernels<Format>::Code;
    using Factor = typename CodeKernels<Format>::Factor;
    CodeKernels<Format> kernels{avx2_codes::unpack<Format, Code, Factor>,
                                vnni_codes::widen_factors<Factor>,
                                vnni_codes::round_in_steps,
                                vnni_codes::dot_bytes,
                                vnni_codes::scale_scores,
                                vnni_codes::add_codes<Code>,
                                vnni_codes::widen_codes<Code>};
    if constexpr (std::same_as<Code, std::int8_t>)
        kernels.add_values = vnni_codes::add_in_pairs<vnni_codes::ByteColumns<32>>;
    if constexpr (looks_up_codes<Format>) {
        kernels.dot_packed = vnni_codes::dot_in_columns<vnni_codes::NibbleColumns<Format>>;
        kernels.add_packed_values = vnni_codes::add_in_pairs<vnni_codes::NibbleColumns<Format>>;
    } else if constexpr (looks_up_numbers<Format>) {
        if (Bfloat16Products::is_available()) {
            kernels.round_queries = vnni_codes::round_to_bfloat16;
            kernels.dot_packed = vnni_codes::dot_numbers<Format>;
            kernels.add_packed_values = vnni_codes::add_numbers<Format>;
        }
    }
    return kernels;
}

#endif

#define CELLAR_CODE_KERNELS(name, unpacking)                                                                           \
    {                                                                                                                  \
        unpacking::unpack<Format, Code, Factor>, name::widen_factors<Factor>, name::round_queries, name::dot_codes,    \
            name::scale_scores, name::add_codes<Code>, name::widen_codes<Code>                                         \
    }

/// Null where these instructions cannot load the codes: rows are decoded to floats first.
template <class Format>
CodeKernels<Format> code_kernels(Instructions instructions) {
    using Code = typename CodeKernels<Format>::Code;
    using Factor = typename CodeKernels<Format>::Factor;
    switch (instructions) {
#ifdef CELLAR_HAS_X86_VECTORS
    case Instructions::amx:
    case Instructions::avx512:
        if (VnniProducts::is_available()) return vnni_code_kernels<Format>();
        [[fallthrough]];
    case Instructions::avx2:
        return CELLAR_CODE_KERNELS(avx2_codes, avx2_codes);
#endif
    default:
#ifdef CELLAR_HAS_NEON
        if (NeonProducts::is_available()) return CELLAR_CODE_KERNELS(neon_codes, baseline_codes);
#endif
        if constexpr (BaselineVector::converts || std::same_as<Code, std::int8_t>) {
            return CELLAR_CODE_KERNELS(baseline_codes, baseline_codes);
        } else {
            return {};
        }
    }
}

#undef CELLAR_CODE_KERNELS

} // namespace cellar::detail
