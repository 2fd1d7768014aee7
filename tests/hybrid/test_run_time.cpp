// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A hybrid with a pattern known at run time, compared with the same hybrid with the pattern in its type.
#include "format/heads.hpp"
#include "toy.hpp"
#include "violations.hpp"
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/int8.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <regex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_run_time {

using namespace toy;
using cellar::LayerPlace;
using cellar::no_memory;
using cellar::Reason;
using cellar::Refusal;

namespace {

// [type]
using AtRunTime = cellar::Hybrid<cellar::RunTimePattern, Sliding, Full, Recurrent>;
// [/type]
static_assert(cellar::TwoPhaseMemory<AtRunTime>);

// Layers without memory are counted across the repetitions of a pattern.
static_assert(Memory::place(3) == LayerPlace{.member = no_memory, .layer = 0});
static_assert(Memory::place(8) == LayerPlace{.member = no_memory, .layer = 1});

Sliding sliding(int layers) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 1},
            {.sequences = 3, .capacity = 1000, .batch = 8},
            cellar::SlidingWindow<4>{{.retention = 8}}};
}
Full full(int layers, int capacity = 20) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 1}, {.sequences = 3, .capacity = capacity, .batch = 8}};
}
Recurrent recurrent(int layers) {
    return {cellar::StateShape{layers, {{1}}}, {.sequences = 3, .batch = 8, .rollback = 2}};
}

AtRunTime like_toy() {
    return AtRunTime{{0, 0, 1, no_memory, 2, 0, 0, 1}, sliding(4), full(2), recurrent(1)};
}

/// The rows of one head for each token, encoded and decoded.
template <cellar::StorageFormat F>
std::vector<float> rounded(const std::vector<float>& rows) {
    std::vector<float> found;
    for (std::size_t i = 0; i < rows.size(); i += 64) {
        const std::vector<float> head = cellar_test::StoredHead<F>{std::span{rows}.subspan(i, 64)}.decoded();
        found.insert(found.end(), head.begin(), head.end());
    }
    return found;
}

/// Each layer reads what the formats of its cache make of what was put.
template <class... Members>
void check_formats(const std::vector<int>& member_of) {
    constexpr int tokens = 5;
    const auto make = [&]<class M>(std::optional<M>*, int member) -> std::optional<M> {
        const auto layers = static_cast<int>(std::count(member_of.begin(), member_of.end(), member));
        if (layers == 0) return std::nullopt;
        return M{{.layers = layers, .kv_heads = 1, .head_dim = 64}, {.sequences = 1, .capacity = 16, .batch = 8}};
    };
    auto memory = [&]<std::size_t... I>(std::index_sequence<I...>) {
        return cellar::Hybrid<cellar::RunTimePattern, Members...>{
            member_of, make(static_cast<std::optional<Members>*>(nullptr), static_cast<int>(I))...};
    }
    (std::index_sequence_for<Members...>{});
    auto pass = memory.begin(cellar::Sequence{0}, tokens).value();
    std::mt19937 random{static_cast<unsigned>(member_of.size())};
    std::normal_distribution<float> normal;
    const auto rows = [&] {
        std::vector<float> found(tokens * 64);
        for (float& x : found) x = normal(random);
        return found;
    };
    const auto view = [](std::vector<float>& some) { return cellar::contiguous_view(some.data(), tokens, 1, 64); };
    for (int layer = 0; layer < memory.layers(); ++layer) {
        CAPTURE(layer);
        const std::vector<float> k = rows();
        const std::vector<float> v = rows();
        int compared = 0;
        pass.visit(layer, [&]<class Own>(Own& own, int i) {
            if constexpr (requires { own.put(i, k, v); }) {
                std::vector<float> keys(k.size());
                std::vector<float> values(v.size());
                own.put(i, k, v);
                own.gather(i, own.cells(), view(keys), view(values));
                const auto compare = [&]<class M>(std::optional<M>*) {
                    if constexpr (std::is_same_v<Own, cellar::PassOf<M>>) {
                        ++compared;
                        CHECK(keys == rounded<typename M::layout_type::key_format>(k));
                        CHECK(values == rounded<typename M::layout_type::value_format>(v));
                    }
                };
                (compare(static_cast<std::optional<Members>*>(nullptr)), ...);
            }
        });
        CHECK(compared == 1);
    }
    pass.commit();
}

} // namespace

TEST_CASE("layers and members that a pattern does not have are violations") {
    CHECK(Memory::layers_of(no_memory, 10) == 2);
    CHECK(violation_of([] { (void)Memory::layers_of(3, 10); }) == "layers_of: member 3, expected 0 to 2 or no_memory");
    CHECK(violation_of([] { (void)Memory::layers_of(-2, 10); })
          == "layers_of: member -2, expected 0 to 2 or no_memory");
    CHECK(violation_of([] { (void)Memory::layers_of(0, -1); }) == "layers_of: -1 layers, expected 0 or more");
    using Two = cellar::Hybrid<cellar::LayerList<Full, cellar::NoMemory>, Full>;
    CHECK(Two::place(1) == LayerPlace{.member = no_memory, .layer = 0});
    CHECK(violation_of([] { (void)Two::place(2); }) == "place: layer 2, expected 0 to 1, those of the pattern");
}

