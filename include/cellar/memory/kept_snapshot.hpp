// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>

#include <cstdint>
#include <utility>

namespace cellar::detail {

/// What the snapshots of all memories have.
template <class TheKept>
class KeptSnapshot {
public:
    using Kept = TheKept;

    /// Where it ends: the position of the next token.
    Position to(Where where = Where::current()) const { return kept(where).to; }

    /// True after `offload`.
    bool is_offloaded(Where where = Where::current()) const { return kept(where).is_offloaded(); }

    /// Bytes outside the memory's cells or slots: 0 if it is in place.
    std::int64_t bytes(Where where = Where::current()) const {
        const Kept& owned = kept(where);
        return owned.is_offloaded() ? owned.data->bytes() : 0;
    }

    /// For cellar itself.
    explicit KeptSnapshot(KeptPointer<Kept> kept) : kept_{std::move(kept)} {}

protected:
    Kept& kept(Where where = Where::current()) const { return expect_kept(kept_, where); }

private:
    KeptPointer<Kept> kept_;
};

} // namespace cellar::detail
