// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/book/cell_set.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

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

} // namespace detail

/// Writes one row of the mask, a value for each cell of `history`. O(history) at about the speed of filling the row.
template <class T>
void write_mask_row(const CellSet& visible, CellRange history, T* row) {
    const auto& table = detail::mask_of_byte<T>;
    const auto write = [&](detail::Word bits, std::int32_t from, T* out) {
        std::memcpy(out, table[bits >> from & 0xFF].data(), 8 * sizeof(T));
    };
    std::int32_t done = 0;
    for (; done + 64 <= history.count; done += 64) {
        const detail::Word bits = visible.bits_from(history.first + done);
        for (std::int32_t byte = 0; byte < 64; byte += 8) write(bits, byte, row + done + byte);
    }
    if (done == history.count) return;
    const detail::Word bits = visible.bits_from(history.first + done);
    T rest[64];
    for (std::int32_t byte = 0; byte < 64; byte += 8) write(bits, byte, rest + byte);
    std::memcpy(row + done, rest, static_cast<std::size_t>(history.count - done) * sizeof(T));
}

} // namespace cellar
