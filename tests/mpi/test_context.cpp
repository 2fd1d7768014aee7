// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random histories of contexts that are divided between ranks, against one cache that has them whole.
#include "context.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <optional>

namespace test_context {

using namespace context_test;

namespace {

template <class Layout, class Shift, class Window>
void run_history(const Window& window, Shift shift, unsigned seed, int steps, std::int32_t block = 64) {
    Pair<Cache<Layout, Window, Shift, HostBackend>> pair{
        {.sequences = 3, .capacity = 700, .cells = 5 * 704, .batch = 150}, window, shift, block};
    std::mt19937 random{seed};
    const auto draw = [&](int from, int to) { return std::uniform_int_distribution{from, to}(random); };
    const Floats sinks = random_floats(random, 6, 2);
    int refused = 0;
    int closed = 0;
    int restored = 0;
    std::vector<std::pair<mpi::ContextSnapshot, CellSnapshot>> snapshots;
    for (int step = 0; step < steps; ++step) {
        const int kind = draw(0, 9);
        const Sequence s{draw(0, 2)};
        const Position end = pair.single.next(s);
        if (kind < 7) {
            BatchBuilder tokens;
            std::vector<Position> next;
            for (std::int32_t i = 0; i < 3; ++i) next.push_back(pair.single.next(Sequence{i}));
            for (int parts = draw(1, 3); parts > 0; --parts) {
                const Sequence t{draw(0, 2)};
                const int count = draw(0, 1) == 0 ? 1 : draw(1, 49);
                Position& first = next[static_cast<std::size_t>(t.value)];
                const Position begin = first + (draw(0, 19) == 0 ? 1 : 0); // 1: not next
                draw(0, 5) == 0 ? tokens.add_group(t, begin, count) : tokens.add(t, begin, count);
                first = first + count;
            }
            const bool commits = draw(0, 5) != 0;
            if (!pair.run(tokens, commits,
                          {.sinks = step % 3 == 0 ? std::span<const float>{sinks} : std::span<const float>{}}))
                ++refused;
        } else if (kind == 7) {
            const Sequence to{draw(0, 2)};
            const int length = draw(0, end.value + 3);
            const auto found = pair.context.copy_prefix(s, to, Position{length});
            const auto expected = pair.single.copy_prefix(s, to, Position{length});
            REQUIRE(found.has_value() == expected.has_value());
            if (!found) CHECK(found.error() == expected.error().reason);
            refused += found ? 0 : 1;
        } else if (kind == 8 && draw(0, 1) == 0) {
            if (snapshots.size() == 2) snapshots.erase(snapshots.begin());
            auto found = pair.context.snapshot(s);
            auto expected = pair.single.snapshot(s);
            REQUIRE(found.has_value() == expected.has_value());
            if (found) snapshots.emplace_back(*std::move(found), *std::move(expected));
            if (!found) CHECK(found.error() == expected.error().reason);
        } else if (kind == 9 && draw(0, 1) == 0 && !snapshots.empty()) {
            const auto& [found, expected] = snapshots[static_cast<std::size_t>(draw(0, 1)) % snapshots.size()];
            CHECK(found.to() == expected.to());
            REQUIRE(pair.context.restore(s, found).has_value());
            REQUIRE(pair.single.restore(s, expected).has_value());
            restored += found.to() != end ? 1 : 0;
        } else {
            const Position begin{draw(0, end.value)};
            const Position behind = kind == 8 ? to_end : begin + draw(0, 90);
            const auto found = pair.context.remove(s, begin, behind);
            const auto expected = pair.single.remove(s, begin, behind);
            REQUIRE(found.has_value() == expected.has_value());
            if (!found) CHECK(found.error() == expected.error().reason);
            refused += found ? 0 : 1;
            closed += found && behind < end ? 1 : 0;
        }
        pair.compare();
        for (std::int32_t i = 0; i < 3; ++i) // a sequence that cannot go on begins anew
            if (const Position p = pair.single.next(Sequence{i});
                !pair.single.can_resume(Sequence{i}, p) || p.value > 550) {
                REQUIRE(pair.context.remove(Sequence{i}, Position{0}, to_end).has_value());
                REQUIRE(pair.single.remove(Sequence{i}, Position{0}, to_end).has_value());
            }
    }
    CHECK(pair.attended > 500);
    CHECK(refused > 0);
    CHECK(restored > 0);
    CHECK((closed > 0) == Shift::possible);
}

RopeShift<Neox> rope() {
    return RopeShift<Neox>{rope_frequencies(4, 1000.0)};
}

} // namespace

TEST_CASE("contexts over ranks equal one cache: float, rotated keys") {
    run_history<StandardV<float>>(FullCausal{}, rope(), 1, 120);
}

TEST_CASE("contexts over ranks equal one cache: half in blocks, a window with sinks, rotated keys") {
    run_history<Blocked<half, 16>>(SlidingWindow<>{100, {.retention = 130, .sinks = 3}}, rope(), 2, 120);
}

TEST_CASE("contexts over ranks equal one cache: half, chunks, keys without positions") {
    run_history<StandardV<half>>(ChunkedAttention<>{90}, UnrotatedShift{}, 3, 100);
}

TEST_CASE("contexts over ranks equal one cache: keys that are rotated on read") {
    run_history<StandardV<half>>(FullCausal{}, RotateOnRead<Neox>{rope()}, 4, 120);
}

TEST_CASE("contexts over ranks equal one cache: keys that are rotated back by any number") {
    Pair<Cache<StandardV<float>, FullCausal, RopeShift<Neox>, HostBackend>> pair{
        {.sequences = 1, .capacity = 512, .batch = 150}, {}, rope()};
    REQUIRE(pair.run(BatchBuilder{Sequence{0}, Position{0}, 150}, true));
    REQUIRE(pair.run(BatchBuilder{Sequence{0}, Position{150}, 150}, true));
    for (const int by : {3, 0}) {
        REQUIRE(pair.context.remove(Sequence{0}, Position{2}, Position{4}, RotateBy{by}).has_value());
        REQUIRE(pair.single.remove(Sequence{0}, Position{2}, Position{4}, RotateBy{by}).has_value());
        pair.compare();
        REQUIRE(pair.run(BatchBuilder{Sequence{0}, pair.single.next(Sequence{0})}, true));
    }
    const Position end = pair.single.next(Sequence{0});
    auto pass = pair.context.begin(BatchBuilder{Sequence{0}, end}).value();
    const Floats keys(pass.stored_indices().size() * pair.heads.key_row());
    pass.put(0, keys, Floats(pass.stored_indices().size() * pair.heads.value_row()));
    const auto found = ranks::keys_of(pair.context.cache(), pass.local(), 0, Sequence{0});
    pass.drop();
    const auto expected = ranks::keys_of(pair.single, pair.single.reserve(1), 0, Sequence{0});
    REQUIRE(expected.size() == 298);
    int compared = 0;
    double largest = 0;
    for (const auto& [position, key] : found) {
        if (position == end.value) continue; // of the pass
        largest = std::max(largest, difference(expected.at(position), key));
        ++compared;
    }
    CHECK(largest < 1e-5);
    CHECK(compared == pair.context.cache().tokens(Sequence{0}));
    CHECK(compared > 40);
}

TEST_CASE("contexts over ranks equal one cache: a narrow window, no shift, larger blocks") {
    run_history<StandardV<float>>(SlidingWindow<>{5, {.sinks = 1}}, DisabledShift{}, 4, 100, 128);
}

} // namespace test_context
