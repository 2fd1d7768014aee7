// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/book/mask.hpp>
#include <cellar/mask_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace cellar_test {

/// A mask that a backend has written, bit by bit against what it was given; what lies behind it is not touched.
template <class T, class Backend>
void check_written_mask(Backend& backend, std::mt19937& random, std::int64_t tokens, std::int64_t history) {
    constexpr auto visible = cellar::MaskValues<T>::visible;
    constexpr auto hidden = cellar::MaskValues<T>::hidden;
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

/// For backends that write masks, at sizes around those of words.
template <cellar::writes_masks Backend>
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

} // namespace cellar_test
