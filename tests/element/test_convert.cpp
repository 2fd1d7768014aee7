// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/element/convert.hpp>
#include <cellar/layout/mapping.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace test_convert {

using cellar::bfloat16;
using cellar::half;

namespace {

/// A way to convert n elements, forced.
template <class From, class To>
struct Path {
    const char* name;
    void (*convert)(const From* from, To* to, std::int64_t n);
};

/// Every path that this processor can take.
template <class From, class To>
std::vector<Path<From, To>> paths() {
    std::vector<Path<From, To>> all{{"loop", cellar::detail::convert_elements<From, To>},
                                    {"chosen at run time", cellar::detail::convert_run<From, To>}};
    if constexpr (cellar::detail::simd::native::Vector::converts) {
        if (cellar::detail::simd::is_available())
            all.push_back({"vectors", [](const From* from, To* to, std::int64_t n) {
                               if (n < 16) return cellar::detail::convert_elements(from, to, n);
                               cellar::detail::convert_vectors(from, to, n);
                           }});
    }
    return all;
}

template <class E>
std::uint32_t bits_of(E element) {
    if constexpr (std::is_same_v<E, float>) {
        return std::bit_cast<std::uint32_t>(element);
    } else {
        return element.bits;
    }
}

/// Converts all elements on every path and compares the bits with those of single conversions.
template <class To, class From>
void check_bits(const std::vector<From>& from) {
    for (const auto& path : paths<From, To>()) {
        std::vector<To> to(from.size());
        path.convert(from.data(), to.data(), std::ssize(from));
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (bits_of(to[i]) != bits_of(static_cast<To>(from[i])))
                FAIL_CHECK(path.name, ": bits ", bits_of(from[i]), " became ", bits_of(to[i]));
        }
    }
}

template <class E>
std::vector<E> all_patterns() {
    std::vector<E> all;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) all.push_back(E::from_bits(static_cast<std::uint16_t>(bits)));
    return all;
}

/// As many random floats for each exponent and sign: NaNs, infinities and subnormals are among them.
std::vector<float> floats_of_all_exponents(int each) {
    std::mt19937 random{20261122};
    std::vector<float> floats;
    for (std::uint32_t exponent = 0; exponent < 512; ++exponent)
        for (int i = 0; i < each; ++i)
            floats.push_back(std::bit_cast<float>(exponent << 23 | static_cast<std::uint32_t>(random() & 0x7fffff)));
    return floats;
}

/// A buffer whose elements begin `offset` bytes behind an aligned address.
template <class E>
class Misaligned {
public:
    Misaligned(std::size_t size, std::size_t offset) : bytes_(sizeof(E) * size + offset + 64), size_{size} {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
        first_ = (64 - address % 64) % 64 + offset;
    }
    std::span<E> span() { return {reinterpret_cast<E*>(bytes_.data() + first_), size_}; }

private:
    std::vector<unsigned char> bytes_;
    std::size_t size_;
    std::size_t first_;
};

template <class From, class To>
void check_lengths() {
    for (const auto& path : paths<From, To>()) {
        for (std::size_t size = 0; size < 70; ++size) {
            CAPTURE(path.name);
            CAPTURE(size);
            Misaligned<From> from{size, sizeof(From) * (size % 5)};
            Misaligned<To> guarded{size + 2, sizeof(To) * (size % 7)};
            const std::span<To> to = guarded.span().subspan(1, size);
            for (std::size_t i = 0; i < size; ++i) from.span()[i] = From{static_cast<float>(i) / 4};
            guarded.span().front() = To{-1.0F};
            guarded.span().back() = To{-1.0F};
            path.convert(from.span().data(), to.data(), static_cast<std::int64_t>(size));
            for (std::size_t i = 0; i < size; ++i) REQUIRE(static_cast<float>(to[i]) == static_cast<float>(i) / 4);
            REQUIRE(static_cast<float>(guarded.span().front()) == -1.0F);
            REQUIRE(static_cast<float>(guarded.span().back()) == -1.0F);
        }
    }
}

/// Numbers the elements of the view, up to a prime: every element type holds these numbers.
template <class T>
void number(const cellar::StridedView<T, 3>& view) {
    int next = 0;
    for (int i = 0; i < view.extent(0); ++i)
        for (int head = 0; head < view.extent(1); ++head)
            for (int d = 0; d < view.extent(2); ++d) view(i, head, d) = T{static_cast<float>(next++ % 251)};
}

template <class From, class To>
bool is_equal(const cellar::StridedView<From, 3>& from, const cellar::StridedView<To, 3>& to) {
    for (int i = 0; i < from.extent(0); ++i)
        for (int head = 0; head < from.extent(1); ++head)
            for (int d = 0; d < from.extent(2); ++d)
                if (static_cast<float>(from(i, head, d)) != static_cast<float>(to(i, head, d))) return false;
    return true;
}

} // namespace

