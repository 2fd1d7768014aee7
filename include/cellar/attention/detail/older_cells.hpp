// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/score_rule.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar::detail {

/// What the tokens of a pass see of `Older`, less what they see of `Newer`, which has the same tokens: `Newer` sees the
/// newest ones before a token, and its sinks.
template <AttentionSource Older, AttentionSource Newer>
class OlderCells : public Older {
public:
    /// A violation unless both passes have the same tokens, `Newer` sees no fewer sinks than `Older`, if any, and no
    /// position that `Older` does not see.
    OlderCells(const Older& older, const Newer& newer) : Older{older}, newer_{newer} {
        CELLAR_EXPECTS(older.tokens() == newer.tokens() && older.is_reserved() == newer.is_reserved(),
                       "attend_residual: the pass of the residual has ", newer.tokens(), " tokens, expected the ",
                       older.tokens(), " of the other pass");
        CELLAR_EXPECTS(newer.sinks() == 0 || newer.sinks() >= older.sinks(), "attend_residual: the residual has ",
                       newer.sinks(), " sinks, expected none, or at least the ", older.sinks(), " of the other memory");
        CELLAR_EXPECTS(newer.positions() == Positions::consecutive,
                       "attend_residual: the residual has Positions::any, expected consecutive ones, so that all that "
                       "its window shows is there");
        if (older.is_reserved()) return;
        CELLAR_EXPECTS(std::ranges::equal(older.parents(), newer.parents()),
                       "attend_residual: the tokens of the residual have other parents than those of the other pass");
        for (std::int32_t token = 0; token < older.tokens(); ++token) {
            CELLAR_EXPECTS(older.position(token) == newer.position(token)
                               && older.sequence(token) == newer.sequence(token),
                           "attend_residual: token ", token, " is at position ", newer.position(token).value,
                           " of sequence ", newer.sequence(token).value, " in the residual, expected position ",
                           older.position(token).value, " of sequence ", older.sequence(token).value);
            CELLAR_EXPECTS(older.visible(token).to == newer.visible(token).to, "attend_residual: token ", token,
                           " sees positions up to ", newer.visible(token).to, " in the residual, expected ",
                           older.visible(token).to, ": the passes have different groups");
            expect_within(older, newer, token);
        }
    }

    std::int32_t sinks() const { return newer_.sinks() == 0 ? Older::sinks() : 0; }
    VisibleRange visible(std::int32_t token) const {
        VisibleRange seen = Older::visible(token);
        seen.to = std::min(seen.to, newer_.visible(token).from);
        seen.from = std::min(std::max(seen.from, newer_.sinks()), seen.to);
        return seen;
    }

    const void* shown_by() const { return newer_.shown_by(); }

    /// For the reference, which takes cells from the mask of `Older`.
    bool leaves_out(std::int32_t token, Position position) const {
        return newer_.visible(token).sees(position.value, newer_.sinks());
    }

private:
    static void expect_within(const Older& older, const Newer& newer, std::int32_t token) {
        const std::int32_t from = older.visible(token).from;
        const std::int32_t own = newer.visible(token).from;
        if (from <= older.sinks()) return; // it sees everything
        CELLAR_EXPECTS(own >= from && newer.sinks() <= older.sinks(), "attend_residual: token ", token,
                       " sees positions from ", own, " on and ", newer.sinks(),
                       " sinks in the residual, expected no "
                       "more than from ",
                       from, " on and ", older.sinks(), " sinks, as in the other memory");
    }

    Newer newer_;
};

} // namespace cellar::detail