TEST_CASE("a run-time pattern finds the same members as a pattern in the type") {
    Memory expected = memory();
    AtRunTime found = like_toy();
    for (int layer = 0; layer < layers; ++layer) CHECK(found.place(layer) == Memory::place(layer));
    CHECK(found.place(3) == LayerPlace{.member = no_memory, .layer = 0});
    const auto both = [&](const Text& tokens) {
        const bool fed = feed(expected, tokens);
        CHECK(feed(found, tokens) == fed);
        CHECK(portrait(found) == portrait(expected));
    };
    both(text(0, 0, 6));
    REQUIRE(expected.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{6}));
    REQUIRE(found.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{6}));
    both(text(1, 6, 2) + text(0, 6, 3));
    CHECK(found.resumable_prefix(cellar::Sequence{1}, Position{7})
          == expected.resumable_prefix(cellar::Sequence{1}, Position{7}));
    CHECK(found.can_resume(cellar::Sequence{1}, Position{5}) == expected.can_resume(cellar::Sequence{1}, Position{5}));
    REQUIRE(expected.remove(cellar::Sequence{1}, Position{7}, cellar::to_end));
    REQUIRE(found.remove(cellar::Sequence{1}, Position{7}, cellar::to_end));
    CHECK(found.remove(cellar::Sequence{0}, Position{1}, Position{2}).error()
          == expected.remove(cellar::Sequence{0}, Position{1}, Position{2}).error());
    both(text(2, 0, 8));
    both(text(2, 8, 8));
    both(text(2, 16, 8)); // refused: the full cache has no room
    CHECK(found.bytes() == expected.bytes());
    auto moved = std::move(found);
    auto pass = moved.begin(batch_of(text(1, 7, 1)));
    REQUIRE(pass);
    AtRunTime again = std::move(moved); // the pass stays valid
    fill(*pass, text(1, 7, 1));
    pass->commit();
    CHECK(again.member<Full>().tokens(cellar::Sequence{1}) == 8);
}

TEST_CASE("members without layers may be left out") {
    // [list]
    AtRunTime memory{{1, no_memory, 1}, std::nullopt, full(2, 5), std::nullopt}; // layer 1 has no memory
    // [/list]
    CHECK(memory.layers() == 3);
    CHECK(memory.sequences() == 3);
    REQUIRE(feed(memory, text(0, 0, 8), 3));
    CHECK(memory.can_resume(cellar::Sequence{0}, Position{3}));
    CHECK(memory.resumable_prefix(cellar::Sequence{0}, Position{3}) == Position{3});
    REQUIRE(memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{2}));
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{6}, cellar::to_end));
    CHECK(memory.member<Full>().tokens(cellar::Sequence{0}) == 6);
    memory.defragment();
    memory.fence();
    memory.reserve(3).drop();
    CHECK(memory.bytes() == memory.member<Full>().bytes());
    CHECK(memory.begin(batch_of(text(2, 0, 8) + text(1, 2, 1))).error() == Refusal{Reason::batch_too_long, 1});
    CHECK(violation_of([&] { memory.member<Sliding>(); })
          == "member: the hybrid was made without member 0, expected one with it");
    auto pass = memory.begin(batch_of(text(2, 0, 1)));
    REQUIRE(pass);
    CHECK(pass->layers() == 3);
    CHECK(violation_of([&] { pass->of<Recurrent>(); })
          == "of: the hybrid was made without this member, expected one with it");
}

TEST_CASE("layers have formats of their own, whichever are exact") {
    using Exact = cellar::Cache<cellar::StandardV<cellar::half>>;
    using Windowed = cellar::Cache<cellar::StandardV<cellar::half>, cellar::SlidingWindow<8>>;
    using Small = cellar::Cache<cellar::StandardV<cellar::q8_0, cellar::q4_0>>;
    using Smaller = cellar::Cache<cellar::Blocked<cellar::int8_per_head, 16, cellar::nvfp4>>;
    check_formats<Exact, Small>({0, 0, 1, 1, 1, 1});             // the first two
    check_formats<Exact, Small>({1, 0, 1, 1, 0, 1});             // a list
    check_formats<Exact, Small>({1, 1});                         // none
    check_formats<Windowed, Small>({0, 0, 0, 1, 0, 0, 0, 1});    // those with a window
    check_formats<Exact, Small, Smaller>({0, 2, 2, 1, 0, 1, 2}); // any of those that are compiled in
}

