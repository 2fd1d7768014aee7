// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Violations name the line of the calling code, not one of cellar's.
#include <cellar/cache/audit.hpp>
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/make_memory.hpp>
#include <cellar/models/models.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_callers {

using namespace cellar;

namespace {

struct Place {
    std::string file;
    int line;
};

/// The place that the violation of `call` names.
template <class Call>
Place place_of(Call call) {
    const ViolationHandler before = set_violation_handler([](const Violation& v) { throw Place{v.file, v.line}; });
    Place place{"no violation", 0};
    try {
        call();
    } catch (const Place& thrown) {
        place = thrown;
    }
    set_violation_handler(before);
    return place;
}

/// Checks that the violation names the line on which `check_here` is called.
template <class Call>
void check_here(Call call, const std::source_location& here = std::source_location::current()) {
    const Place place = place_of(call);
    CHECK(place.file == here.file_name());
    CHECK(place.line == static_cast<int>(here.line()));
}

struct Sum : StateTensor<1> {};

using Recurrent = RecurrentMemory<States<Sum>>;
using Both = Hybrid<Repeat<Cache<>, Recurrent>, Cache<>, Recurrent>;

const CacheLimits limits{.sequences = 2, .capacity = 8, .batch = 4};
const BatchBuilder wrong{Sequence{5}, Position{0}};
const BatchBuilder one{Sequence{0}, Position{0}};
const std::vector<float> row{1};
const std::vector<float> long_row{1, 2};

template <Memory M>
void check_operations(M& m) {
    check_here([&] { (void)m.begin(wrong); });
    check_here([&] { (void)m.reserve(5); });
    check_here([&] { (void)m.copy_prefix(Sequence{0}, Sequence{5}, Position{1}); });
    check_here([&] { (void)m.remove(Sequence{5}, Position{0}, Position{1}); });
    check_here([&] { (void)m.next(Sequence{5}); });
    check_here([&] { (void)m.can_resume(Sequence{5}, Position{1}); });
    check_here([&] { (void)m.resumable_prefix(Sequence{5}, Position{1}); });
}

template <HasSnapshots M>
void check_parking(M& m) {
    check_here([&] { (void)park(m, Sequence{5}); });
    auto parked = park(m, Sequence{0}).value();
    check_here([&] { (void)unpark(m, Sequence{5}, parked); });
}

template <class M>
void check_questions(M& moved) {
    check_here([&] { moved.fence(); });
    check_here([&] { (void)moved.bytes(); });
    check_here([&] { (void)moved.layers(); });
}
template <class M>
void check_questions_of_limits(M& moved) {
    check_here([&] { (void)moved.shape(); });
    check_here([&] { (void)moved.limits(); });
    check_here([&] { (void)moved.backend(); });
    check_here([&] { (void)moved.sequences(); });
    check_here([&] { (void)moved.statistics(); });
}

} // namespace

TEST_CASE("violations name the caller's line: operations of all memories") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    EncoderMemory<> encoder{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    Recurrent recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4}};
    Both both{2, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
              Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4, .snapshots = 1}}};
    check_operations(cache);
    check_operations(encoder);
    check_operations(recurrent);
    check_operations(both);
    check_parking(cache);
    check_parking(both);
}

TEST_CASE("violations name the caller's line: questions to a memory that was moved from") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    EncoderMemory<> encoder{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    Recurrent recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4}};
    Both both{2, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
              Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4}}};
    const Cache<> other_cache = std::move(cache);
    const EncoderMemory<> other_encoder = std::move(encoder);
    const Recurrent other_recurrent = std::move(recurrent);
    const Both other_both = std::move(both);
    check_questions(cache);
    check_questions_of_limits(cache);
    check_here([&] { (void)cache.window(); });
    check_here([&] { (void)cache.cells(); });
    check_here([&] { cache.visit_kept_cells([](Position, Cell, int) {}); });
    check_here([&] { (void)describe(cache); });
    check_questions(encoder);
    check_questions_of_limits(encoder);
    check_here([&] { (void)encoder.cells(); });
    check_here([&] { encoder.visit_kept_cells([](Position, Cell, int) {}); });
    check_here([&] { (void)describe(encoder); });
    check_questions(recurrent);
    check_questions_of_limits(recurrent);
    check_here([&] { (void)recurrent.slots(); });
    check_here([&] { both.fence(); });
    check_here([&] { (void)both.bytes(); });
}

