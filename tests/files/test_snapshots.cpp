// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots of all memories in files.
#include "cache/numbers.hpp"
#include "folder.hpp"
#include "formats.hpp"
#include "hybrid/toy.hpp"
#include "made_files.hpp"
#include "snapshot_bytes.hpp"
#include "violations.hpp"
#include <cellar/files/snapshot_file.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_snapshots {

namespace {

using namespace cellar;
using disk::Bytes;
using disk::Disk;
using disk::loaded;
using disk::saved;
using numbers::prompt;
using numbers::Values;
using numbers::values;

using Numbers = numbers::Cache<>;

Numbers cache(std::int32_t sequences = 3, std::int32_t capacity = 8) {
    return {{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
            {.sequences = sequences, .capacity = capacity, .batch = 8}};
}

Numbers filled() {
    Numbers all = cache();
    numbers::feed(all, prompt(1, 0, {9, 9}));
    numbers::feed(all, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    return all;
}

template <class M>
std::string refusal(const Bytes& bytes, M& memory, const LoadOptions& options = {}) {
    auto result = loaded(bytes, memory, options);
    REQUIRE_FALSE(result);
    CHECK(result.error().reason == FileReason::unsuitable);
    return result.error().message;
}

// A memory that files do not take is an error at the call.
template <class M>
concept has_files = requires(M& m, const SnapshotOf<M>& snapshot) {
    save("f", m, snapshot);
    save("f", m, Sequence{0});
    load("f", m);
    load("f", m, Sequence{0});
};
struct WithoutSave : Numbers {
    using Numbers::Numbers;
    void save() const {}
};
static_assert(has_files<Numbers> && !has_files<WithoutSave> && HasSnapshots<WithoutSave>);

/// A file like that of a snapshot of `cache()`, with these positions and numbers.
Bytes by_hand(const std::vector<std::int32_t>& positions, std::map<std::string, std::string> metadata,
              Dtype keys = Dtype::f32) {
    const std::uint64_t n = positions.size();
    FilePlan plan{{{"positions", Dtype::i32, {n}}}, {}};
    for (auto& [name, value] : metadata) plan.metadata.emplace("snapshot." + name, value);
    for (const char* layer : {"layers.0.", "layers.1."}) {
        plan.tensors.push_back({std::string{layer} + "keys", keys, {n, 1, 2}});
        plan.tensors.push_back({std::string{layer} + "values", Dtype::f32, {n, 1, 1}});
    }
    Disk disk;
    auto writer = FileWriter::create("f", plan, {.files = &disk}).value();
    REQUIRE(writer.append_elements(std::span<const std::int32_t>{positions}));
    const std::vector<float> rows(2 * 3 * positions.size(), 1.0F);
    for (std::size_t i = 0, dims = 2; i < 4; ++i, dims = 3 - dims)
        REQUIRE(writer.append_elements(std::span<const float>{rows}.first(dims * positions.size())));
    REQUIRE(writer.finish());
    return disk.now.at("f")->now;
}

const std::map<std::string, std::string> of_two{
    {"kind", "1"}, {"layers", "2"}, {"from", "0"}, {"to", "2"}, {"is_window", "0"}};

} // namespace

TEST_CASE("a snapshot that is saved in place or offloaded is the same when it is loaded") {
    for (const int where : {0, 1, 2}) {
        Numbers from = filled();
        CellSnapshot snapshot = from.snapshot(Sequence{0}, Position{1}, Position{5}).value();
        if (where != 0) from.offload(snapshot, where == 1 ? OffloadTo::host : OffloadTo::backend);
        const std::string before = numbers::portrait(from);
        const Bytes file = saved(from, snapshot);
        CHECK(numbers::portrait(from) == before);
        Numbers to = cache(2, 6);
        numbers::feed(to, prompt(1, 0, {7}));
        const CellSnapshot found = loaded(file, to).value();
        CHECK(found.is_offloaded());
        CHECK(found.from() == Position{1});
        CHECK(found.to() == Position{5});
        CHECK(found.tokens() == 4);
        CHECK(to.statistics().offloaded_bytes == found.bytes());
        CHECK(to.statistics().free == to.cells() - 1);
        REQUIRE(to.restore(Sequence{1}, found));
        CHECK(values(to, 1) == Values{2, 3, 4, 5, 7});
        CHECK(numbers::values_of(numbers::held(to, 1, 1)) == Values{2, 3, 4, 5, 7});
        CHECK(saved(to, found) == file);
    }
}

TEST_CASE("a snapshot is loaded into another layout, element type, window and backend") {
    Numbers from = filled();
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    const auto check = [&](auto to) {
        auto found = loaded(file, to).value();
        REQUIRE(to.reload(found));
        REQUIRE(to.restore(Sequence{0}, found));
        CHECK(values(to, 0) == Values{1, 2, 3, 4, 5, 6});
        CHECK(numbers::values_of(numbers::held(to, 0, 1)) == Values{1, 2, 3, 4, 5, 6});
    };
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    const CacheLimits limits{.sequences = 1, .capacity = 16, .batch = 4};
    check(Cache<PermutedV<half>>{shape, limits});
    check(Cache<StandardV<bf16, float>>{shape, limits});
    check(Cache<PermutedV<float>, SlidingWindow<3>>{shape, limits});
    check(Cache<StandardV<half>, ChunkedAttention<4>, UnrotatedShift>{shape, limits});
    Cache<StandardV<half>> half_to{shape, limits};
    const CellSnapshot in_half = loaded(file, half_to).value();
    CHECK(loaded(saved(half_to, in_half), from).value().bytes() == 6 * 2 * 3 * 4); // float again
}

TEST_CASE("a snapshot whose keys are rotated in other pairs is refused, and nothing has changed") {
    using Rotated = Cache<StandardV<float>, FullCausal, RopeShift<RunTimePairing>>;
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 8};
    const CacheLimits limits{.sequences = 1, .capacity = 16, .batch = 8};
    const auto made = [&](bool interleaved, int dims = 8, int begin = 0) {
        Rotated cache{shape, limits, {}, {rope_frequencies(dims), {interleaved}, begin}};
        numbers::feed(cache, prompt(0, 0, {1, 2, 3}));
        return cache;
    };
    Rotated from = made(true);
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    Rotated same = made(true);
    CHECK(loaded(file, same).value().tokens() == 3);
    for (Rotated& other : std::array{made(false), made(true, 4), made(true, 4, 4)}) {
        const std::string before = numbers::portrait(other);
        CHECK(refusal(file, other) == "f: its keys are rotated in other pairs of elements than those of this cache");
        CHECK(numbers::portrait(other) == before);
        CHECK(audit(other) == "");
    }
    Cache<StandardV<float>, FullCausal, RopeShift<Interleaved>> at_compile_time{
        shape, limits, {}, RopeShift<Interleaved>{rope_frequencies(8, 500.0)}};
    CHECK(loaded(file, at_compile_time).value().tokens() == 3);
    Cache<> unrotated{shape, limits}; // which will not rotate them
    const CellSnapshot loaded_there = loaded(file, unrotated).value();
    CHECK(loaded(saved(unrotated, loaded_there), from).value().tokens() == 3); // nobody knows their pairs by now
}

TEST_CASE("keys without positions, which are rotated on read, go through files to their like alone") {
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 8};
    const CacheLimits limits{.sequences = 1, .capacity = 16, .batch = 8};
    using OnRead = Cache<StandardV<float>, FullCausal, RotateOnRead<>>;
    using InPlace = Cache<StandardV<float>, FullCausal, RopeShift<>>;
    const auto filled_cache = [&](auto cache) {
        numbers::feed(cache, prompt(0, 0, {1, 2, 3}));
        return cache;
    };
    const RopeShift<> rope{rope_frequencies(8)};
    OnRead from = filled_cache(OnRead{shape, limits, {}, rope});
    InPlace rotated = filled_cache(InPlace{shape, limits, {}, rope});
    Cache<> disabled = filled_cache(Cache<>{shape, limits});
    const auto file_of = [](auto& cache) { return saved(cache, cache.snapshot(Sequence{0}).value()); };
    OnRead same{shape, limits, {}, rope};
    CHECK(loaded(file_of(from), same).value().tokens() == 3);
    const auto check_refusal = [](const Bytes& file, auto& to, const char* message) {
        const std::string before = numbers::portrait(to);
        CHECK(refusal(file, to) == message);
        CHECK(numbers::portrait(to) == before);
        CHECK(audit(to) == "");
    };
    constexpr auto on_read = "f: its keys were stored to be rotated on read, unlike those of this cache";
    check_refusal(file_of(from), rotated, on_read);
    check_refusal(file_of(from), disabled, on_read);
    constexpr auto as_put = "f: its keys were not stored to be rotated on read, as those of this cache";
    check_refusal(file_of(rotated), from, as_put);
    check_refusal(file_of(disabled), from, as_put);
    OnRead others = filled_cache(OnRead{shape, limits, {}, RopeShift<>{rope_frequencies(4)}});
    check_refusal(file_of(from), others, "f: its keys are rotated in other pairs of elements than those of this cache");
}

