// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/attention/detail/pass_tokens.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/scratch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace cellar::detail {

/// Calls visit(position, cell, count) for the runs that tokens of a sequence see: its sinks, then from the first
/// position that they see to the last.
template <class Visit>
void for_each_seen_run(const PassTokens& tokens, const SequenceTokens& s, Visit visit) {
    const VisibleSpan seen = tokens.seen(s.first, s.end());
    const std::int32_t end_of_sinks = std::min(seen.from, tokens.sinks);
    if (end_of_sinks > 0) s.runs->for_each(Position{0}, Position{end_of_sinks}, visit);
    if (seen.from < seen.to) s.runs->for_each(Position{seen.from}, Position{seen.to}, visit);
}

/// What the tokens of the open pass see, in memory of the pass. O(runs).
template <AttentionSource Source>
AttentionLists list_seen(Source& source, const PassTokens& tokens) {
    std::int64_t most = 0; // a run may be divided by the end of the sinks
    for (std::int32_t s = 0; s < tokens.count && !source.is_reserved(); ++s)
        most += tokens.sequences[s].runs->runs() + 1;
    struct Taken {
        AttentionLists::Sequence* sequences;
        VisibleRun* runs;
    };
    const Taken taken = take_arrays(source.memory().lists, [&](ScratchArrays& arrays) {
        return Taken{arrays.take<AttentionLists::Sequence>(tokens.count), arrays.take<VisibleRun>(most)};
    });
    std::int32_t runs = 0;
    for (std::int32_t s = 0; s < tokens.count; ++s) {
        AttentionLists::Sequence& listed = taken.sequences[s];
        listed = {tokens.sequences[s].first, tokens.sequences[s].count, runs, 0, 0};
        for_each_seen_run(tokens, tokens.sequences[s], [&](Position position, Cell cell, std::int32_t n) {
            taken.runs[runs++] = {position.value, cell, listed.cells};
            listed.cells += n;
        });
        listed.runs = runs - listed.first_run;
    }
    const auto size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
    return {{taken.sequences, size(tokens.count)},
            {tokens.ranges, size(tokens.tokens)},
            {taken.runs, size(runs)},
            tokens.sinks};
}

/// See `attend`. `work` was checked; its tree is not yet known. The first call of a pass lists what its tokens see.
template <AttentionSource Source, class Work>
void attend_on_device(Source& source, Work work) {
    if (work.shape.tokens == 0) return;
    PassTokens* tokens = kept_for<PassTokens>(source);
    if (tokens == nullptr) {
        struct Taken {
            PassTokens* kept;
            PassTokens tokens;
        };
        Taken taken = take_kept(source, [&](ScratchArrays& arrays) {
            return Taken{arrays.take<PassTokens>(1), PassTokens{work.shape.tokens, arrays}};
        });
        source.is_reserved() ? taken.tokens.see_nothing() : taken.tokens.find(source);
        tokens = std::construct_at(taken.kept, taken.tokens);
        source.backend().begin_attention(list_seen(source, *tokens));
        source.memory().planned_for = source.shown_by();
    }
    if (!source.is_reserved()) work.tree = tokens->tree(source);
    source.backend().attend(work);
}

} // namespace cellar::detail
