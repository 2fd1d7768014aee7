// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/prefix/prefix_tree.hpp>
#include <cellar/serve/request_memory.hpp>

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>

namespace cellar::serve {

/// A memory with a prefix tree, for requests that begin with the same tokens. The tree also keeps what requests that
/// are put back have computed, and gives prefixes up when cells are needed. It must outlive this, and must not be
/// moved.
template <PrefixTreeMemory M>
class TreeMemory {
public:
    /// What a request keeps for itself: the tree has it all.
    struct Nothing {};
    using kept_type = Nothing;

    explicit TreeMemory(PrefixTree<M>& tree) : tree_{&tree} {}

    Result<void> enter(const Admission& a, kept_type&) {
        const Sequence s = a.sequence;
        const std::int32_t tokens = a.room + a.spare;
        // Asked before anything is brought back into the memory, or given up there.
        const Result<void> fits = promise(s, tokens - tree_->match(a.known, a.salt).length);
        if (!fits && !may_make_room(fits.error())) return fits;
        try {
            promise(s, 0).value();
            tree_->attach(s, a.known, a.salt).value();
            const auto set_aside = [&] { return promise(s, tokens - next(s).value); };
            Result<void> entered = set_aside();
            if (!entered && may_make_room(entered.error())) entered = with_room(set_aside);
            if (entered) entered = promise(s, a.promised ? a.room - next(s).value : 0);
            if (!entered) clear(s);
            return entered;
        } catch (...) {
            clear(s);
            throw;
        }
    }

    std::int32_t sequences() const { return memory().sequences(); }
    std::int32_t batch() const { return detail::largest_batch(memory()); }
    std::int64_t room() const { return detail::room_of(memory()); }

    Position next(Sequence s) const { return memory().next(s); }

    auto begin(const Batch& batch) { return tree_->begin(batch); }

    void keep(Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt) {
        try {
            static_cast<void>(tree_->insert(s, tokens, salt).has_value());
        } catch (const std::bad_alloc&) {}
    }

    kept_type put_back(Sequence s, std::span<const std::int32_t> tokens, std::uint64_t salt) {
        keep(s, tokens, salt);
        clear(s);
        return {};
    }

    void clear(Sequence s) { memory().remove(s, Position{0}, to_end).value(); }

    Result<void> remove(Sequence s, Position begin, Position end) {
        return with_room([&] { return memory().remove(s, begin, end); });
    }

private:
    M& memory() const { return tree_->memory(); }
    Result<void> promise(Sequence s, std::int32_t n) { return detail::promise_any(memory(), s, n); }

    /// False if the prefixes own fewer cells than are lacking, in every member of a hybrid. Then the tree would give
    /// them up in vain.
    bool may_make_room(const Refusal& refusal) const {
        Cell most = -1;
        detail::for_each_member(memory(), [&](const auto& member) {
            if constexpr (requires { member.evictable_cells(); }) most = std::max(most, member.evictable_cells());
        });
        return most < 0 || refusal.needed - refusal.available <= most;
    }

    template <class Operation>
    Result<void> with_room(Operation operation) {
        while (true) {
            const Result<void> done = operation();
            if (done || !tree_->make_room(done.error())) return done;
        }
    }

    PrefixTree<M>* tree_;
};

} // namespace cellar::serve