TEST_CASE("halves are loaded as bfloat16, and bfloat16 as halves") {
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    const CacheLimits limits{.sequences = 1, .capacity = 16, .batch = 8};
    Cache<StandardV<half>> halves{shape, limits};
    numbers::feed(halves, prompt(0, 0, {1.5F, -2, 300}));
    Cache<StandardV<bf16>> brains{shape, limits};
    REQUIRE(brains.restore(Sequence{0}, loaded(saved(halves, halves.snapshot(Sequence{0}).value()), brains).value()));
    CHECK(values(brains, 0) == Values{-2, 1.5F, 300});
    REQUIRE(halves.remove(Sequence{0}, Position{0}, to_end));
    REQUIRE(halves.restore(Sequence{0}, loaded(saved(brains, brains.snapshot(Sequence{0}).value()), halves).value()));
    CHECK(values(halves, 0) == Values{-2, 1.5F, 300});
}

TEST_CASE("formats of one plane and of two go through files as they are, and become no others") {
    using cellar_test::BlocksOf32;
    using cellar_test::ScaledHeads;
    const CacheShape shape{.layers = 2, .kv_heads = 2, .head_dim = 64};
    const CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 8};
    const auto make = [&]<class Layout>(Layout) {
        return Cache<Layout, FullCausal, UnrotatedShift, HostBackend>{shape, limits};
    };
    const auto fill = [](auto& cache) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 5}).value();
        std::vector<float> rows(5 * 2 * 64);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 97) - 40;
        for (const int layer : {0, 1}) pass.put(layer, rows, rows);
        pass.commit();
    };
    auto from = make(StandardV<ScaledHeads, BlocksOf32>{});
    fill(from);
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    auto to = make(Blocked<ScaledHeads, 4, BlocksOf32>{});
    REQUIRE(to.restore(Sequence{1}, loaded(file, to).value()));
    auto snapshot = to.snapshot(Sequence{1}).value();
    CHECK(saved(to, snapshot) == file);
    to.offload(snapshot);
    CHECK(saved(to, snapshot) == file);

    Disk disk;
    disk.put("f", file);
    const auto reader = FileReader::open("f", {.files = &disk}).value();
    using Shape = std::vector<std::uint64_t>;
    CHECK(reader.find("layers.1.keys")->shape == Shape{5, 2, 64, 1});
    CHECK(reader.find("layers.1.key_scales")->shape == Shape{5, 2, 1});
    CHECK(reader.find("layers.1.key_scales")->dtype == Dtype::f32);
    CHECK(reader.find("layers.1.values")->shape == Shape{5, 2, 2, 34});
    CHECK(*reader.metadata("formats.layers.1.values") == "test_blocks_of_32");

    auto plain = make(StandardV<float, float>{});
    CHECK(refusal(file, plain)
          == "f: its layers.0.keys has elements of type 'test_scaled_heads', expected F32, F16 or BF16");
    auto plain_keys = make(StandardV<float, BlocksOf32>{});
    CHECK(refusal(file, plain_keys)
          == "f: its layers.0.keys has elements of type 'test_scaled_heads', expected F32, F16 or BF16");
    fill(plain_keys);
    CHECK(refusal(saved(plain_keys, plain_keys.snapshot(Sequence{0}).value()), from)
          == "f: its layers.0.keys has elements of type F32, expected test_scaled_heads");
}

