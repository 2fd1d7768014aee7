// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "model.hpp"
#include <cellar/base/result.hpp>

#include <cstdint>

namespace llama {

/// One of the memories behind a text, in numbers. Of recurrent states, a cell is a slot for one.
struct CacheUse {
    int layers = 0;
    std::int64_t cells_used = 0;
    std::int64_t cells = 0;
    std::int64_t bytes = 0;
};

struct MemoryUse {
    CacheUse sliding;
    CacheUse full;
    CacheUse recurrent;
    std::int64_t evicted = 0; ///< tokens that left the sliding window
};

/// The memory of one growing text. A refusal leaves it as it was.
class TextMemory : public LayerMemory {
public:
    /// Tokens at positions [first, first + tokens) come next; then `attend` for every layer, then
    /// `commit`.
    virtual cellar::Result<void> begin(int first, int tokens) = 0;
    virtual void commit() = 0;

    /// Forgets positions [begin, end); later tokens move up. Refuses with `cannot_cut` and `cannot_rewind` what
    /// recurrent layers do not allow.
    virtual cellar::Result<void> remove(int begin, int end) = 0;

    virtual MemoryUse use() const = 0;

    /// The largest relative error of storing a number in the memory's element type.
    virtual double unit_roundoff() const = 0;
};

} // namespace llama
