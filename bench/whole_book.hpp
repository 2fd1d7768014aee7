// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/plan.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/detail/cache_state.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/window/full_causal.hpp>

#include <cstdint>
#include <utility>

namespace cellar::bench {

/// The bookkeeping of a cache with full causal attention, without keys and values. Each operation is one call.
class WholeBook : public detail::CacheBook<FullCausal> {
public:
    explicit WholeBook(const CacheLimits& limits)
        : detail::CacheBook<FullCausal>{detail::book_size(limits, FullCausal{}), FullCausal{}}, limits_{limits} {}

    const CacheLimits& limits() const { return limits_; }

    Result<void> begin(const Batch& batch) {
        if (const Result<bool> prepared = prepare_open(batch); !prepared) return prepared.error();
        open(batch);
        return {};
    }
    void copy_prefix(Sequence from, Sequence to, Position end) {
        prepare_copy_prefix(from, to, end).value();
        finish_copy_prefix(from, to, end);
    }
    Result<Plan> remove(Sequence s, Position begin, Position end, detail::MovedKeys keys) {
        auto removal = prepare_remove(s, begin, end, keys, begin - end);
        if (!removal) return removal.error();
        finish_remove(*removal);
        return std::move(removal->plan);
    }
    Plan defragment() {
        const detail::Defragmentation defragmentation = table().prepare_defragment();
        table().finish_defragment(defragmentation);
        return defragmentation.plan();
    }

private:
    CacheLimits limits_;
};

inline const detail::CellTable& table_of(const WholeBook& book) {
    return book.table();
}
template <class Memory>
const detail::CellTable& table_of(const Memory& memory) {
    return MemoryAccess::state(memory).book.table();
}

} // namespace cellar::bench
