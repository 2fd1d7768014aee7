// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../hybrid/toy.hpp"
#include <cellar/prefix/audit.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

// Prefix trees of memories whose tokens are numbers: see ../hybrid/toy.hpp.

namespace prefix_test {

using cellar::Position;
using cellar::PrefixMatch;
using cellar::PrefixTree;
using cellar::Reason;
using cellar::Sequence;

using List = std::vector<std::int32_t>;

inline List operator+(List a, const List& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
/// count numbers from `first` on.
inline List counted(int first, int count) {
    List list;
    for (int i = 0; i < count; ++i) list.push_back(first + i);
    return list;
}
inline List first(int count, const List& list) {
    return {list.begin(), list.begin() + count};
}

/// Commits the tokens of s behind those that it has, in batches of at most 8. `begin(batch)` opens each pass. Returns
/// false if one was refused.
template <class M, class Begin>
bool compute(M& memory, Begin begin, int s, const List& list) {
    for (std::size_t at = static_cast<std::size_t>(memory.next(Sequence{s}).value); at < list.size(); at += 8) {
        toy::Text text;
        for (std::size_t i = at; i < std::min(at + 8, list.size()); ++i)
            text.push_back({s, static_cast<int>(i), list[i]});
        auto pass = begin(toy::batch_of(text));
        if (!pass) return false;
        for (int layer = 0; layer < memory.layers(); ++layer) pass->visit(layer, toy::Work{text});
        pass->commit();
    }
    return true;
}
template <class M>
bool compute(M& memory, int s, const List& list) {
    return compute(
        memory, [&](const cellar::BatchBuilder& batch) { return memory.begin(batch); }, s, list);
}
template <class M>
bool compute(PrefixTree<M>& tree, int s, const List& list) {
    return compute(
        tree.memory(), [&](const cellar::BatchBuilder& batch) { return tree.begin(batch); }, s, list);
}

/// Puts rows where the pass stores any, also as that of a hybrid in a hybrid.
template <class Pass>
void put_rows(Pass& pass, int layer, const std::vector<float>& rows) {
    if constexpr (requires { pass.put(layer, rows, rows); }) {
        pass.put(layer, rows, rows);
    } else if constexpr (requires { pass.layers(); }) {
        pass.visit(layer, [&](auto& one, int own) { put_rows(one, own, rows); });
    }
}

/// Commits, in an empty sequence s, three tokens, four at position 3, and four behind them: eleven tokens at eight
/// positions.
template <class M>
void compute_image(M& memory, int s) {
    const auto commit = [&](const cellar::BatchBuilder& batch) {
        auto pass = memory.begin(batch).value();
        const std::vector<float> rows(static_cast<std::size_t>(batch.size()), 1.0F);
        for (int layer = 0; layer < memory.layers(); ++layer)
            pass.visit(layer, [&](auto& one, int own) { put_rows(one, own, rows); });
        pass.commit();
    };
    commit(cellar::BatchBuilder{Sequence{s}, Position{0}, 3}.add_at(Sequence{s}, Position{3}, 4));
    commit(cellar::BatchBuilder{Sequence{s}, Position{4}, 4});
}

/// What a sequence lacks of these tokens, or has of others; empty if it has them.
template <class M>
std::string lacks(M& memory, int s, const List& list) {
    const auto end = static_cast<std::int32_t>(list.size());
    if (memory.next(Sequence{s}) != Position{end}) return "ends at " + std::to_string(memory.next(Sequence{s}).value);
    if (!memory.can_resume(Sequence{s}, Position{end})) return "cannot resume";
    if constexpr (requires { memory.template member<toy::Full>(); }) {
        std::string wrong = lacks(memory.template member<toy::Full>(), s, list)
                            + lacks(memory.template member<toy::Sliding>(), s, list);
        if constexpr (std::is_same_v<M, toy::Memory>) wrong += lacks(memory.template member<toy::Recurrent>(), s, list);
        return wrong;
    } else if constexpr (requires { memory.kept(Sequence{s}); }) {
        if (end == 0) return "";
        const auto value = static_cast<int>(memory.template view<toy::Hash>(0, memory.state(Sequence{s}))(0));
        return value == toy::folded({list.begin(), list.end()}) ? "" : "the state is of other tokens";
    } else {
        std::string wrong;
        auto pass = memory.reserve(1);
        memory.visit_cells(Sequence{s}, [&](Position p, cellar::Cell cell, int count) {
            for (int i = 0; i < count; ++i)
                if (static_cast<std::int32_t>(pass.keys(0)(cell + i, 0, 0))
                    != list[static_cast<std::size_t>(p.value + i)])
                    wrong = "another token at " + std::to_string(p.value + i);
        });
        return wrong;
    }
}

/// s computes these tokens as a server would: what the tree has, is not computed again. Then they are inserted.
template <class M>
PrefixMatch serve(PrefixTree<M>& tree, int s, const List& list, std::uint64_t salt = 0) {
    const PrefixMatch match = tree.attach(Sequence{s}, list, salt).value();
    CHECK(lacks(tree.memory(), s, first(match.length, list)) == "");
    CHECK(compute(tree, s, list));
    CHECK(lacks(tree.memory(), s, list) == "");
    CHECK(tree.insert(Sequence{s}, list, salt));
    CHECK(audit(tree) == "");
    return match;
}
template <class M>
void leave(PrefixTree<M>& tree, int s) {
    CHECK(tree.memory().remove(Sequence{s}, Position{0}, cellar::to_end));
}

/// A memory that counts what is restored.
struct Counting : toy::Full {
    explicit Counting(toy::Full memory) : toy::Full{std::move(memory)} {}
    cellar::Result<void> restore(Sequence s, const cellar::CellSnapshot& snapshot, Position to) {
        ++restored;
        return toy::Full::restore(s, snapshot, to);
    }
    int restored = 0;
};

inline toy::Full full(std::int32_t cells, std::int32_t sequences = 4) {
    return toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = sequences, .cells = cells, .batch = 8}};
}
/// A token sees four, and two more than that are kept.
inline toy::Sliding sliding(std::int32_t cells = 100, std::int32_t retention = 6) {
    return toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1},
                        {.sequences = 4, .capacity = 100, .cells = cells, .batch = 8},
                        cellar::SlidingWindow<4>{{.retention = retention}}};
}
inline toy::Recurrent recurrent(std::int32_t snapshots, std::int32_t rollback = 0) {
    return toy::Recurrent{{1, {{1}}}, {.sequences = 4, .batch = 8, .rollback = rollback, .snapshots = snapshots}};
}
/// A hybrid whose snapshots can be divided while they have forgotten nothing.
using Attention = cellar::Hybrid<cellar::Repeat<cellar::Times<2, toy::Sliding>, toy::Full>, toy::Sliding, toy::Full>;
inline Attention attention(std::int32_t window_cells, std::int32_t retention, std::int32_t cells) {
    return Attention{6, sliding(window_cells, retention), full(cells)};
}
inline toy::Memory hybrid(std::int32_t snapshots, std::int32_t cells = 100, std::int32_t rollback = 0) {
    return toy::Memory{toy::layers, sliding(), full(cells), recurrent(snapshots, rollback)};
}

} // namespace prefix_test