TEST_CASE("floats of 8 bits have the types of safetensors, and a rotation is part of a format's name") {
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 64};
    const CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 8};
    const auto make = [&]<class Layout>(Layout) {
        return Cache<Layout, FullCausal, UnrotatedShift, HostBackend>{shape, limits};
    };
    auto from = make(StandardV<fp8_e4m3, Rotated<Hadamard<64>, q8_0>>{});
    auto pass = from.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    std::vector<float> rows(3 * 64);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 97) - 40;
    pass.put(0, rows, rows);
    pass.commit();
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());

    Disk disk;
    disk.put("f", file);
    const auto reader = FileReader::open("f", {.files = &disk}).value();
    CHECK(reader.find("layers.0.keys")->dtype == Dtype::f8_e4m3);
    CHECK(reader.find("layers.0.keys")->shape == std::vector<std::uint64_t>{3, 1, 64});
    CHECK(*reader.metadata("formats.layers.0.values") == "hadamard64.q8_0");

    // What a number means does not depend on how larger ones were rounded to it.
    auto same = make(Blocked<Fp8E4m3<Overflow::is_special>, 4, Rotated<Hadamard<64>, q8_0>>{});
    REQUIRE(same.restore(Sequence{1}, loaded(file, same).value()));
    CHECK(saved(same, same.snapshot(Sequence{1}).value()) == file);
    auto unrotated = make(StandardV<fp8_e4m3, q8_0>{});
    CHECK(refusal(file, unrotated) == "f: its layers.0.values has elements of type 'hadamard64.q8_0', expected q8_0");
    auto other = make(StandardV<fp8_e5m2, Rotated<Hadamard<64>, q8_0>>{});
    CHECK(refusal(file, other) == "f: its layers.0.keys has elements of type F8_E4M3, expected F8_E5M2");
}

