// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/config.hpp"
#include "generate/memory.hpp"
#include "generate/model.hpp"
#include <cellar/base/result.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/prefix/prefix_limits.hpp>
#include <cellar/prefix/prefix_statistics.hpp>
#include <cellar/serve/request_memory.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace llama {

struct PoolLimits {
    int texts = 1;      ///< numbered 0 to texts - 1
    int context = 0;    ///< tokens of one text
    int cells = 0;      ///< tokens that the full layers hold, of all texts and of the tree. 0: enough for all texts
    int batch = 64;     ///< tokens of one forward pass at most
    int snapshots = 64; ///< recurrent states that the tree keeps at a time; also sizes the sliding layers and
                        ///< residuals, whose cells bound the number of prefixes
    cellar::PrefixLimits prefixes = {};
};

/// The next tokens of a text.
struct NewTokens {
    int text = 0;
    std::span<const int> tokens;
};

/// Cells of the layers that hold most: the full layers, if the model has any.
struct PoolUse {
    int cells = 0;
    int live = 0; ///< owned by texts
    int kept = 0; ///< owned by the tree alone

    int free() const { return cells - live - kept; }
};

/// The memory of many texts, with a tree of the prefixes that were computed before.
class Texts {
public:
    virtual ~Texts() = default;

    /// Begins a pass over tokens of several texts, in this order; each text once. The tree evicts prefixes if it must.
    /// The model then computes every layer, and the caller calls `commit`.
    virtual cellar::Result<void> begin(std::span<const NewTokens> batch) = 0;
    virtual void commit() = 0;
    /// Ends the pass instead. The memory is as if it had not begun.
    virtual void drop() = 0;

    /// Tokens of a text that the memory has.
    virtual int length(int text) const = 0;
    /// The memory forgets the text. The tree keeps what it has of it.
    virtual void clear(int text) = 0;
    /// Removes tokens [begin, end) of a text. Later ones move down, if the memory can move them; else it refuses.
    virtual cellar::Result<void> remove(int text, int begin, int end) = 0;

    /// How many of the tokens `attach` would find.
    virtual int match(std::span<const int> tokens) const = 0;
    /// A text without tokens gets the longest prefix of these that the tree has. Returns its length.
    virtual int attach(int text, std::span<const int> tokens) = 0;
    /// The same, if a scheduler's request has room: see `cellar::serve::RequestMemory`.
    virtual cellar::Result<void> enter(const cellar::serve::Admission& admission) = 0;
    /// The tree keeps what the memory has of these tokens, which are the first ones of the text.
    virtual void keep(int text, std::span<const int> tokens) = 0;

    /// Writes what the memory has of a text to a file. An error or a crash leaves the old file whole.
    virtual void save(const std::string& path, int text, const cellar::SaveOptions& options) = 0;
    /// Replaces a text by that of a file.
    virtual void load(const std::string& path, int text, const cellar::LoadOptions& options) = 0;

    virtual const PoolLimits& limits() const = 0;
    virtual PoolUse use() const = 0;
    virtual std::int64_t bytes() const = 0;
    virtual cellar::PrefixStatistics prefixes() const = 0;
    /// The cell maps of all caches.
    virtual std::string map(bool colour) const = 0;
    /// The first contradiction in the bookkeeping, or an empty string.
    virtual std::string audit() const = 0;
};

/// `Texts` of a model whose layers run on the processor. Keys, values and states of a token depend on the tokens before
/// it alone, not in one bit on the batch, the cells, or the tree. So a text goes on in the same way however its memory
/// came about, if the model multiplies `row_by_row`.
class TextPool : public Texts, public LayerMemory {};

/// A pool on the host. `element` is "float" or "half". Throws if it is neither.
std::unique_ptr<TextPool> make_pool(const Config& config, const PoolLimits& limits, const std::string& element);

/// Runs the tokens through the model and the pool. Returns a row of logits for the last token of each text, which are
/// valid until the next call; or null and the refusal.
const Matrix* run(Llama& model, TextPool& pool, std::span<const NewTokens> batch, cellar::Refusal& refusal);

} // namespace llama
