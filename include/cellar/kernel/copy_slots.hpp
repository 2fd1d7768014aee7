// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// 16 bytes of any type, which a device thread moves at once.
struct alignas(16) [[gnu::may_alias]] SlotWord {
    std::uint32_t parts[4];
};

/// As many bytes as an Integer has, of any type.
template <class Integer>
struct [[gnu::may_alias]] SlotPart {
    Integer part;
};

/// Copies words of rows of tensors. Its indices are (copy, tensor, word); words after the end of a shorter row are
/// skipped. The tensors are carried by value, because each layer has others. Their number is limited because Kokkos
/// passes kernels of 512 bytes and more through constant memory, which makes it wait for the previous kernel.
template <class Word>
struct CopySlots {
    using Value = Word;
    static constexpr int max_tensors = 8;

    SlotRows tensors[max_tensors];
    const SlotCopy* copies;

    /// The number of words in a row.
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

} // namespace cellar::detail::kernel