TEST_CASE("a snapshot whose channels are divided by other factors is refused, and nothing has changed") {
    using cellar_test::BlocksOf32;
    using cellar_test::ScaledHeads;
    const auto made = [](std::vector<ChannelFactors> factors) {
        return Cache<StandardV<ScaledHeads, BlocksOf32>, FullCausal, UnrotatedShift, HostBackend>{
            CacheShape{.each_layer = {{1, 32, 32}}, .factors = std::move(factors)}, {.capacity = 8, .batch = 4}};
    };
    const auto put = [](auto& cache) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, cache.next(Sequence{0}), 2}).value();
        std::vector<float> rows(2 * 32);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 29) - 11;
        pass.put(0, rows, rows);
        pass.commit();
    };
    const std::vector<float> twos(32, 2.0F);
    const std::vector<float> threes(32, 3.0F);
    auto from = made({{twos, threes}});
    put(from);
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    auto same = made({{twos, threes}});
    CHECK(loaded(file, same).value().tokens() == 2);
    CHECK(saved(same, loaded(file, same).value()) == file);
    for (const std::vector<ChannelFactors>& others :
         {std::vector<ChannelFactors>{}, {{}}, {{twos, {}}}, {{threes, twos}}}) {
        auto other = made(others);
        put(other);
        const Bytes before = saved(other, other.snapshot(Sequence{0}).value());
        CHECK(refusal(file, other) == "f: its keys and values are divided by other factors than those of this cache");
        CHECK(refusal(before, from) == "f: its keys and values are divided by other factors than those of this cache");
        CHECK(saved(other, other.snapshot(Sequence{0}).value()) == before);
        CHECK(audit(other) == "");
    }
}

