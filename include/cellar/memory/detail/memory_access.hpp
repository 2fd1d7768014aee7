// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/fwd.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Memories of other authors name it as their friend, so its name, but nothing more, is public.
struct cellar::MemoryAccess {
    /// False if `restore` would refuse this snapshot up to position `to` even for a sequence that has all tokens below
    /// it. Optional; without it, only the snapshot's end is accepted.
    template <class M, class Snapshot>
    static bool can_restore(const M& m, const Snapshot& snapshot, Position to) {
        if constexpr (requires { m.can_restore(snapshot, to); }) {
            return m.can_restore(snapshot, to);
        } else {
            return to == snapshot.to();
        }
    }
    /// False if the destruction of this snapshot would free no cells of the memory, or of this member of a hybrid.
    /// Optional; without it, true.
    template <class M, class Snapshot>
    static bool frees_cells(const M& m, const Snapshot& snapshot, int member) {
        if constexpr (requires { m.frees_cells(snapshot, member); }) {
            return m.frees_cells(snapshot, member);
        } else if constexpr (requires { m.frees_cells(snapshot); }) {
            return m.frees_cells(snapshot);
        } else {
            return true;
        }
    }
    /// Bytes that this snapshot takes, in place or paged out. Optional; without it, 1.
    template <class M, class Snapshot>
    static std::int64_t occupied_bytes(const M& m, const Snapshot& snapshot) {
        if constexpr (requires { m.occupied_bytes(snapshot); }) {
            return m.occupied_bytes(snapshot);
        } else {
            return 1;
        }
    }
    /// False for inputs of an encoder, which may lie behind the tokens of their sequence; their `next` is 0. Optional;
    /// without it, true.
    template <class M>
    static bool counts_tokens(const M& m) {
        if constexpr (may_have_inputs<M>()) return m.counts_tokens();
        return true;
    }
    /// True for an encoder's memory, and for a hybrid.
    template <class M>
    static consteval bool may_have_inputs() {
        return requires(const M& m) {
            m.counts_tokens();
        };
    }
    /// For files: adds what a snapshot consists of, under names that begin with `prefix`.
    template <class M, class Snapshot, class... Options>
    static auto save(M& m, const Snapshot& snapshot, const std::string& prefix, detail::StoredSnapshot& stored,
                     Options... options) -> decltype(m.save(snapshot, prefix, stored, options...)) {
        return m.save(snapshot, prefix, stored, options...);
    }
    /// For transfers: adds what the snapshot of s up to position `to` will consist of, once s has got there.
    template <class M>
    static auto save_ahead(M& m, Sequence s, Position to, const std::string& prefix, detail::StoredSnapshot& stored)
        -> decltype(m.save_ahead(s, to, prefix, stored)) {
        return m.save_ahead(s, to, prefix, stored);
    }
    /// For files and transfers: makes a snapshot, paged out on the host unless an option says otherwise, and adds where
    /// its arrays go. `finish` returns it, before or after they are there.
    template <class M, class... Options>
    static auto prepare_load(M& m, detail::StoredSource& source, const std::string& prefix,
                             std::vector<detail::StoredArray>& arrays, Options... options)
        -> decltype(m.prepare_load(source, prefix, arrays, options...)) {
        return m.prepare_load(source, prefix, arrays, options...);
    }
    /// The same, with the arrays where `to` says; a memory without cells has them on the host. May refuse with `full`.
    template <class M>
    static auto prepare_load_to(detail::LoadTo to, M& m, detail::StoredSource& source, const std::string& prefix,
                                std::vector<detail::StoredArray>& arrays) {
        if constexpr (requires { m.prepare_load(source, prefix, arrays, to); }) {
            return m.prepare_load(source, prefix, arrays, to);
        } else {
            return m.prepare_load(source, prefix, arrays);
        }
    }
    template <class M, class Prepared>
    static auto finish(M& m, Prepared&& prepared) noexcept(noexcept(m.finish(std::forward<Prepared>(prepared))))
        -> decltype(m.finish(std::forward<Prepared>(prepared))) {
        return m.finish(std::forward<Prepared>(prepared));
    }
    /// For messages about the passes of cellar's own memories: the first layer that was not put, or -1.
    template <class Pass>
        requires requires(const Pass& pass) {
            pass.first_missing();
        }
    static int first_missing(const Pass& pass) { return pass.first_missing(); }
    /// For messages: which layer of the model is visited.
    template <class Pass>
    static void set_name(Pass& pass, int member, int own, int model) {
        if constexpr (requires { pass.name(); }) pass.name() = {member, own, model};
    }

    /// For the passes of cellar's own memories: a pass whose constructor is private.
    template <class Pass, class... Arguments>
    static Pass make(Arguments&&... arguments) {
        return Pass{std::forward<Arguments>(arguments)...};
    }

    /// For cellar's own memories: what a snapshot owns; a violation if it is of another memory.
    template <class Snapshot, class Table>
    static auto& kept_in(const Snapshot& snapshot, const Table& table, const char* operation) {
        return snapshot.kept_in(table, operation);
    }

    /// For several ranks: a hash of the bookkeeping: which positions are kept, and where. For a memory that is not one
    /// of cellar's own, a hash of `next` of its sequences. O(runs).
    template <class M>
    static std::uint64_t book_hash(const M& m) {
        detail::Digest digest;
        for_each_member(m, [&](const auto& one) {
            if constexpr (requires { one.state().book.hash(); }) {
                digest.add(one.state().book.hash());
            } else {
                for (std::int32_t s = 0; s < one.sequences(); ++s) digest.add(one.next(Sequence{s}));
            }
        });
        return digest.value();
    }

    /// Calls f for each member of a hybrid, or for the memory itself.
    template <class M, class F>
    static void for_each_member(const M& m, F f) {
        if constexpr (requires { m.for_each(f); }) {
            m.for_each(f);
        } else {
            f(m);
        }
    }

    /// For hybrids: a member of a snapshot, to change it.
    template <int I, class Snapshot>
    static auto& member(Snapshot& snapshot) {
        return snapshot.template member<I>();
    }

    /// For diagnostics of cellar's own memories: their bookkeeping and data.
    template <class M>
    static auto& state(M& m) {
        return m.state();
    }
};
