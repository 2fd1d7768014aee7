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

/// Copies one word of one row of one tensor. Words are independent: any order. The tensors are carried by value: the
/// list is short, and another one for every layer. Not more of them, because Kokkos passes kernels of 512 bytes and more
/// through constant memory, and waits before each for the one before.
template <class Word>
struct CopySlots {
    static constexpr int most_tensors = 8;

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
        const std::int64_t source = copy.from == zero_slot ? 0 : copy.from;
        const auto* const from = reinterpret_cast<const Word*>(rows.from + source * rows.from_stride);
        auto* const to = reinterpret_cast<Word*>(rows.to + copy.to * rows.to_stride);
        to[word] = copy.from == zero_slot ? Word{} : from[word];
    }
};

} // namespace cellar::kernel