TEST_CASE("a snapshot of a hybrid without some members is of those that are there") {
    AtRunTime memory{{1, no_memory, 1}, std::nullopt, full(2), std::nullopt};
    auto& member = memory.member<Full>();
    const auto tokens_of = [&](int s) { return std::regex_replace(contents(member, s), std::regex{"@[0-9]+"}, ""); };
    REQUIRE(feed(memory, text(0, 0, 6), 3));
    const std::string expected = tokens_of(0);
    auto snapshot = memory.snapshot(cellar::Sequence{0}).value();
    CHECK(snapshot.from() == Position{0});
    CHECK(snapshot.to() == Position{6});
    CHECK(snapshot.of<Full>().tokens() == 6);
    CHECK(violation_of([&] { (void)snapshot.of<Sliding>(); })
          == "of: the hybrid was made without member 0, expected one with it");
    CHECK(violation_of([&] { (void)snapshot.of<2>(); })
          == "of: the hybrid was made without member 2, expected one with it");

    memory.offload(snapshot);
    CHECK(snapshot.of<Full>().is_offloaded());
    CHECK(snapshot.bytes() == member.statistics().offloaded_bytes);
    REQUIRE(memory.remove(cellar::Sequence{0}, Position{0}, cellar::to_end));
    CHECK(member.statistics().free == member.cells());
    REQUIRE(memory.restore(cellar::Sequence{1}, snapshot));
    CHECK(tokens_of(1) == expected);
    REQUIRE(memory.reload(snapshot));
    CHECK(snapshot.bytes() == 0);

    auto tail = memory.split(snapshot, Position{4}).value();
    CHECK(snapshot.to() == Position{4});
    CHECK(tail.from() == Position{4});
    CHECK(violation_of([&] { (void)tail.of<Recurrent>(); })
          == "of: the hybrid was made without member 2, expected one with it");
    CHECK(memory.restore(cellar::Sequence{2}, tail).error() == Refusal{Reason::cannot_resume, 1, cellar::Sequence{2}});
    REQUIRE(memory.restore(cellar::Sequence{2}, snapshot));
    REQUIRE(memory.restore(cellar::Sequence{2}, tail));
    CHECK(tokens_of(2) == expected);
    REQUIRE(memory.merge(snapshot, std::move(tail)));
    CHECK(snapshot.to() == Position{6});
    REQUIRE(memory.restore(cellar::Sequence{0}, snapshot, Position{5}));
    CHECK(memory.next(cellar::Sequence{0}) == Position{5});
    REQUIRE(memory.rewind(cellar::Sequence{0}, Position{3}));
    CHECK(memory.next(cellar::Sequence{0}) == Position{3});
    CHECK(cellar::audit(member) == "");
}

TEST_CASE("a run-time pattern and members that do not fit together are violations") {
    const auto message = [](auto make) { return violation_of([&] { make(); }); };
    CHECK(message([] {
              AtRunTime{{}, sliding(1), full(1), recurrent(1)};
          })
          == "hybrid: no layers, expected at least 1");
    CHECK(message([] {
              AtRunTime{{0, 3}, sliding(1), full(1), recurrent(1)};
          })
          == "hybrid: layer 1 has member 3, expected 0 to 2 or no_memory");
    CHECK(message([] {
              AtRunTime{{0, -2}, sliding(1), full(1), recurrent(1)};
          })
          == "hybrid: layer 1 has member -2, expected 0 to 2 or no_memory");
    CHECK(message([] {
              AtRunTime{{0, 0, 1}, sliding(1), full(1), std::nullopt};
          })
          == "hybrid: member 0 has 1 layers, expected 2 of 3 in its pattern");
    CHECK(message([] {
              AtRunTime{{0, 1}, sliding(1), std::nullopt, std::nullopt};
          })
          == "hybrid: no member 1, expected one with 1 layers");
    CHECK(message([] {
              AtRunTime{{no_memory}, std::nullopt, std::nullopt, std::nullopt};
          })
          == "hybrid: no member, expected at least one");
}

TEST_CASE("the pass of a cache with a residual that is a member knows the layer of the model where it was visited") {
    using Pair = cellar::Hybrid<cellar::WithResidual, Full, Sliding>;
    using Around = cellar::Hybrid<cellar::Repeat<cellar::NoMemory, Pair>, Pair>;
    const cellar::CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 1};
    const cellar::CacheLimits limits{.sequences = 1, .capacity = 8, .batch = 8};
    Around memory{4, Pair{2, Full{shape, limits}, Sliding{shape, limits}}};
    auto pass = memory.begin(cellar::Sequence{0}, 2).value();
    const std::vector<float> rows(2), wrong(3);
    const auto message = [&](auto& pair, int layer) { return violation_of([&] { pair.put(layer, wrong, rows); }); };
    CHECK(message(pass.of<Pair>(), 0).find("the keys of layer 0 of member 0 are") != std::string::npos);
    pass.visit(3, [&](auto& own, int layer) {
        if constexpr (requires { own.mark_put(layer); }) {
            CHECK(message(own, layer).find("the keys of layer 3 of the model (layer 1 of member 0) are")
                  != std::string::npos);
        }
    });
    CHECK(message(pass.of<Pair>(), 0).find("the keys of layer 0 of member 0 are") != std::string::npos);
}

} // namespace test_run_time