TEST_CASE("a window is loaded by a window that it covers, and refused by one that sees more") {
    using Narrow = Cache<StandardV<float>, SlidingWindow<3>>;
    const CacheLimits limits{.sequences = 2, .capacity = 100, .batch = 4};
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    Narrow from{shape, limits};
    for (int p = 0; p < 12; p += 4) {
        const auto x = static_cast<float>(p);
        numbers::feed(from, prompt(0, p, {x, x + 1, x + 2, x + 3}));
    }
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    Narrow same{shape, limits};
    REQUIRE(same.restore(Sequence{1}, loaded(file, same).value()));
    CHECK(same.next(Sequence{1}) == Position{12});
    Cache<StandardV<float>, SlidingWindow<2>> narrower{shape, limits};
    CHECK(loaded(file, narrower));
    Cache<StandardV<float>, SlidingWindow<6>> wider{shape, limits};
    CHECK(refusal(file, wider) == "f: its snapshot lacks positions that the window of this cache sees");
    Cache<> all{shape, limits};
    CHECK(refusal(file, all) == "f: its snapshot lacks positions that the window of this cache sees");
}

TEST_CASE("a snapshot without tokens is saved and loaded, and a sequence goes on where it ends") {
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    const CacheLimits limits{.sequences = 2, .capacity = 40, .batch = 10};
    Cache<StandardV<float>, ChunkedAttention<4>> from{shape, limits};
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    REQUIRE(from.rewind(Sequence{0}, Position{4}));
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    const auto check = [&](auto& to, int s) {
        REQUIRE(to.restore(Sequence{s}, loaded(file, to).value()));
        CHECK(to.tokens(Sequence{s}) == 0);
        CHECK(to.next(Sequence{s}) == Position{4});
        numbers::feed(to, prompt(s, 4, {20, 21}));
        CHECK(values(to, s) == Values{20, 21});
    };
    check(from, 1);
    Cache<PermutedV<half>, ChunkedAttention<2>> to{shape, limits};
    check(to, 0);
    Cache<StandardV<float>, ChunkedAttention<8>> wider{shape, limits};
    CHECK(refusal(file, wider) == "f: its snapshot lacks positions that the window of this cache sees");
}

TEST_CASE("the inputs of an encoder are saved and loaded, and are no snapshot of a cache") {
    const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};
    const CacheLimits limits{.sequences = 2, .capacity = 10, .batch = 6};
    EncoderMemory<> from{shape, limits};
    for (const int p : {3, 7}) {
        auto pass = from.write(Sequence{0}, Position{p}, 2).value();
        const std::vector<float> k(4, static_cast<float>(p));
        for (int layer = 0; layer < 2; ++layer) pass.put(layer, k, std::vector<float>{1, 2});
        pass.commit();
    }
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value());
    EncoderMemory<PermutedV<half>> to{shape, limits};
    REQUIRE(to.restore(Sequence{1}, loaded(file, to).value()));
    CHECK(to.tokens(Sequence{1}) == 4);
    CHECK(to.range(Sequence{1}) == PositionRange{Position{3}, Position{7}});
    Numbers other = cache();
    CHECK(refusal(file, other) == "f: it has no snapshot of a cache");
    CHECK(refusal(saved(other, other.snapshot(Sequence{0}).value()), to)
          == "f: it has no snapshot of an encoder memory");
}

