// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace cellar_test {

/// Checks each element of a mask that a backend writes, and that the memory behind the mask does not change.
template <class T, class Backend>
void check_written_mask(Backend& backend, std::mt19937& random, std::int64_t tokens, std::int64_t history) {
    constexpr auto visible = cellar::detail::MaskValues<T>::visible;
    constexpr auto hidden = cellar::detail::MaskValues<T>::hidden;
    const std::int64_t words = (history + 63) / 64;
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(tokens * words));
    for (std::uint64_t& word : bits)
        word = std::uniform_int_distribution<std::uint64_t>{}(random) | (random() % 4 == 0 ? ~std::uint64_t{0} : 0);

    auto buffer = backend.template allocate<float>(tokens * history + 1);
    const auto all = static_cast<std::size_t>(buffer.size());
    const std::vector<float> before(all, 42.0F);
    backend.copy_from_host(std::span<const float>{before}, buffer, 0);
    T* const out = reinterpret_cast<T*>(buffer.data());
    backend.write_mask(std::span<const std::uint64_t>{bits}, visible, hidden,
                       cellar::contiguous_view(out, tokens, history));
    std::vector<float> floats(all);
    backend.copy_to_host(buffer, 0, std::span<float>{floats});

    std::vector<std::byte> expected(all * sizeof(float));
    std::memcpy(expected.data(), before.data(), expected.size());
    std::size_t at = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t c = 0; c < history; ++c, at += sizeof(T)) {
            const T value =
                (bits[static_cast<std::size_t>(t * words + c / 64)] >> (c % 64) & 1) != 0 ? visible : hidden;
            std::memcpy(expected.data() + at, &value, sizeof(T));
        }
    }
    CHECK(std::memcmp(expected.data(), floats.data(), expected.size()) == 0);
}

/// Checks written masks at sizes around multiples of 64, the bits of a word.
template <cellar::WritesMasks Backend>
void check_written_masks() {
    std::mt19937 random{17};
    Backend backend;
    for (const auto& [tokens, history] :
         {std::pair{1, 1}, {3, 63}, {3, 64}, {3, 65}, {1, 200}, {40, 1000}, {0, 5}, {5, 0}}) {
        CAPTURE(tokens);
        CAPTURE(history);
        check_written_mask<float>(backend, random, tokens, history);
        check_written_mask<cellar::half>(backend, random, tokens, history);
        check_written_mask<bool>(backend, random, tokens, history);
    }
}

template <class Window, class Backend>
using MaskCache = cellar::Cache<cellar::StandardV<float>, Window, cellar::DisabledShift, Backend>;

/// Checks that a pass writes this mask into memory of the program's own, hides the columns behind the history, and
/// leaves what lies between the rows alone.
template <class T, class Pass>
void check_mask_into(Pass& pass, const cellar::StridedView<const T, 2>& expected, int hidden_columns, int gap) {
    const std::int64_t tokens = expected.extent(0);
    const std::int64_t columns = expected.extent(1) + hidden_columns;
    const std::int64_t stride = columns + gap;
    std::vector<unsigned char> bytes(static_cast<std::size_t>(tokens * stride) * sizeof(T), 0x5A);
    T* const first = reinterpret_cast<T*>(bytes.data());
    pass.mask_into(cellar::StridedView<T, 2>{first, {tokens, columns}, {stride, 1}});
    const T hidden = cellar::detail::MaskValues<T>::hidden;
    const std::vector<unsigned char> untouched(sizeof(T), 0x5A);
    bool is_right = true;
    for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t c = 0; c < stride; ++c) {
            const void* const wanted = c < expected.extent(1) ? static_cast<const void*>(&expected(i, c))
                                       : c < columns          ? static_cast<const void*>(&hidden)
                                                              : untouched.data();
            is_right = is_right && std::memcmp(first + i * stride + c, wanted, sizeof(T)) == 0;
        }
    CHECK(is_right);
}

/// Checks that two passes have equal masks. The host must be able to read them after a fence of b's cache.
template <class T, class A, class B, class Cache>
void check_same_mask(A& a, B& b, Cache& cache_of_b) {
    const auto one = a.template mask<T>();
    const auto other = b.template mask<T>();
    cache_of_b.fence();
    REQUIRE(one.extent(0) == other.extent(0));
    REQUIRE(one.extent(1) == other.extent(1));
    CHECK(other.is_contiguous());
    CHECK((one.size() == 0
           || std::memcmp(one.pointer, other.pointer, static_cast<std::size_t>(one.size()) * sizeof(T)) == 0));
    check_mask_into(b, one, 0, 0);
    check_mask_into(b, one, 100, 3);
}

template <class Backend, class Window>
void check_masks_under(const Window& window, std::int32_t padding) {
    using namespace cellar;
    const CacheLimits limits{.sequences = 3, .capacity = 300, .batch = 40, .padding = padding};
    MaskCache<Window, HostBackend> host{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits, window};
    MaskCache<Window, Backend> other{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits, window};
    std::mt19937 random{5};
    std::vector<int> next(3);
    for (int round = 0; round < 60; ++round) {
        std::vector<Position> positions;
        std::vector<Sequence> sequences;
        for (std::size_t left = random() % 40 + 1; left > 0; --left) {
            const auto s = random() % 3;
            if (next[s] == 300) continue;
            positions.push_back(cellar::Position{next[s]++});
            sequences.push_back(cellar::Sequence{static_cast<std::int32_t>(s)});
        }
        auto a = host.begin({positions, sequences});
        auto b = other.begin({positions, sequences});
        REQUIRE(a);
        REQUIRE(b);
        check_same_mask<float>(*a, *b, other);
        check_same_mask<cellar::half>(*a, *b, other);
        check_same_mask<bool>(*a, *b, other);
        check_same_mask<float>(*a, *b, other);
        a->mark_put(0);
        b->mark_put(0);
        a->commit();
        b->commit();
    }
}

/// Checks that the backend writes the same masks as the host. The host must be able to read them after a
/// fence.
template <class Backend>
void check_masks_of_passes() {
    check_masks_under<Backend>(cellar::FullCausal{}, 1);
    check_masks_under<Backend>(cellar::FullCausal{}, 32);
    check_masks_under<Backend>(cellar::SlidingWindow<>{50}, 1);
    check_masks_under<Backend>(cellar::ChunkedAttention<>{70}, 8);
}

/// Checks that a reserved pass sees all cells, and that later masks are at the same address.
template <class Backend>
void check_reserved_masks() {
    using namespace cellar;
    MaskCache<FullCausal, HostBackend> host{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                            {.sequences = 1, .capacity = 100, .batch = 7}};
    MaskCache<FullCausal, Backend> cache{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1},
                                         {.sequences = 1, .capacity = 100, .batch = 7}};
    const void* address = nullptr;
    {
        auto a = host.reserve(7);
        auto b = cache.reserve(7);
        check_same_mask<cellar::half>(a, b, cache);
        check_same_mask<float>(a, b, cache);
        address = b.mask().pointer;
    }
    for (int p = 0; p < 98; p += 7) {
        std::vector<Position> positions;
        for (int i = 0; i < 7; ++i) positions.push_back(cellar::Position{p + i});
        const std::vector<Sequence> sequences(7);
        auto pass = cache.begin({positions, sequences});
        REQUIRE(pass);
        CHECK(static_cast<const void*>(pass->template mask<bool>().pointer) == address);
        CHECK(static_cast<const void*>(pass->template mask<float>().pointer) == address);
        pass->mark_put(0);
        pass->commit();
    }
}

} // namespace cellar_test
