// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "weights.hpp"
#include <cellar/base/result.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace llama {

/// The memory as a forward pass needs it.
class LayerMemory {
public:
    virtual ~LayerMemory() = default;

    /// Writes the attention of each token to `out` [tokens, heads * head_dim]. Row i belongs to token i of the batch;
    /// its heads are adjacent. Queries and keys have no rotary positions yet, because only the memory knows them, and
    /// are overwritten.
    virtual void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) = 0;

    /// Replaces row i of `x` [tokens, width], the input of the layer's recurrence for token i, by its output.
    virtual void recur(int layer, const RecurrenceWeights& w, Matrix& x) = 0;
};

struct TextLimits {
    int context = 0;  ///< tokens that the memory holds
    int batch = 64;   ///< tokens of one forward pass at most
    int rollback = 0; ///< the newest tokens that can always be removed
};

/// How much of a cache or of recurrent states is used.
struct CacheUse {
    int layers = 0;
    std::int64_t cells_used = 0; ///< for recurrent states: slots
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
    /// Begins a pass over tokens at positions [first, first + tokens). The caller then calls `attend` or `recur` for
    /// every layer, then `commit`.
    virtual cellar::Result<void> begin(int first, int tokens) = 0;
    virtual void commit() = 0;

    /// Removes positions [begin, end). Later tokens move down. A model with recurrent layers refuses to remove tokens
    /// from the middle (`cannot_cut`), and to remove more of the newest tokens than the rollback (`cannot_rewind`).
    virtual cellar::Result<void> remove(int begin, int end) = 0;

    virtual const TextLimits& limits() const = 0;
    virtual MemoryUse use() const = 0;

    /// The largest error of storing a number, relative to it, or in a format of fewer bits to the largest one of its
    /// head. There, that of rounding queries comes to it.
    virtual double unit_roundoff() const = 0;
};

/// How keys and values are stored.
struct CacheFormat {
    std::string layout = "standard"; ///< or "permuted"
    std::string element = "float";   ///< or "half" or "bf16", or, in the layout "standard", one of `formats_in_units`
};

/// Formats of fewer bits, as "keys,values" or of both.
std::vector<std::string> formats_in_units();

/// A memory on the host in such a format. Throws if it does not fit the layout or the model's heads.
std::unique_ptr<TextMemory> make_memory_in_units(const Config& config, const TextLimits& limits,
                                                 const CacheFormat& format);

/// A memory on the host. Throws if the format has an unknown name.
std::unique_ptr<TextMemory> make_memory(const Config& config, const TextLimits& limits, const CacheFormat& format = {});

/// The same, but attention goes over views of keys and values with a mask, instead of `cellar::attend`.
std::unique_ptr<TextMemory> make_memory_over_views(const Config& config, const TextLimits& limits,
                                                   const CacheFormat& format = {});

} // namespace llama