TEST_CASE("violations name the caller's line: constructors") {
    check_here([&] { (void)SlidingWindow<>{0}; });
    check_here([&] { (void)SlidingWindow<4>{{.sinks = -1}}; });
    check_here([&] { (void)models::Gemma3_4B::make({}); });
    check_here([&] { (void)models::Gemma3_4B::make<models::LayerKind::full>({}); });
    check_here([&] { (void)models::Mamba2_2_7B::make_recurrent({.batch = -1}); });
    models::RunTimeDescription model{.layers = std::vector<models::LayerDescription>(1)};
    model.layers[0].shape = {.kv_heads = 1, .key_dim = 1, .value_dim = 1};
    check_here([&] { (void)models::make_memory<Cache<>>(model, {}); });
    check_here([&] { (void)models::bytes<Cache<>>(model, {}); });
    const models::MemoryLimits no_batch{.attention = {.batch = -1}};
    check_here([&] { (void)models::largest_limits<Cache<>>(model, no_batch, 1); });
    check_here([&] { (void)ChunkedAttention<>{0}; });
    check_here([&] { (void)ChunkedAttention<4>{{.sinks = -1}}; });
    check_here([&] { (void)RopeShift<>{{1.0}, -1}; });
    check_here([&] { (void)RopeShift<>::per_layer({}); });
    check_here([&] { (void)rope_frequencies(7); });
    check_here([&] { (void)linear_scaled({}, 0); });
    check_here([&] { (void)ntk_scaled({}, 0); });
    check_here([&] { (void)llama3_scaled({}, {.factor = 0}); });
    check_here([&] { (void)yarn_scaled({}, 0, {.factor = 2, .original_context = 8}); });
    check_here([&] { (void)StateShape{0, {{1}}}; });
    check_here([&] { (void)StateShape{std::vector<std::vector<StateExtents>>{}}; });
    check_here([&] { (void)StateExtents{0}; });
    check_here([&] { Cache<>({.layers = 0, .kv_heads = 1, .head_dim = 1}, limits); });
    check_here([&] { Cache<>({.each_layer = {{1, 0, 1}}}, limits); });
    check_here([&] { Cache<>({.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 0, .capacity = 1}); });
    check_here([&] { EncoderMemory<>({.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 0}); });
    check_here([&] { Recurrent({1, {{1}}}, {.batch = -1}); });
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    Recurrent states{{1, {{1}}}, {.sequences = 2, .batch = 4}};
    check_here([&] { Both(3, std::move(cache), std::move(states)); });
}

TEST_CASE("violations name the caller's line: caches and their passes") {
    Cache<> cache{{.layers = 2, .kv_heads = 1, .head_dim = 1}, limits};
    check_here([&] { (void)cache.schedule(Sequence{0}, Position{-1}); });
    check_here([&] { cache.unschedule(Sequence{5}, Position{0}); });
    check_here([&] { (void)cache.range(Sequence{5}); });
    check_here([&] { (void)cache.tokens(Sequence{5}); });
    check_here([&] { cache.visit_cells(Sequence{5}, [](Position, Cell, int) {}); });
    auto pass = cache.begin(one).value();
    check_here([&] { cache.defragment(); });
    check_here([&] { pass.put(0, long_row, row); });
    check_here([&] { pass.put(2, row, row); });
    check_here([&] { pass.mark_put(2); });
    check_here([&] { (void)pass.in_place(2); });
    check_here([&] { (void)pass.keys(0); });
    check_here([&] { (void)pass.values(0); });
    check_here([&] { (void)pass.get(0); });
    check_here([&] { (void)pass.visible(1); });
    check_here([&] { pass.visit(2, [](auto&, int) {}); });
    check_here([&] { pass.commit(); });
    pass.drop();
    check_here([&] { (void)pass.mask(); });
    check_here([&] { (void)pass.cells(); });
    EncoderMemory<> encoder{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    check_here([&] { (void)encoder.write(Sequence{0}, Position{0}, -1); });
    check_here([&] { (void)encoder.write(Sequence{5}, Position{0}, 1); });
    auto reading = encoder.begin(one).value();
    check_here([&] { encoder.defragment(); });
    check_here([&] { (void)reading.keys(1); });
    check_here([&] { reading.visit(1, [](auto&, int) {}); });
    reading.commit();
    check_here([&] { reading.commit(); });
}

TEST_CASE("violations name the caller's line: recurrent memories and their passes") {
    Recurrent memory{{1, {{1}}}, {.sequences = 2, .batch = 4, .checkpoints = 1}};
    check_here([&] { (void)memory.checkpoint(Sequence{5}); });
    check_here([&] { (void)memory.schedule(Sequence{0}, Position{-1}); });
    check_here([&] { memory.unschedule(Sequence{5}, Position{0}); });
    check_here([&] { (void)memory.kept(Sequence{5}); });
    check_here([&] { (void)memory.state(Sequence{0}); });
    check_here([&] { (void)memory.view<Sum>(0, {}); });
    check_here([&] { memory.set_initial<Sum>(0, long_row); });
    auto pass = memory.begin(one).value();
    const MicroBatch micro_batch = pass.micro_batches()[0];
    check_here([&] { (void)micro_batch.sequence(1); });
    check_here([&] { (void)micro_batch.tokens(-1); });
    check_here([&] { (void)memory.state(Sequence{0}, Position{1}); });
    check_here([&] { (void)pass.get<Sum>(1, micro_batch); });
    check_here([&] { pass.put(0, micro_batch); });
    check_here([&] { (void)pass.slots<Sum>(1); });
    check_here([&] { pass.mark_written(1, micro_batch); });
    check_here([&] { pass.visit(1, [](auto&, int) {}); });
    check_here([&] { pass.commit(); });
    pass.drop();
    check_here([&] { (void)pass.micro_batches(); });
}

TEST_CASE("violations name the caller's line: prefix trees") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    const std::vector<std::int32_t> tokens{1};
    check_here([&] { PrefixTree(cache, {.usefulness = nullptr}); });
    PrefixTree tree{cache};
    check_here([&] { (void)tree.attach(Sequence{5}, tokens).value(); });
    check_here([&] { (void)tree.insert(Sequence{0}, tokens); });
    check_here([&] { (void)tree.begin(wrong); });
    const PrefixTree moved{std::move(tree)};
    check_here([&] { (void)tree.match(tokens); });
    check_here([&] { (void)tree.pin(tokens); });
    check_here([&] { (void)tree.evict(); });
    check_here([&] { tree.clear(); });
    check_here([&] { (void)tree.memory(); });
    check_here([&] { (void)tree.statistics(); });
}

