// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "pool/text_pool.hpp"
#include <cellar/serve/request_memory.hpp>

#include <cstdint>
#include <span>

namespace serve {

/// The texts of a pool, for `cellar::serve::Scheduler`.
class PoolMemory {
public:
    struct kept_type {}; ///< nothing: the tree has it

    /// `tree`: keep and attach prefixes.
    PoolMemory(llama::Texts& pool, bool tree) : pool_{&pool}, tree_{tree} {}

    cellar::Result<void> enter(cellar::serve::Admission admission, kept_type&) {
        if (!tree_) admission.known = {};
        return pool_->enter(admission);
    }
    cellar::Position next(cellar::Sequence s) const { return cellar::Position{pool_->length(s.value)}; }
    void keep(cellar::Sequence s, std::span<const std::int32_t> tokens, std::uint64_t) {
        if (tree_) pool_->keep(s.value, tokens);
    }
    kept_type put_back(cellar::Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt) {
        keep(s, tokens, salt);
        clear(s);
        return {};
    }
    void clear(cellar::Sequence s) { pool_->clear(s.value); }
    cellar::Result<void> remove(cellar::Sequence s, cellar::Position begin, cellar::Position end) {
        return pool_->remove(s.value, begin.value, end.value);
    }

private:
    llama::Texts* pool_;
    bool tree_;
};

} // namespace serve
