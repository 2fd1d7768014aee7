// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/detail/optional_members.hpp>
#include <cellar/memory/fwd.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct cellar::MemoryAccess {
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

    /// For several ranks: a hash of the bookkeeping: which positions are kept, and where. For a memory that is not one
    /// of cellar's own, a hash of `next` of its sequences. O(runs).
    template <class M>
    static std::uint64_t book_hash(const M& m) {
        detail::Digest digest;
        detail::for_each_member(m, [&](const auto& one) {
            if constexpr (requires { one.state().book.hash(); }) {
                digest.add(one.state().book.hash());
            } else {
                for (std::int32_t s = 0; s < one.sequences(); ++s) digest.add(one.next(Sequence{s}));
            }
        });
        return digest.value();
    }

    /// For hybrids: a snapshot, and a member of one, to change it.
    template <class Snapshot, class... Members>
    static Snapshot make(Members&&... members) {
        return Snapshot{std::forward<Members>(members)...};
    }
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
