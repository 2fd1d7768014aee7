// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/book/cell_set.hpp>
#include <cellar/element/half.hpp>
#include <cellar/simd/vector.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// The mask's value for a visible and for a hidden cell: 0 and -infinity in an additive mask, true and false in a bool
/// mask.
template <class T>
struct MaskValues;

template <>
struct MaskValues<float> {
    static constexpr float visible = 0.0F;
    static constexpr float hidden = -std::numeric_limits<float>::infinity();
};

template <>
struct MaskValues<half> {
    static constexpr half visible = half::from_bits(0);
    static constexpr half hidden = half::from_bits(0xFC00);
};

template <>
struct MaskValues<bool> {
    static constexpr bool visible = true;
    static constexpr bool hidden = false;
};

// The eight mask values for every byte of a bitmap: a row is written by copies of fixed size, without branches on
// cells.
template <class T>
inline constexpr auto mask_of_byte = [] {
    std::array<std::array<T, 8>, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte)
        for (unsigned bit = 0; bit < 8; ++bit)
            table[byte][bit] = (byte >> bit & 1) != 0 ? MaskValues<T>::visible : MaskValues<T>::hidden;
    return table;
}();

// Writes the mask values for eight bytes of a bitmap. Unrolled by hand: g++ does not, and the loop took a third longer.
template <class T, std::size_t... Byte>
void write_mask_word(Word bits, T* out, std::index_sequence<Byte...>) {
    (std::memcpy(out + 8 * Byte, mask_of_byte<T>[bits >> (8 * Byte) & 0xFF].data(), 8 * sizeof(T)), ...);
}

/// Writes the mask values for n words, a vector at a time. Only if simd::is_available().
CELLAR_SIMD_FUNCTION inline void write_mask_vectors(const Word* words, std::int64_t n, float* out) {
    using namespace simd::native;
    for (std::int64_t i = 0; i < n; ++i)
        for (int byte = 0; byte < 8; ++byte, out += 8) {
            const float* const values = mask_of_byte<float>[words[i] >> (8 * byte) & 0xFF].data();
            for (int k = 0; k < 8; k += lanes) store(out + k, load(values + k));
        }
}

/// Writes the mask values for whole words of cells.
template <class T>
void write_mask_words(const CellSet& visible, CellRange cells, T* row) {
    if constexpr (simd::computes && std::is_same_v<T, float>) {
        if (simd::is_available()) {
            constexpr std::int32_t max_words = 64;
            Word words[max_words];
            for (std::int32_t done = 0; done < cells.count; done += 64 * max_words) {
                const std::int32_t n = std::min(64 * max_words, cells.count - done);
                visible.for_each_64({cells.first + done, n}, [&](std::int64_t i, Word bits) { words[i] = bits; });
                write_mask_vectors(words, n / 64, row + done);
            }
            return;
        }
    }
    visible.for_each_64(
        cells, [=](std::int64_t i, Word bits) { write_mask_word(bits, row + 64 * i, std::make_index_sequence<8>{}); });
}

/// Writes one row of the mask, one value per cell of `history`. O(history), at about the speed of filling the row.
template <class T>
void write_mask_row(const CellSet& visible, CellRange history, T* row) {
    constexpr std::make_index_sequence<8> bytes;
    const std::int32_t rest = history.count % 64;
    const std::int32_t whole = history.count - rest;
    write_mask_words(visible, {history.first, whole}, row);
    visible.for_each_64({history.first + whole, rest}, [=](std::int64_t, Word bits) {
        T last[64];
        write_mask_word(bits, last, bytes);
        std::memcpy(row + whole, last, static_cast<std::size_t>(rest) * sizeof(T));
    });
}

/// Writes the mask of the book's open pass, [tokens, columns]. Columns behind the history are hidden.
template <class T, class Book>
void write_mask(Book& book, const StridedView<T, 2>& mask) {
    const CellRange history = book.pass().history;
    book.for_each_visible_row([&](std::int64_t token, const CellSet& visible) {
        T* const row = mask.pointer + token * mask.stride(0);
        write_mask_row(visible, history, row);
        std::fill_n(row + history.count, mask.extent(1) - history.count, MaskValues<T>::hidden);
    });
}

/// Writes the row as bits, 64 cells per word, from the first cell of `history` on. Bits beyond it are unspecified.
/// O(history / 64).
inline void write_mask_bits(const CellSet& visible, CellRange history, std::uint64_t* row) {
    visible.for_each_64(history, [row](std::int64_t i, Word bits) { row[i] = bits; });
}

} // namespace cellar::detail