TEST_CASE("an input of an encoder with more tokens than are saved at once is the same in place and offloaded") {
    constexpr int tokens = 300; // of 4 KiB: 256 at once
    EncoderMemory<StandardV<float>> memory{{.layers = 1, .kv_heads = 1, .head_dim = 1024, .value_dim = 1},
                                           {.sequences = 1, .capacity = tokens, .batch = tokens}};
    std::vector<float> keys;
    for (int i = 0; i < tokens; ++i) keys.resize(keys.size() + 1024, static_cast<float>(i));
    auto pass = memory.write(Sequence{0}, Position{3}, tokens).value();
    pass.put(0, keys, Values(tokens, 1));
    pass.commit();
    CellSnapshot snapshot = memory.snapshot(Sequence{0}).value();
    const Bytes in_place = saved(memory, snapshot);
    memory.offload(snapshot);
    const bool is_same = saved(memory, snapshot) == in_place;
    CHECK(is_same);
}

TEST_CASE("a hybrid is saved and loaded with all members, and a refusal names the member") {
    using toy::Recurrent;
    const auto make = [](int capacity) {
        return toy::Memory{
            toy::layers,
            toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
            toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = capacity, .batch = 8}},
            Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .rollback = 1, .snapshots = 1}}};
    };
    const auto state = [](const toy::Memory& m, int s) {
        return m.member<Recurrent>().view<toy::Hash>(0, m.member<Recurrent>().state(Sequence{s}))(0);
    };
    toy::Memory from = make(20);
    REQUIRE(toy::feed(from, toy::text(0, 0, 8)));
    REQUIRE(toy::feed(from, toy::text(0, 8, 5)));
    auto snapshot = from.snapshot(Sequence{0}).value();
    const Bytes in_place = saved(from, snapshot);
    from.offload(snapshot);
    CHECK(saved(from, snapshot) == in_place);
    from.offload(snapshot, OffloadTo::backend);
    toy::Memory to = make(30);
    const auto found = loaded(in_place, to).value();
    CHECK(found.bytes() == snapshot.bytes());
    REQUIRE(to.restore(Sequence{1}, found));
    CHECK(to.next(Sequence{1}) == Position{13});
    CHECK(state(to, 1) == state(from, 0));
    CHECK(toy::feed(to, toy::text(1, 13, 3)));
    using Other = Hybrid<toy::Pattern, toy::Sliding, toy::Full, RecurrentMemory<States<toy::Hash>>>;
    Other wide{toy::layers,
               toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
               toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 20, .batch = 8}},
               Recurrent{{1, {{3}}}, {.sequences = 2, .batch = 8}}};
    CHECK(refusal(in_place, wide) == "f: member 2: its members.2.layers.0.states.0 is [1], expected [3]");
    CHECK(wide.member<toy::Full>().statistics().offloaded == 0);
}

