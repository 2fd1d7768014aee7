// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function template, written against the concept Memory, uses every operation of every kind of memory. It returns
// every refusal.
#include "tokens.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace test_all_memories {

using namespace cellar;
using cellar_test::text;

namespace {

struct Sum : StateTensor<1> {};

using Caches = Cache<PermutedV<half>, SlidingWindow<8>, RopeShift<>>;
using Fixed = Cache<StandardV<float>>;
using Recurrent = RecurrentMemory<States<Sum>>;
using Encoder = EncoderMemory<>;
using Together = Hybrid<Repeat<Caches, Recurrent>, Caches, Recurrent>;

template <class... Memories>
inline constexpr bool name_their_pass = (std::is_same_v<typename Memories::pass_type, PassOf<Memories>> && ...);
static_assert(name_their_pass<Caches, Fixed, Recurrent, Encoder, Together>);

Caches caches_of(int layers) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 2},
            {.sequences = 2, .cells = 12, .batch = 8},
            SlidingWindow<8>{},
            RopeShift<>{rope_frequencies(2)}};
}
Caches caches() {
    return caches_of(2);
}
Fixed fixed() {
    return {{.layers = 2, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .cells = 12, .batch = 8}};
}
Recurrent recurrent_of(int layers) {
    return {StateShape{layers, {{3}}}, {.sequences = 2, .batch = 8, .rollback = 2}};
}
Recurrent recurrent() {
    return recurrent_of(2);
}
Encoder encoder() {
    return {{.layers = 2, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .capacity = 12, .batch = 8}};
}
Together together() {
    return Together{2, caches_of(1), recurrent_of(1)};
}

/// The work of one layer, for every kind of memory.
struct Work {
    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (requires { pass.micro_batches(); }) {
            for (const MicroBatch& micro_batch : pass.micro_batches()) {
                static_cast<void>(pass.template get<Sum>(layer, micro_batch));
                pass.put(layer, micro_batch);
            }
        } else if constexpr (requires { pass.cells(); }) {
            const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()) * 2);
            pass.put(layer, rows, rows);
            static_cast<void>(pass.get(layer));
        } else {
            static_cast<void>(pass.get(layer));
        }
    }
};

template <Memory M>
Result<void> feed(M& memory, const cellar_test::Text& tokens) {
    Result<PassOf<M>> pass = memory.begin(cellar_test::batch_of(tokens));
    if (!pass) return pass.error();
    for (int layer = 0; layer < memory.layers(); ++layer) pass->visit(layer, Work{});
    pass->commit();
    return {};
}

/// Uses every operation once. Returns the bytes of the memory.
template <Memory M>
Result<std::int64_t> use(M& memory) {
    REQUIRE(memory.sequences() == 2);
    memory.reserve(4).drop();
    if (Result<void> fed = feed(memory, text(0, 0, 5)); !fed) return fed.error();
    if (Result<void> copied = memory.copy_prefix(Sequence{0}, Sequence{1}, Position{4}); !copied) return copied.error();
    if (Result<void> fed = feed(memory, text(1, 4, 2) + text(0, 5, 1)); !fed) return fed.error();
    const Position from = memory.resumable_prefix(Sequence{1}, Position{5});
    REQUIRE(memory.can_resume(Sequence{1}, from));
    if (Result<void> removed = memory.remove(Sequence{1}, from, to_end); !removed) return removed.error();
    memory.fence();
    return memory.bytes();
}

// Operations that some memories refuse, in the same generic code.
template <Memory M>
Result<void> too_long(M& memory) {
    return feed(memory, text(0, 0, 9));
}
template <Memory M>
Result<void> cut(M& memory) {
    if (Result<void> fed = feed(memory, text(0, 0, 6)); !fed) return fed.error();
    return memory.remove(Sequence{0}, Position{1}, Position{2});
}
template <Memory M>
Result<void> overfill(M& memory) {
    if (Result<void> fed = feed(memory, text(0, 0, 8)); !fed) return fed.error();
    return feed(memory, text(1, 0, 8));
}
template <Memory M>
Result<void> rewind(M& memory) {
    if (Result<void> fed = feed(memory, text(0, 0, 6)); !fed) return fed.error();
    return memory.copy_prefix(Sequence{0}, Sequence{1}, Position{2});
}

template <Memory M>
std::vector<Refusal> refusals(M (*make)()) {
    std::vector<Refusal> all;
    for (const auto operation : {too_long<M>, cut<M>, overfill<M>, rewind<M>}) {
        M memory = make();
        const Result<void> result = operation(memory);
        if (!result) all.push_back(result.error());
    }
    return all;
}

template <class M>
concept answers_alike = requires(M& m, const Batch& batch, Sequence s, Position p) {
    { m.begin(batch).error() } -> std::same_as<Refusal>;
    { m.copy_prefix(s, s, Position{1}).error() } -> std::same_as<Refusal>;
    { m.remove(s, p, p).error() } -> std::same_as<Refusal>;
};
static_assert(answers_alike<Caches> && answers_alike<Fixed>);
static_assert(answers_alike<Recurrent> && answers_alike<Encoder> && answers_alike<Together>);

} // namespace

TEST_CASE("one function runs on every kind of memory") {
    Caches a = caches();
    Fixed b = fixed();
    Recurrent c = recurrent();
    Encoder d = encoder();
    Together e = together();
    CHECK(use(a).value() == a.bytes());
    CHECK(use(b).value() == b.bytes());
    // A state at position 4 is within the rollback of a sequence of length 5.
    CHECK(use(c).value() == c.bytes());
    CHECK(use(d).value() == d.bytes());
    CHECK(use(e).value() == e.bytes());
}

TEST_CASE("every refusal has the same type, so generic code can return it") {
    using enum Reason;
    CHECK(refusals(caches) == std::vector<Refusal>{{batch_too_long}, {full}});
    CHECK(refusals(fixed) == std::vector<Refusal>{{batch_too_long}, {cannot_shift}, {full}});
    CHECK(refusals(recurrent) == std::vector<Refusal>{{batch_too_long}, {cannot_cut}, {cannot_rewind}});
    CHECK(refusals(encoder) == std::vector<Refusal>{{batch_too_long}});
    CHECK(refusals(together)
          == std::vector<Refusal>{{batch_too_long, 0}, {cannot_cut, 1}, {full, 0}, {cannot_rewind, 1}});
}

} // namespace test_all_memories
