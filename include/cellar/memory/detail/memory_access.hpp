// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/detail/optional_members.hpp>
#include <cellar/memory/fwd.hpp>

#include <cstdint>
#include <utility>

struct cellar::MemoryAccess {
    /// For several ranks: a hash of the bookkeeping: which positions are kept, and where, and which elements are
    /// rotated. For a memory that is not one of cellar's own, a hash of `next` of its sequences. O(runs).
    template <class M>
    static std::uint64_t book_hash(const M& m) {
        detail::Digest digest;
        detail::for_each_member(m, [&](const auto& one) {
            if constexpr (requires { one.state().book.hash(); }) {
                digest.add(one.state().book.hash());
                digest.add(static_cast<std::uint64_t>(rotation(one)));
            } else {
                for (std::int32_t s = 0; s < one.sequences(); ++s) digest.add(one.next(Sequence{s}));
            }
        });
        return digest.value();
    }

    /// Which elements of keys are rotated, and when; 0 if none are, or if the memory is not one of cellar's own.
    template <class M>
    static std::int64_t rotation(const M& m) {
        if constexpr (requires { m.state().rotation; }) {
            return m.state().rotation;
        } else {
            return 0;
        }
    }

    /// The first layer whose keys two memories rotate by different frequencies, if their shifts name these; -1: none.
    template <class A, class B>
    static int other_frequencies(const A& a, const B& b) {
        if constexpr (requires { a.state().shift.frequencies(0) != b.state().shift.frequencies(0); }) {
            for (int layer = 0; layer < a.layers(); ++layer)
                if (a.state().shift.frequencies(layer) != b.state().shift.frequencies(layer)) return layer;
        }
        return -1;
    }

    /// A violation in `operation` while a pass is open in this memory or in a member of it, if that is one of cellar's
    /// own.
    template <class M>
    static void expect_no_pass(const M& m, const char* operation) {
        if constexpr (requires { m.state().expect_no_pass(operation); }) {
            m.state().expect_no_pass(operation);
        } else if constexpr (requires { m.for_each_member([](const auto&) {}); }) {
            m.for_each_member([&](const auto& one) { expect_no_pass(one, operation); });
        }
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