TEST_CASE("violations name the caller's line: hybrids, and work within visit") {
    Both memory{2, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 4}}};
    check_here([&] { (void)memory.remove(Sequence{5}, Position{0}, Position{1}, RotateBy{1}); });
    check_here([&] { (void)memory.schedule(Sequence{0}, Position{-1}); });
    check_here([&] { memory.unschedule(Sequence{5}, Position{0}); });
    auto pass = memory.begin(one).value();
    check_here([&] { memory.defragment(); });
    check_here([&] { pass.visit(2, [](auto&, int) {}); });
    check_here([&] { pass.commit(); });
    int line = 0;
    const Place place = place_of([&] {
        pass.visit(0, [&](auto& own, int layer) {
            line = __LINE__ + 1;
            if constexpr (requires { own.put(layer, long_row, row); }) own.put(layer, long_row, row);
        });
    });
    CHECK(place.line == line);
    pass.drop();
    check_here([&] { pass.visit(0, [](auto&, int) {}); });
    using AtRunTime = Hybrid<RunTimePattern, Cache<>>;
    check_here([&] { AtRunTime({7}, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}); });
    AtRunTime one_layer({0}, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits});
    check_here([&] { (void)one_layer.place(1); });
    const AtRunTime other = std::move(one_layer);
    check_here([&] { (void)one_layer.layers(); });
    using Optional = Hybrid<RunTimePattern, Cache<>, Recurrent>;
    Optional without({0}, Cache<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}, std::nullopt);
    check_here([&] { (void)without.member<1>(); });
    check_here([&] { (void)without.member<Recurrent>(); });
    check_here([&] { (void)std::as_const(without).member<Recurrent>(); });
}

TEST_CASE("violations name the caller's line: missing values and errors") {
    const Result<int> refused{Reason::full};
    const Result<int> value{3};
    check_here([&] { (void)value.error(); });
    check_here([&] { (void)Result<void>{}.error(); });
    // The value of a refused result: the violation names the line of the operation.
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 1, .batch = 4}};
    const int line = __LINE__ + 1;
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 4});
    const Place place = place_of([&] { pass->commit(); });
    CHECK(place.line == line);
    CHECK(std::string_view{place.file}.ends_with("test_callers.cpp"));
}

TEST_CASE("a thrown violation does not affect the line of later ones") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits};
    for (int i = 0; i < 2; ++i) {
        check_here([&] { (void)cache.next(Sequence{5}); });
        check_here([&] { CELLAR_EXPECTS(false, "of its own"); });
    }
    // A handler may call cellar itself.
    static Cache<>* inside = nullptr;
    inside = &cache;
    const ViolationHandler before = set_violation_handler([](const Violation& v) {
        if (inside->next(Sequence{0}) == Position{0}) throw Place{v.file, v.line};
    });
    CHECK_THROWS_AS((void)cache.next(Sequence{5}), Place);
    set_violation_handler(before);
}

} // namespace test_callers
