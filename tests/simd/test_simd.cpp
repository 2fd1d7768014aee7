// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The operations of vectors beside plain loops, for each level of instructions that this processor has; copies past the
// caches. Conversions of whole runs are in tests/element, the kernels of attention in tests/attention.
#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>
#include <cellar/simd/lines.hpp>
#include <cellar/simd/vector.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace simd_test {

/// Of up to 16 lanes.
struct Result {
    float transposed[256], transposed_fours[64], sums[16], swapped[16], rotated[16], broadcast[16], in_register[16];
};

} // namespace simd_test

#define CELLAR_KERNELS simd_baseline_test
#define CELLAR_VECTOR BaselineVector
#define CELLAR_TARGET
#include "level.hpp"
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

#ifdef CELLAR_HAS_X86_VECTORS

#define CELLAR_KERNELS simd_avx2_test
#define CELLAR_VECTOR Avx2Vector
#define CELLAR_TARGET CELLAR_AVX2,
#include "level.hpp"
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

#define CELLAR_KERNELS simd_avx512_test
#define CELLAR_VECTOR Avx512Vector
#define CELLAR_TARGET CELLAR_AVX512,
#include "level.hpp"
#undef CELLAR_KERNELS
#undef CELLAR_VECTOR
#undef CELLAR_TARGET

#endif

#if defined(CELLAR_HAS_X86_VECTORS)
#define CELLAR_TARGET CELLAR_AVX2,
#elif defined(CELLAR_HAS_NEON)
#define CELLAR_TARGET
#endif

#ifdef CELLAR_TARGET

namespace simd_test {

/// What vectors have for formats.
#ifdef CELLAR_HAS_X86_VECTORS
using FormatVector = cellar::detail::Avx2Vector;
#else
using FormatVector = cellar::detail::BaselineVector;
#endif

struct FormatResult {
    float floors[8], products[8], repeated[8];
    std::uint16_t halves[4];
    std::int8_t looked_up[32];
};

template <class V, class T>
[[CELLAR_TARGET gnu::always_inline]] inline void put(V value, T* to) {
    std::memcpy(to, &value, sizeof(value));
}

/// For 8 numbers each, and 32 bytes; the table is 16 bytes twice.
[[CELLAR_TARGET gnu::noinline]] inline void operate(const float* a, const float* b, const std::int8_t* table,
                                                    const std::int8_t* index, FormatResult* to) {
    using Vector = FormatVector;
    for (int i = 0; i < 8; i += Vector::lanes) {
        const Vector::Floats x = Vector::load(a + i);
        put(Vector::floor(x), to->floors + i);
        put(Vector::product(x, Vector::load(b + i)), to->products + i);
    }
    cellar::detail::BaselineVector::Floats four;
    std::memcpy(&four, a, sizeof(four));
    put(Vector::repeat(four), to->repeated);
    const auto halves = Vector::halves_of(four);
    std::memcpy(to->halves, &halves, sizeof(to->halves));
    Vector::Bytes bytes, indices;
    std::memcpy(&bytes, table, sizeof(bytes));
    for (std::size_t i = 0; i < 32; i += sizeof(bytes)) {
        std::memcpy(&indices, index + i, sizeof(indices));
        put(Vector::look_up(bytes, indices), to->looked_up + i);
    }
}

} // namespace simd_test

#endif

#ifdef CELLAR_HAS_X86_VECTORS

namespace simd_test {

struct WideFormatResult {
    std::int32_t integers[16];
    float products[16], floats[16], fours[16];
    std::int16_t words[32];
};

/// For 16 numbers each, and 32 words.
[[CELLAR_AVX512, gnu::noinline]] inline void operate_wide(const float* a, const float* b, const std::int16_t* table,
                                                          const std::int16_t* index, WideFormatResult* to) {
    using Vector = cellar::detail::Avx512Vector;
    const Vector::Floats x = Vector::load(a), y = Vector::load(b);
    const Vector::Ints integers = Vector::integers_below(x);
    const Vector::Floats products = Vector::product(x, y), floats = Vector::look_up(y, integers);
    Vector::Words in_table, at;
    std::memcpy(&in_table, table, sizeof(in_table));
    std::memcpy(&at, index, sizeof(at));
    const Vector::Words words = Vector::look_up(in_table, at);
    const Vector::Floats fours = Vector::load_fours(a, 3);
    std::memcpy(to->fours, &fours, sizeof(fours));
    std::memcpy(to->integers, &integers, sizeof(integers));
    std::memcpy(to->products, &products, sizeof(products));
    std::memcpy(to->floats, &floats, sizeof(floats));
    std::memcpy(to->words, &words, sizeof(words));
}

} // namespace simd_test

