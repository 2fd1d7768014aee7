// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/layer_name.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace cellar::detail {

// What a memory or a pass may offer, and what holds if it does not.

/// False if `restore` would refuse this snapshot up to position `to` even for a sequence that has all tokens below it.
/// Without it, only the snapshot's end is accepted.
template <class M, class Snapshot>
bool can_restore(const M& m, const Snapshot& snapshot, Position to) {
    if constexpr (requires { m.can_restore(snapshot, to); }) {
        return m.can_restore(snapshot, to);
    } else {
        return to == snapshot.to();
    }
}

/// False if the destruction of this snapshot would free no cells of what refused: of the memory, or, in a hybrid, of
/// that member. Without it, true.
template <class M, class Snapshot>
bool frees_cells(const M& m, const Snapshot& snapshot, const Refusal& refusal) {
    if constexpr (requires { m.frees_cells(snapshot, refusal); }) {
        return m.frees_cells(snapshot, refusal);
    } else if constexpr (requires { m.frees_cells(snapshot); }) {
        return m.frees_cells(snapshot);
    } else {
        return true;
    }
}

/// True if the destruction of several snapshots, with each of which `for_each` calls its argument, would free cells; or
/// leave some to sequence s alone, if that is none of -1. Without it, false: snapshots are asked one by one.
template <class M, class ForEach>
bool frees_together(M& m, ForEach for_each, Sequence s, const Refusal& refusal) {
    if constexpr (requires { m.frees_together(for_each, s, refusal); }) {
        return m.frees_together(for_each, s, refusal);
    } else if constexpr (requires { m.frees_together(for_each, s); }) {
        return m.frees_together(for_each, s);
    } else {
        return false;
    }
}

/// A memory with cells says how many are free.
template <class M>
concept counts_cells = requires(M& m, const Batch& batch, Sequence s) {
    m.free_cells();
    m.cells_needed(batch);
    m.cells_freed_by(s);
};
/// It may also count the cells that become free when all snapshots go that can be evicted.
template <class M>
concept counts_evictable = counts_cells<M> && requires(const M& m) {
    m.evictable_cells();
};
/// Whether a prefix tree gives up this snapshot when it is asked to.
template <class M, class Snapshot>
void set_evictable(M& m, Snapshot& snapshot, bool evictable) noexcept {
    if constexpr (requires { m.set_evictable(snapshot, evictable); }) m.set_evictable(snapshot, evictable);
}

/// A memory whose cells can form pages.
template <class M>
concept has_pages = requires(M& m, Sequence s, std::int32_t page_size) {
    m.form_pages(s, page_size);
};

/// Bytes that this snapshot takes, in place or offloaded; or once it is offloaded there. Without it, 1.
template <class M, class Snapshot>
std::int64_t occupied_bytes(const M& m, const Snapshot& snapshot, std::optional<OffloadTo> once_it_is = {}) {
    if constexpr (requires { m.occupied_bytes(snapshot, once_it_is); }) {
        return m.occupied_bytes(snapshot, once_it_is);
    } else if constexpr (requires { m.occupied_bytes(snapshot); }) {
        return m.occupied_bytes(snapshot);
    } else {
        return 1;
    }
}

/// False for a memory that has only the bookkeeping of data, or a hybrid with such a member: it offloads nothing.
/// Without it, true.
template <class M>
inline constexpr bool holds_data = true;
template <class M>
    requires requires {
        M::holds_data;
    }
inline constexpr bool holds_data<M> = M::holds_data;

/// True for an encoder's memory, and for a hybrid.
template <class M>
inline constexpr bool may_have_inputs = requires(const M& m) {
    m.counts_tokens();
};

/// False for inputs of an encoder, which may lie after the tokens of their sequence; their `next` is 0. Without it,
/// true.
template <class M>
bool counts_tokens(const M& m) {
    if constexpr (may_have_inputs<M>) return m.counts_tokens();
    return true;
}

/// From this position of s on, what it has may differ from what a prefill of its tokens gives. Without it, `to_end`.
template <class M>
Position altered_from(const M& m, Sequence s) {
    if constexpr (requires { m.altered_from(s); }) return m.altered_from(s);
    return to_end;
}

/// Calls f for each member of a hybrid, for the memory of this rank if there is one on each, or for the memory itself.
template <class M, class F>
void for_each_member(const M& m, F f) {
    if constexpr (requires { m.for_each_member(f); }) {
        m.for_each_member(f);
    } else {
        f(m);
    }
}

/// True if s is empty: its next token has position 0, and it has no inputs of an encoder. So it is at first, and after
/// `remove` of all. A sequence whose window has forgotten all tokens is not empty.
template <class M>
bool is_empty(const M& m, Sequence s) {
    if (m.next(s).value != 0) return false;
    bool empty = true;
    for_each_member(m, [&]<class Member>(const Member& member) {
        if constexpr (requires { member.tokens(s); }) {
            empty = empty && member.tokens(s) == 0;
        } else if constexpr (!std::is_same_v<Member, M>) {
            empty = empty && is_empty(member, s); // a hybrid, too
        }
    });
    return empty;
}

/// Which layer of the model is visited, for the messages of cellar's own passes.
template <class Pass>
void set_name(Pass& pass, int member, int own, int model) {
    if constexpr (requires {
                      { pass.name() } -> std::same_as<LayerName&>;
                  })
        pass.name() = {member, own, model};
}

} // namespace cellar::detail
