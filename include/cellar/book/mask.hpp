// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/book/cell_set.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace cellar {

/// What a mask says of a cell: an additive mask has 0 and -infinity, a bool mask true and false.
template <class T>
struct MaskValues;

template <>
struct MaskValues<float> {
    static constexpr float visible = 0.0F;
    static constexpr float hidden = -std::numeric_limits<float>::infinity();
};

template <>
struct MaskValues<bool> {
    static constexpr bool visible = true;
    static constexpr bool hidden = false;
};

namespace detail {

// For every byte of a bitmap the eight mask values that it stands for: a row is then written by copies of fixed size,
// without a branch on any cell.
template <class T>
inline constexpr auto mask_of_byte = [] {
    std::array<std::array<T, 8>, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte)
        for (unsigned bit = 0; bit < 8; ++bit)
            table[byte][bit] = (byte >> bit & 1) != 0 ? MaskValues<T>::visible : MaskValues<T>::hidden;
    return table;
}();

// Eight bytes of a bitmap. Unrolled by hand, as g++ does not: as a loop it took a third longer.
template <class T, std::size_t... Byte>
void write_mask_word(Word bits, T* out, std::index_sequence<Byte...>) {
    (std::memcpy(out + 8 * Byte, mask_of_byte<T>[bits >> (8 * Byte) & 0xFF].data(), 8 * sizeof(T)), ...);
}

} // namespace detail

/// Writes one row of the mask, a value for each cell of `history`. O(history) at about the speed of filling the row.
template <class T>
void write_mask_row(const CellSet& visible, CellRange history, T* row) {
    constexpr std::make_index_sequence<8> bytes;
    std::int32_t done = 0;
    for (; done + 64 <= history.count; done += 64)
        detail::write_mask_word(visible.bits_from(history.first + done), row + done, bytes);
    if (done == history.count) return;
    T rest[64];
    detail::write_mask_word(visible.bits_from(history.first + done), rest, bytes);
    std::memcpy(row + done, rest, static_cast<std::size_t>(history.count - done) * sizeof(T));
}

/// The same as bits: 64 cells a word, from the first of `history` on; those beyond it may be anything. O(history / 64).
inline void write_mask_bits(const CellSet& visible, CellRange history, std::uint64_t* row) {
    for (std::int32_t done = 0; done < history.count; done += 64) *row++ = visible.bits_from(history.first + done);
}

} // namespace cellar
