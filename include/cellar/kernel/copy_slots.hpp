// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstdint>

namespace cellar::kernel {

/// 16 bytes, which one thread of a device moves at once, whatever lies there.
struct alignas(16) [[gnu::may_alias]] SlotWord {
    std::uint32_t parts[4];
};

/// Copies words of rows of tensors; its indices are (copy, tensor, word). Rows of some tensors are shorter than those of
/// others: what lies behind them is left alone. The tensors are carried by value: the list is short, and another one for
/// every layer. Not more of them, because Kokkos passes kernels of 512 bytes and more through constant memory, and waits
/// before each for the one before.
template <class Word>
struct CopySlots {
    using Value = Word;
    static constexpr int most_tensors = 8;

    SlotRows tensors[most_tensors];
    const SlotCopy* copies;

    /// In a row.
    CELLAR_FUNCTION static std::int64_t words(const SlotRows& rows) {
        return rows.bytes / static_cast<std::int64_t>(sizeof(Word));
    }

    CELLAR_FUNCTION Value read(std::int64_t copy, std::int64_t tensor, std::int64_t word) const {
        const Slot from = copies[copy].from;
        const SlotRows& rows = tensors[tensor];
        if (from == zero_slot || word >= words(rows)) return Word{};
        return reinterpret_cast<const Word*>(rows.from + from * rows.from_stride)[word];
    }
    CELLAR_FUNCTION void write(std::int64_t copy, std::int64_t tensor, std::int64_t word, const Value& value) const {
        const SlotRows& rows = tensors[tensor];
        if (word < words(rows)) reinterpret_cast<Word*>(rows.to + copies[copy].to * rows.to_stride)[word] = value;
    }
};

} // namespace cellar::kernel
