// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "tokens.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

// A model with three kinds of layers and layers without memory. Its tokens are numbers: caches hold the number, states
// a hash of all numbers so far. So a missing or an extra token in one member is detected.

namespace toy {

using cellar::Position;
using cellar::Sequence;

struct Hash : cellar::StateTensor<1> {};

using Sliding = cellar::Cache<cellar::PermutedV<float>, cellar::SlidingWindow<4>>;
using Full = cellar::Cache<cellar::StandardV<float>>;
using Recurrent = cellar::RecurrentMemory<cellar::States<Hash>>;

using Pattern = cellar::Repeat<cellar::Times<2, Sliding>, Full, cellar::NoMemory, Recurrent>;
using Memory = cellar::Hybrid<Pattern, Sliding, Full, Recurrent>;

inline constexpr int layers = 8; // S S F - R S S F: 4 sliding, 2 full, 1 recurrent

struct Limits {
    std::int32_t sequences = 3;
    std::int32_t batch = 8;
    std::int32_t sliding_retention = 8;
    std::int32_t full_capacity = 20;
    std::int32_t rollback = 2;
    std::int32_t checkpoints = 0;
    std::int32_t checkpoint_interval = 0;
    cellar::Unequal unequal = cellar::Unequal::split;
    cellar::Placement placement = cellar::Placement::blocks;
};

inline Memory memory(const Limits& l = {}) {
    return Memory{layers,
                  Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1},
                          {.sequences = l.sequences, .capacity = 1000, .batch = l.batch, .placement = l.placement},
                          cellar::SlidingWindow<4>{{.retention = l.sliding_retention}}},
                  Full{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                       {.sequences = l.sequences, .capacity = l.full_capacity, .batch = l.batch}},
                  Recurrent{{1, {{1}}},
                            {.sequences = l.sequences,
                             .batch = l.batch,
                             .rollback = l.rollback,
                             .checkpoints = l.checkpoints,
                             .checkpoint_interval = l.checkpoint_interval,
                             .unequal = l.unequal}}};
}

using cellar_test::batch_of;
using cellar_test::text;
using cellar_test::Text;
using cellar_test::Token;

/// Tokens at one position: in a cache, each is a run of its own.
inline Text group(int sequence, int position, int count) {
    Text tokens;
    for (int i = 0; i < count; ++i) tokens.push_back({sequence, position, 7 * position + i});
    return tokens;
}

inline int folded(int state, int word) {
    return (state * 31 + word * 7 + 1) % 65521;
}
inline int folded(const std::vector<int>& words) {
    int state = 0;
    for (const int word : words) state = folded(state, word);
    return state;
}

/// The work of one layer, for every kind of memory.
struct Work {
    const Text& tokens;

    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (requires { pass.micro_batches(); }) {
            for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
                const auto state = pass.template get<Hash>(layer, micro_batch);
                for (std::int32_t i = 0; i < micro_batch.sequences(); ++i)
                    for (const std::int32_t token : micro_batch.tokens(i))
                        state(i, 0) = static_cast<float>(
                            folded(static_cast<int>(state(i, 0)), tokens[static_cast<std::size_t>(token)].word));
                pass.put(layer, micro_batch);
            }
        } else if constexpr (!std::is_same_v<Pass, cellar::NoMemory>) {
            std::vector<float> rows;
            for (const Token& t : tokens) rows.push_back(static_cast<float>(t.word));
            pass.put(layer, rows, rows);
        }
    }
};

template <class Pass>
void fill(Pass& pass, const Text& tokens, int end = layers) {
    for (int layer = 0; layer < end; ++layer) pass.visit(layer, Work{tokens});
}

/// Commits a pass. Returns false if it was refused.
template <class M>
bool feed(M& memory, const Text& tokens, int end = layers) {
    auto pass = memory.begin(batch_of(tokens));
    if (!pass) return false;
    fill(*pass, tokens, end);
    pass->commit();
    return true;
}

/// The tokens of a sequence as "position:word@cell", and whether the layers differ.
template <class C>
std::string contents(C& cache, int s) {
    std::string all;
    auto pass = cache.reserve(1);
    cache.visit_cells(Sequence{s}, [&](Position p, cellar::Cell c, int n) {
        for (int i = 0; i < n; ++i) {
            const int word = static_cast<int>(pass.keys(0)(c + i, 0, 0));
            all += ' ' + std::to_string(p.value + i) + ':' + std::to_string(word) + '@' + std::to_string(c + i);
            for (int layer = 0; layer < cache.shape().layers; ++layer)
                if (static_cast<int>(pass.keys(layer)(c + i, 0, 0)) != word) all += " layers differ";
        }
    });
    return all;
}

inline std::string contents(Recurrent& memory, int s) {
    std::string all;
    for (const cellar::KeptState& state : memory.kept(Sequence{s})) {
        const cellar::StateHandle handle = memory.state(Sequence{s}, state.next);
        const auto value = memory.view<Hash>(0, handle)(0);
        all += ' ' + std::to_string(state.next.value) + ':' + std::to_string(static_cast<int>(value)) + '@'
               + std::to_string(state.slot) + '/' + std::to_string(handle.generation)
               + (state.is_checkpoint ? "c" : "");
    }
    return all;
}

template <class C>
std::string member_portrait(C& member) {
    std::string all;
    for (int s = 0; s < member.limits().sequences; ++s) {
        all += "\n  sequence " + std::to_string(s) + contents(member, s) + " resumes at";
        for (int p = 0; p < 40; ++p)
            if (member.can_resume(Sequence{s}, Position{p})) all += ' ' + std::to_string(p);
    }
    if constexpr (requires { member.cells(); }) {
        all += "\n  " + cellar::audit(member);
        all += "free " + std::to_string(member.statistics().free) + ", shared "
               + std::to_string(member.statistics().shared);
    } else {
        all += "\n  used " + std::to_string(member.statistics().used) + ", checkpoints "
               + std::to_string(member.statistics().checkpoints);
    }
    return all;
}

/// Everything that can be observed of a hybrid without a pass.
template <class M>
std::string portrait(M& memory) {
    return "sliding" + member_portrait(memory.template member<Sliding>()) + "\nfull"
           + member_portrait(memory.template member<Full>()) + "\nrecurrent"
           + member_portrait(memory.template member<Recurrent>());
}

} // namespace toy