TEST_CASE_TEMPLATE("all 65,536 bit patterns convert in bulk to the same bits as one at a time", E, half, bfloat16) {
    check_bits<float>(all_patterns<E>());
}

TEST_CASE_TEMPLATE("floats of all exponents convert in bulk to the same bits as one at a time", E, half, bfloat16) {
    check_bits<E>(floats_of_all_exponents(8192));
}

TEST_CASE_TEMPLATE("ties convert in bulk to the same bits as one at a time", E, half, bfloat16) {
    constexpr std::uint32_t tie = std::is_same_v<E, half> ? 1U << 12 : 1U << 15;
    std::vector<float> floats;
    for (const E e : all_patterns<E>()) {
        const std::uint32_t word = std::bit_cast<std::uint32_t>(static_cast<float>(e));
        for (const std::uint32_t more : {tie - 1, tie, tie + 1}) floats.push_back(std::bit_cast<float>(word + more));
    }
    check_bits<E>(floats);
}

TEST_CASE_TEMPLATE("a NaN keeps its sign and the highest bits of its payload", E, half, bfloat16) {
    const std::vector<float> nans{std::bit_cast<float>(0x7fc00000U), std::bit_cast<float>(0xffe00000U),
                                  std::bit_cast<float>(0x7f800001U), std::bit_cast<float>(0xffa00000U)};
    std::vector<float> many;
    for (int i = 0; i < 8; ++i) many.insert(many.end(), nans.begin(), nans.end());
    std::vector<E> elements(many.size());
    cellar::convert(many, elements);
    std::vector<float> back(many.size());
    cellar::convert(elements, back);
    constexpr std::uint32_t quiet = 1U << 22;
    for (std::size_t i = 0; i < many.size(); ++i) {
        const std::uint32_t dropped = std::is_same_v<E, half> ? 0x1fffU : 0xffffU;
        CHECK(bits_of(back[i]) == ((bits_of(many[i]) | quiet) & ~dropped));
    }
}

TEST_CASE("any number of elements converts, at any address, and their neighbours do not change") {
    check_lengths<half, float>();
    check_lengths<bfloat16, float>();
    check_lengths<float, half>();
    check_lengths<float, bfloat16>();
}

TEST_CASE("spans, vectors and arrays convert, and floats are copied") {
    const std::vector<float> floats{1, 2.5F, -3};
    half halves[3];
    cellar::convert(floats, halves);
    std::vector<float> back(3);
    cellar::convert(halves, back);
    CHECK(back == floats);
    cellar::convert(floats, std::span{back}.first(3));
    CHECK(back == floats);
    cellar::convert({&halves[1], 1}, {back.data(), 1});
    CHECK(back == std::vector<float>{2.5F, 2.5F, -3});
    cellar::convert(std::span<const half>{}, std::span<float>{});
}

TEST_CASE("spans of different sizes are a violation") {
    const std::vector<half> halves(3);
    std::vector<float> floats(4);
    CHECK(violation_of([&] { cellar::convert(halves, floats); }) == "convert: 3 elements to 4, expected as many");
}

TEST_CASE_TEMPLATE("keys and values of each layout convert to rows of floats", E, half, bfloat16) {
    constexpr int cells = 37;
    constexpr int heads = 3;
    constexpr int dim = 40;
    std::vector<E> memory(cells * heads * dim);
    std::vector<float> floats(memory.size() + cells * 5);
    auto dense = cellar::contiguous_view(floats.data(), cells, heads, dim);
    auto padded = dense;
    padded.strides[0] += 5;
    auto by_dim = dense; // a head of [dim, cells]
    by_dim.strides[0] = 1;
    by_dim.strides[1] = dim * cells;
    by_dim.strides[2] = cells;
    const auto check = [&](const auto& mapping) {
        const auto view = mapping.view(memory.data(), cellar::CellRange{0, cells});
        number(view);
        for (const auto& to : {dense, padded, by_dim}) {
            std::fill(floats.begin(), floats.end(), -1.0F);
            cellar::convert(view, to);
            CHECK(is_equal(view, to));
        }
        number(padded);
        cellar::convert(padded, view);
        CHECK(is_equal(padded, view));
    };
    check(cellar::CellsHeadsDims{cells, heads, dim});
    check(cellar::HeadsDimsCells{cells, heads, dim});
}

TEST_CASE("a view converts to one of the same extents only") {
    std::vector<half> halves(24);
    std::vector<float> floats(24);
    const auto from = cellar::contiguous_view(halves.data(), 2, 3, 4);
    CHECK(violation_of([&] { cellar::convert(from, cellar::contiguous_view(floats.data(), 2, 4, 3)); })
          == "convert: extent 1 is 3, expected 4 as in the view to write");
    cellar::convert(from, cellar::contiguous_view(floats.data(), 2, 3, 4));
    const auto none = cellar::contiguous_view(halves.data(), 0, 3, 4);
    cellar::convert(none, cellar::contiguous_view(floats.data(), 0, 3, 4));
}

} // namespace test_convert