#endif

namespace test_simd {

using namespace cellar::detail;
using cellar::bfloat16;
using cellar::half;

namespace {

/// The functions of one level. Null: it has none.
template <class E>
struct Level {
    const char* name;
    int lanes;
    void (*operate)(const float*, simd_test::Result*);
    void (*load)(const E*, float*);
    void (*store)(const float*, E*, E*);
};

template <class E>
std::vector<Level<E>> levels() {
    std::vector<Level<E>> found;
    if constexpr (BaselineVector::converts || std::is_same_v<E, float>) {
        using namespace simd_baseline_test;
        found.push_back({"baseline", lanes, operate, load_from<E>, store_to<E>});
    }
#ifdef CELLAR_HAS_X86_VECTORS
    if (Avx2Vector::is_available()) {
        using namespace simd_avx2_test;
        found.push_back({"avx2", lanes, operate, load_from<E>, store_to<E>});
    }
    if (Avx512Vector::is_available()) {
        using namespace simd_avx512_test;
        found.push_back({"avx512", lanes, operate, load_from<E>, nullptr});
    }
#endif
    return found;
}

/// Small integers that look random, which every element holds.
std::vector<float> numbers(int n) {
    std::vector<float> floats;
    for (int i = 0; i < n; ++i) floats.push_back(static_cast<float>(i * 37 % 101 - 50));
    return floats;
}

} // namespace

TEST_CASE("vectors change their lanes as plain loops do") {
    for (const Level<float>& level : levels<float>()) {
        CAPTURE(level.name);
        const int n = level.lanes;
        const std::vector<float> x = numbers(n * n);
        const auto at = [&](int row, int i) { return x[static_cast<std::size_t>(row * n + i)]; };
        simd_test::Result found{};
        level.operate(x.data(), &found);
        for (int i = 0; i < n; ++i) {
            float sum = 0;
            for (int k = 0; k < n; ++k) {
                sum += at(i, k);
                CHECK(found.transposed[i * n + k] == at(k, i));
            }
            CHECK(found.sums[i] == sum);
            for (int k = 0; k < 4; ++k) CHECK(found.transposed_fours[k * n + i] == at(i % 4, i / 4 * 4 + k));
            CHECK(found.swapped[i] == at(0, i ^ 1));
            CHECK(found.rotated[i] == at(0, (i + 1) % n));
            CHECK(found.broadcast[i] == at(0, 1));
            CHECK(found.in_register[i] == at(0, i));
        }
    }
}

#ifdef CELLAR_TARGET

TEST_CASE("vectors have what formats need") {
#ifdef CELLAR_HAS_X86_VECTORS
    if (!Avx2Vector::is_available()) return;
#endif
    const float a[] = {1, -2.5F, 65519, -0.1F, 1e-3F, 6.75F, -65520, -8};
    const float b[] = {2, -3, 1.1F, 0.3F, -0.2F, 1e-30F, 7, -0.0F};
    std::int8_t table[32], index[32];
    for (int i = 0; i < 32; ++i) {
        table[i] = static_cast<std::int8_t>(i % 16 * 7 - 50);
        index[i] = static_cast<std::int8_t>(i * 5 % 16 - (i % 3 == 0 ? 128 : 0));
    }
    simd_test::FormatResult found{};
    simd_test::operate(a, b, table, index, &found);
    for (int i = 0; i < 8; ++i) {
        CAPTURE(i);
        CHECK(found.floors[i] == std::floor(a[i]));
        CHECK(found.products[i] == a[i] * b[i]);
        if (i < simd_test::FormatVector::lanes) CHECK(found.repeated[i] == a[i % 4]);
    }
    for (int i = 0; i < 32; ++i) {
        CAPTURE(i);
        CHECK(found.looked_up[i] == (index[i] < 0 ? 0 : table[static_cast<std::size_t>(index[i])]));
    }
    for (int i = 0; i < 4; ++i) CHECK(found.halves[i] == static_cast<half>(a[i]).bits);
}

#undef CELLAR_TARGET

#endif

#ifdef CELLAR_HAS_X86_VECTORS

TEST_CASE("vectors of AVX-512 have what formats need") {
    if (!Avx512Vector::is_available()) return;
    const float a[] = {1, -2.5F, 254, -0.1F, 1e-3F, 6.75F, -254, -8, 0, -0.0F, 0.5F, -0.5F, 31.999F, -17, 3.5F, 100};
    float b[16];
    for (int i = 0; i < 16; ++i) b[i] = static_cast<float>(i) * 0.3F - 2;
    std::int16_t table[32], index[32];
    for (int i = 0; i < 32; ++i) {
        table[i] = static_cast<std::int16_t>(i * 1000 - 20000);
        index[i] = static_cast<std::int16_t>(i * 13 - 100);
    }
    simd_test::WideFormatResult found{};
    simd_test::operate_wide(a, b, table, index, &found);
    for (int i = 0; i < 16; ++i) {
        CAPTURE(i);
        CHECK(found.integers[i] == static_cast<std::int32_t>(std::floor(a[i])));
        CHECK(found.products[i] == a[i] * b[i]);
        CHECK(found.floats[i] == b[found.integers[i] & 15]);
        CHECK(found.fours[i] == a[i / 4 * 3 + i % 4]);
    }
    for (int i = 0; i < 32; ++i) {
        CAPTURE(i);
        CHECK(found.words[i] == table[index[i] & 31]);
    }
}

#endif

TEST_CASE_TEMPLATE("vectors are loaded from and stored to elements at any address", E, float, half, bfloat16) {
    for (const Level<E>& level : levels<E>()) {
        CAPTURE(level.name);
        const int n = level.lanes;
        const std::vector<float> x = numbers(2 * n);
        std::vector<E> elements;
        for (const float value : x) elements.push_back(E{value});
        for (int first = 0; first <= n; ++first) {
            std::vector<float> loaded(static_cast<std::size_t>(n));
            level.load(elements.data() + first, loaded.data());
            CHECK(loaded == std::vector<float>(x.begin() + first, x.begin() + first + n));
        }
        if (level.store == nullptr) continue;
        for (const int gap : {1, 3}) { // in front, between and behind
            std::vector<E> stored(static_cast<std::size_t>(2 * n + 3 * gap), E{99.0F});
            level.store(x.data(), &stored[static_cast<std::size_t>(gap)],
                        &stored[static_cast<std::size_t>(2 * gap + n)]);
            std::vector<float> expected(stored.size(), 99.0F), found;
            for (int i = 0; i < 2 * n; ++i)
                expected[static_cast<std::size_t>(i < n ? gap + i : 2 * gap + i)] = x[static_cast<std::size_t>(i)];
            for (const E& element : stored) found.push_back(static_cast<float>(element));
            CHECK(found == expected);
        }
    }
}

TEST_CASE_TEMPLATE("copies past the caches are of any length, to any address, and no more", E, float, std::uint16_t) {
    constexpr int room = 400;
    std::vector<E> from, ahead(room);
    for (int i = 0; i < room; ++i) from.push_back(static_cast<E>(i + 1));
    for (const int n : {0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 100, 300})
        for (const int first : {0, 1, 7, 40}) {
            CAPTURE(n);
            CAPTURE(first);
            std::vector<E> to(room), expected(room);
            for (int i = 0; i < n; ++i)
                expected[static_cast<std::size_t>(first + i)] = from[static_cast<std::size_t>(i)];
            stream_run(from.data(), to.data() + first, n, n % 2 == 0 ? ahead.data() : nullptr);
            streamed();
            CHECK(to == expected);
        }
}

} // namespace test_simd