TEST_CASE("a file of another shape or model is refused, and the message says what was expected") {
    Numbers from = filled();
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value(), {.model = "tiny"});
    Numbers one{{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                {.sequences = 1, .capacity = 8, .batch = 8}};
    CHECK(refusal(file, one) == "f: it has 2 layers, expected 1");
    Numbers three{{.layers = 3, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                  {.sequences = 1, .capacity = 8, .batch = 8}};
    CHECK(refusal(file, three) == "f: it has 2 layers, expected 3");
    auto without_layers = of_two;
    without_layers.erase("layers");
    CHECK(refusal(by_hand({0, 1}, without_layers), from) == "f: it has no layers, expected 2");
    const LayerShape layer{1, 2, 1};
    LayerShape sharing = layer;
    sharing.shares_layer = 0;
    Numbers second{CacheShape{.each_layer = std::vector<LayerShape>{layer, sharing, layer}},
                   {.sequences = 1, .capacity = 8, .batch = 8}};
    CHECK(refusal(file, second) == "f: it has no layers.2.keys, expected [6, 1, 2]");
    Numbers wide{{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 4},
                 {.sequences = 1, .capacity = 8, .batch = 8}};
    CHECK(refusal(file, wide) == "f: its layers.0.values is [6, 1, 1], expected [6, 1, 4]");
    CHECK(refusal(file, from, {.model = "huge"}) == "f: its model is 'tiny', expected 'huge'");
    CHECK(loaded(file, from, {.model = "tiny"}));
    CHECK(loaded(file, from));
    CHECK(from.statistics().offloaded == 0);
}

TEST_CASE("the model of a file is quoted in one line, whatever it is") {
    Numbers from = filled();
    const Bytes file =
        saved(from, from.snapshot(Sequence{0}).value(), {.model = "a\n\x1b[31m" + std::string(1000, 'b')});
    const std::string quoted = "'a??[31m" + std::string(53, 'b') + "...'";
    CHECK(refusal(file, from, {.model = "huge"}) == "f: its model is " + quoted + ", expected 'huge'");
}

TEST_CASE("a disk that fails while a snapshot is loaded is an error of the disk") {
    Numbers from = filled();
    Disk disk;
    disk.put("f", saved(from, from.snapshot(Sequence{0}).value()));
    const auto load_and_count = [&] {
        disk.calls = 0;
        return load("f", from, {.read = {.files = &disk}});
    };
    REQUIRE(load_and_count());
    const int calls = disk.calls;
    CHECK(calls >= 5); // open, length, header, positions and data
    for (int call = 0; call < calls; ++call) {
        disk.fail_at = call;
        CAPTURE(call);
        const auto failed = load_and_count();
        CHECK((failed || failed.error() == (call == 0 ? FileReason::cannot_open : FileReason::cannot_read)));
        CHECK((!failed || call == calls - 1)); // the last call may be the close
    }
}

TEST_CASE("notes are stored with a snapshot, and are read without the data") {
    Numbers from = filled();
    const FileNotes notes{
        {"chat", "[1, 2]\n\"\xe2\x82\xac\""}, {"", ""}, {"model", "not a model"}, {"snapshot.kind", "7"}};
    Disk disk;
    REQUIRE(save("f", from, from.snapshot(Sequence{0}).value(),
                 {.model = "tiny", .notes = notes, .write = {.files = &disk}}));
    CHECK(read_notes("f", {.files = &disk}).value() == notes);
    Bytes file = disk.now.at("f")->now;
    CHECK(loaded(file, from, {.model = "tiny", .notes = notes}));
    CHECK(loaded(file, from));
    file.back() ^= std::byte{1};
    disk.put("f", file);
    CHECK(read_notes("f", {.files = &disk}).value() == notes);
    CHECK(loaded(file, from).error() == FileReason::altered);
    const std::string text = "not a model";
    const auto note = std::search(file.begin(), file.end(), text.begin(), text.end(),
                                  [](std::byte b, char c) { return static_cast<char>(b) == c; });
    *note ^= std::byte{1};
    disk.put("f", file);
    CHECK(read_notes("f", {.files = &disk}).error() == FileReason::altered);
    CHECK(read_notes("g", {.files = &disk}).error() == FileReason::cannot_open);
    REQUIRE(save("f", from, from.snapshot(Sequence{0}).value(), {.model = "tiny", .write = {.files = &disk}}));
    CHECK(read_notes("f", {.files = &disk}).value().empty());
    CHECK(violation_of([&] {
              static_cast<void>(save("f", from, Sequence{0}, {.notes = {{"a", "\xff"}}, .write = {.files = &disk}}));
          })
          != "");
}

TEST_CASE("a file with other notes is refused, and nothing changes") {
    Numbers from = filled();
    const Bytes file = saved(from, from.snapshot(Sequence{0}).value(), {.notes = {{"a", "x"}, {"b", "y"}}});
    const std::string before = numbers::portrait(from);
    CHECK(loaded(file, from, {.notes = {{"b", "y"}}}));
    CHECK(refusal(file, from, {.notes = {{"a", "x"}, {"b", "z"}}}) == "f: its note 'b' is 'y', expected 'z'");
    CHECK(refusal(file, from, {.notes = {{"c", "x"}}}) == "f: its note 'c' is missing, expected 'x'");
    CHECK(numbers::portrait(from) == before);
}

TEST_CASE("a file whose snapshot contradicts itself is refused, and nothing changes") {
    Numbers to = filled();
    const std::string before = numbers::portrait(to);
    CHECK(loaded(by_hand({0, 1}, of_two), to).value().tokens() == 2);
    const auto with = [](const std::string& name, const std::string& value) {
        auto metadata = of_two;
        metadata[name] = value;
        return metadata;
    };
    const std::string range = "f: its snapshot has no valid range of positions";
    CHECK(refusal(by_hand({0, 1}, with("from", "-1")), to) == range);
    CHECK(refusal(by_hand({0, 1}, with("from", "3")), to) == range);
    CHECK(refusal(by_hand({0, 1}, with("to", "4294967298")), to) == range);
    CHECK(refusal(by_hand({0, 1}, with("to", "2x")), to) == range);
    CHECK(refusal(by_hand({0, 1}, with("is_window", "")), to) == range);
    const std::string order = "f: the positions of its snapshot are not in order";
    CHECK(refusal(by_hand({1, 0}, of_two), to) == order);
    CHECK(refusal(by_hand({0, 2}, of_two), to) == order);
    CHECK(refusal(by_hand({0, 1}, with("from", "1")), to) == order);
    CHECK(refusal(by_hand({-1, 1}, of_two), to) == order);
    CHECK(refusal(by_hand({1}, of_two), to) == "f: its snapshot lacks positions that the window of this cache sees");
    CHECK(refusal(by_hand({0, 1}, with("kind", "3")), to) == "f: it has no snapshot of a cache");
    CHECK(refusal(by_hand({0, 1}, of_two, Dtype::i32), to)
          == "f: its layers.0.keys has elements of type I32, expected F32, F16 or BF16");
    CHECK(numbers::portrait(to) == before);
    CHECK(audit(to) == "");
}

TEST_CASE("a saved snapshot with any byte changed, or cut off anywhere, is refused, and nothing changes") {
    Numbers from = filled();
    const Bytes whole = saved(from, from.snapshot(Sequence{0}).value());
    Numbers to = cache();
    for (std::size_t at = 0; at < whole.size(); ++at) {
        Bytes bytes = whole;
        bytes[at] ^= std::byte{0x04};
        CAPTURE(at);
        CHECK_FALSE(loaded(bytes, to));
        CHECK_FALSE(loaded(Bytes{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}, to));
    }
    CHECK(to.statistics().offloaded == 0);
    CHECK(to.statistics().free == to.cells());
}

TEST_CASE("a snapshot goes through a file of the operating system, streamed or mapped") {
    const Folder folder;
    Numbers from = filled();
    std::uint64_t done = 0;
    REQUIRE(save(folder.path / "s.safetensors", from, from.snapshot(Sequence{0}).value(),
                 {.write = {.progress = [&](std::uint64_t now, std::uint64_t) { done = now; }}}));
    CHECK(done > 0);
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        Numbers to = cache();
        const CellSnapshot found = load(folder.path / "s.safetensors", to, {.read = {.access = access}}).value();
        REQUIRE(to.restore(Sequence{2}, found));
        CHECK(values(to, 2) == Values{1, 2, 3, 4, 5, 6});
    }
    CHECK(load(folder.path / "none", from).error() == FileReason::cannot_open);
    CHECK(folder.names() == std::vector<std::string>{"s.safetensors"});
}

} // namespace test_snapshots
