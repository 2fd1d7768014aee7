// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/slot_copy.hpp>

#include <cstdint>

namespace cellar::kernel {

/// 16 bytes, which one thread of a device moves at once.
struct alignas(16) SlotWord {
    std::uint32_t parts[4];
};

/// Copies one word of one row of one tensor. Words are independent: any order. The tensors are carried by value: the
/// list is short, and another one for every layer.
template <class Word>
struct CopySlots {
    static constexpr int most_tensors = 16;

    SlotRows tensors[most_tensors];
    std::int64_t words[most_tensors]; ///< in a row of each
    int count;
    const SlotCopy* copies;
    std::int64_t copy_count;

    CELLAR_FUNCTION std::int64_t size() const {
        std::int64_t sum = 0;
        for (int i = 0; i < count; ++i) sum += words[i];
        return sum * copy_count;
    }

    /// Neighbouring indices are neighbouring words of a row.
    CELLAR_FUNCTION void operator()(std::int64_t index) const {
        int tensor = 0;
        while (index >= words[tensor] * copy_count) index -= words[tensor++] * copy_count;
        const SlotRows& rows = tensors[tensor];
        const SlotCopy copy = copies[index / words[tensor]];
        const std::int64_t word = index % words[tensor];
        Word value = {};
        if (copy.from != zero_slot) {
            const auto* const row = reinterpret_cast<const Word*>(rows.from + copy.from * rows.from_stride);
            __builtin_memcpy(&value, row + word, sizeof(Word));
        }
        auto* const row = reinterpret_cast<Word*>(rows.to + copy.to * rows.to_stride);
        __builtin_memcpy(row + word, &value, sizeof(Word));
    }
};

} // namespace cellar::kernel
