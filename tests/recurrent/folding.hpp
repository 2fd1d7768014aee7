// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "tokens.hpp"
#include <cellar/recurrent/recurrent_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// A recurrent model whose state is a hash of all tokens so far, in their order. Every wrong state has another hash: one
// that leaked, was lost, is too new or too old, or saw tokens in another order.

namespace recurrent_test {

using cellar::Position;
using cellar::Sequence;

struct Wide : cellar::StateTensor<2> {};
struct Small : cellar::StateTensor<1, cellar::half> {};

template <class Backend = cellar::HostBackend>
using Folding = cellar::RecurrentMemory<cellar::States<Wide, Small>, Backend>;

inline constexpr int layers = 2;
inline constexpr int rows = 3;
inline constexpr int columns = 2;
inline constexpr int small = 3;

inline cellar::StateShape shape() {
    return cellar::StateShape{layers, {{rows, columns}, {small}}};
}

/// Bytes of a slot: rows are padded to multiples of 16 bytes.
inline constexpr std::int64_t state_bytes = layers * (32 + 16);

using cellar_test::batch_of;
using cellar_test::text;
using cellar_test::Token;

inline int folded(int value, int word, int layer, int element, int modulus) {
    return (value * 31 + word * 7 + layer * 5 + element + 1) % modulus;
}
inline constexpr int wide_modulus = 65521; // float represents all smaller numbers exactly
inline constexpr int small_modulus = 2039; // and half these

template <class View>
void fold_wide(const View& state, int word, int layer) {
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
            state(r, c) =
                static_cast<float>(folded(static_cast<int>(state(r, c)), word, layer, r * columns + c, wide_modulus));
}

template <class View>
void fold_small(const View& state, int word, int layer) {
    for (int i = 0; i < small; ++i) {
        const int before = static_cast<int>(static_cast<float>(state(i)));
        state(i) = static_cast<cellar::half>(static_cast<float>(folded(before, word, layer, i, small_modulus)));
    }
}

/// Row i of a view [rows, extents...].
template <class T, int Rank>
cellar::StridedView<T, Rank - 1> row(const cellar::StridedView<T, Rank>& view, std::int64_t i) {
    cellar::StridedView<T, Rank - 1> one;
    one.pointer = view.pointer + i * view.stride(0);
    for (int r = 1; r < Rank; ++r) {
        one.extents[r - 1] = view.extent(r);
        one.strides[r - 1] = view.stride(r);
    }
    return one;
}

template <class T, int Rank>
void copy(const cellar::StridedView<T, Rank>& from, const cellar::StridedView<T, Rank>& to) {
    for (std::int64_t i = 0; i < from.extent(0); ++i) {
        if constexpr (Rank == 1) {
            to(i) = from(i);
        } else {
            copy(row(from, i), row(to, i));
        }
    }
}

/// The work of one layer on one micro-batch, by `get` and `put` or in place.
template <class Pass>
void fold_micro_batch(Pass& pass, const std::vector<Token>& tokens, int layer, const cellar::MicroBatch& micro_batch,
                      bool in_place) {
    const auto wide = in_place ? pass.template slots<Wide>(layer) : pass.template get<Wide>(layer, micro_batch);
    const auto few = in_place ? pass.template slots<Small>(layer) : pass.template get<Small>(layer, micro_batch);
    for (std::int32_t i = 0; i < micro_batch.sequences(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t target = in_place ? micro_batch.targets()[at] : i;
        if (in_place) copy(row(wide, micro_batch.sources()[at]), row(wide, target));
        if (in_place) copy(row(few, micro_batch.sources()[at]), row(few, target));
        for (const std::int32_t token : micro_batch.tokens(i)) {
            fold_wide(row(wide, target), tokens[static_cast<std::size_t>(token)].word, layer);
            fold_small(row(few, target), tokens[static_cast<std::size_t>(token)].word, layer);
        }
    }
    in_place ? pass.mark_written(layer, micro_batch) : pass.put(layer, micro_batch);
}

template <class Pass>
void fold(Pass& pass, const std::vector<Token>& tokens, bool in_place = false) {
    for (int layer = 0; layer < layers; ++layer)
        for (const cellar::MicroBatch& micro_batch : pass.micro_batches())
            fold_micro_batch(pass, tokens, layer, micro_batch, in_place);
}

/// Commits a pass. Returns false if it was refused.
template <class Memory>
bool feed(Memory& memory, const std::vector<Token>& tokens, bool in_place = false) {
    auto pass = memory.begin(batch_of(tokens));
    if (!pass) return false;
    fold(*pass, tokens, in_place);
    pass->commit();
    return true;
}

/// All elements of a state.
template <class Memory>
std::vector<int> numbers(const Memory& memory, cellar::StateHandle handle) {
    std::vector<int> found;
    for (int layer = 0; layer < layers; ++layer) {
        const auto wide = memory.template view<Wide>(layer, handle);
        const auto few = memory.template view<Small>(layer, handle);
        for (int r = 0; r < rows; ++r)
            for (int c = 0; c < columns; ++c) found.push_back(static_cast<int>(wide(r, c)));
        for (int i = 0; i < small; ++i) found.push_back(static_cast<int>(static_cast<float>(few(i))));
    }
    return found;
}

/// The elements of a state after these words.
inline std::vector<int> numbers_after(const std::vector<int>& words) {
    std::vector<int> found;
    for (int layer = 0; layer < layers; ++layer) {
        for (int i = 0; i < rows * columns + small; ++i) {
            const bool wide = i < rows * columns;
            int value = 0;
            for (const int word : words)
                value = folded(value, word, layer, wide ? i : i - rows * columns, wide ? wide_modulus : small_modulus);
            found.push_back(value);
        }
    }
    return found;
}

/// first_word, first_word + 1, ...
inline std::vector<int> words(int count, int first_word = 1) {
    std::vector<int> list;
    for (int i = 0; i < count; ++i) list.push_back(first_word + i);
    return list;
}

/// The handle of the state that s keeps at position p.
template <class Memory>
cellar::StateHandle handle_at(const Memory& memory, int s, int p) {
    for (const cellar::KeptState& kept : memory.kept(Sequence{s}))
        if (kept.next.value == p) return memory.state(Sequence{s}, kept.next);
    return {-1, -1};
}

/// True if the state that s keeps at position p is that after these words.
template <class Memory>
bool holds(const Memory& memory, int s, int p, const std::vector<int>& words) {
    return numbers(memory, handle_at(memory, s, p)) == numbers_after(words);
}

/// The positions at which s keeps states.
template <class Memory>
std::vector<int> kept(const Memory& memory, int s) {
    std::vector<int> positions;
    for (const cellar::KeptState& state : memory.kept(Sequence{s})) positions.push_back(state.next.value);
    return positions;
}

/// Everything that can be observed of a memory, the elements of all states included.
template <class Memory>
std::string portrait(const Memory& memory) {
    std::string all;
    const auto add = [&](auto number) { all += ' ' + std::to_string(number); };
    for (int s = 0; s < memory.sequences(); ++s) {
        all += "\nsequence";
        add(s);
        add(memory.next(Sequence{s}).value);
        for (const cellar::KeptState& state : memory.kept(Sequence{s})) {
            all += state.is_checkpoint ? "\n  checkpoint" : "\n  state";
            const cellar::StateHandle handle = memory.state(Sequence{s}, state.next);
            add(state.next.value);
            add(state.slot);
            add(handle.generation);
            all += ':';
            for (const int element : numbers(memory, handle)) add(element);
        }
    }
    const cellar::StateStatistics now = memory.statistics();
    all += "\nstatistics";
    add(now.slots);
    add(now.used);
    add(now.checkpoints);
    add(now.bytes);
    add(now.snapshots);
    add(now.offloaded);
    add(now.offloaded_bytes);
    return all;
}

/// Why `operation` was refused. Checks that it changes nothing.
template <class Memory, class Operation>
cellar::Refusal refusal_of(const Memory& memory, Operation operation) {
    const std::string before = portrait(memory);
    const auto answer = operation();
    REQUIRE_FALSE(answer);
    CHECK(portrait(memory) == before);
    return answer.error();
}

} // namespace recurrent_test
