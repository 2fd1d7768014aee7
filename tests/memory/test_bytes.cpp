// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What memories, `attend` and prefix trees say that they take is what they ask allocators for.
#include "../live_bytes.hpp"
#include "../skip.hpp"
#include "../violations.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/attention/attend_bytes.hpp>
#include <cellar/attention/attend_residual.hpp>
#include <cellar/backend/no_data.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/models/make_memory.hpp>
#include <cellar/models/models.hpp>
#include <cellar/models/sizes.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_bytes {

using namespace cellar;

namespace {

constexpr const char* needs_glibc = "allocations are counted with glibc and without sanitizers only";

std::mt19937 random_numbers{20261127}; // NOLINT(cert-msc32-c,cert-msc51-cpp): the same series in every run

std::int32_t number(std::int32_t least, std::int32_t most) {
    return std::uniform_int_distribution{least, most}(random_numbers);
}
template <class T>
T one_of(std::initializer_list<T> values) {
    return values.begin()[number(0, static_cast<std::int32_t>(values.size()) - 1)];
}

CacheLimits random_limits() {
    CacheLimits limits{.sequences = number(1, 20),
                       .capacity = number(1, 700), // so that no array has 32 MiB, and other alignment
                       .batch = number(0, 100),
                       .padding = one_of({1, 1, 16, 32}),
                       .start_padding = one_of({0, 1, 64})};
    if (number(0, 1) == 0) limits.cells = number(1, 5000);
    limits.placement = one_of({Placement::blocks, Placement::scattered, Placement::contiguous});
    limits.positions = one_of({Positions::consecutive, Positions::any});
    return limits;
}

CacheShape random_shape() {
    CacheShape shape;
    const int layers = number(1, 70);
    for (int layer = 0; layer < layers; ++layer) {
        LayerShape own{number(1, 2), 32 * number(1, 2), 32 * number(0, 2)};
        if (layer > 0 && number(0, 3) == 0 && shape.each_layer.back().shares_layer < 0) {
            own = shape.each_layer.back();
            own.shares_layer = layer - 1;
        }
        shape.each_layer.push_back(own);
    }
    return shape;
}

/// What passes ask for when they are asked for all that `uses` says, with as many cells as a sequence can see.
template <class Memory>
void check_passes(Memory& memory, const CacheLimits& limits, std::int32_t row, const PassUses& uses,
                  const MemoryBytes& bytes) {
    std::int64_t before = live_bytes();
    for (const std::int32_t tokens : {1, limits.batch / 2, limits.batch}) {
        auto pass = memory.reserve(tokens);
        static_cast<void>(pass.template mask<bool>());
        static_cast<void>(pass.template mask<half>());
    }
    {
        auto pass = memory.reserve(limits.batch);
        static_cast<void>(pass.template mask<float>());
    }
    CHECK(live_bytes() - before == bytes.masks);
    before = live_bytes();
    memory.reserve_lists(row, uses.page_size);
    CHECK(live_bytes() - before == bytes.lists);
}

template <class BytesOf>
void check_largest(CacheLimits limits, BytesOf bytes_of) {
    CAPTURE(limits.sequences);
    CAPTURE(limits.capacity);
    const std::int64_t most = std::int64_t{number(1, 1 << 20)} << number(0, 20);
    const std::optional<CacheLimits> found = largest_limits(limits, most, bytes_of);
    limits.cells = found ? found->cells : 0;
    if (found) CHECK(bytes_of(limits).total() <= most);
    ++limits.cells;
    if (limits.cells <= 1 << 30) CHECK(bytes_of(limits).total() > most);
}

/// The same for a cache of that window.
template <class Memory, class Window = std::remove_cvref_t<decltype(std::declval<Memory&>().window())>>
void check_largest(const Window& window = Window{}) {
    for (int i = 0; i < 30; ++i) {
        const CacheShape shape = random_shape();
        const PassUses uses{.masks = number(0, 1) == 0, .lists = true, .page_size = one_of({0, 1, 16, 64})};
        CacheLimits limits = random_limits();
        if (number(0, 1) == 0) limits.capacity = 0; // as long as the pool
        check_largest(limits, [&](const CacheLimits& some) { return Memory::bytes_for(shape, some, window, uses); });
    }
}

template <class Memory, class... Window>
void check_cache(const Window&... window) {
    for (int i = 0; i < 20; ++i) {
        const CacheLimits limits = random_limits();
        CacheShape shape = random_shape();
        CAPTURE(limits.sequences);
        CAPTURE(limits.capacity);
        CAPTURE(limits.cells);
        const PassUses uses{.masks = true, .lists = true, .page_size = one_of({0, 1, 16, 64})};
        const MemoryBytes bytes = [&] {
            if constexpr (sizeof...(Window) != 0) {
                return Memory::bytes_for(shape, limits, window..., uses);
            } else if constexpr (requires { Memory::bytes_for(shape, limits, uses); }) {
                return Memory::bytes_for(shape, limits, uses);
            } else {
                return Memory::bytes_for(shape, limits, {}, uses);
            }
        }();
        watch_allocations();
        Memory memory{shape, limits, window...};
        CHECK(bytes.data == memory.bytes());
        CHECK(bytes.data + bytes.bookkeeping == live_bytes());
        std::int32_t row = memory.cells();
        if constexpr (requires { memory.window(); })
            if (limits.positions == Positions::consecutive)
                row = static_cast<std::int32_t>(
                    std::min<std::int64_t>(row, memory.window().cells(1, row, memory.limits().batch)));
        check_passes(memory, memory.limits(), row, uses, bytes);
        CHECK(live_bytes() == bytes.total());
    }
}

StateLimits random_states() {
    StateLimits limits{.sequences = number(1, 20),
                       .batch = number(0, 100),
                       .rollback = number(0, 4),
                       .checkpoints = number(0, 9),
                       .snapshots = number(0, 9)};
    if (limits.checkpoints > 0) limits.checkpoint_interval = number(0, 100);
    return limits;
}

struct Conv : StateTensor<2> {};
struct Ssm : StateTensor<3, half> {};
struct Shift : StateTensor<1, bf16> {};

/// Work of several threads, one after the other.
struct Several {
    int n;
    int count() const { return n; }
    template <class F>
    void run(F&& f) const {
        for (int thread = 0; thread < n; ++thread) f(thread);
    }
};

constexpr int text = 4200; // positions: enough for as many parts as a history is divided into

/// A cache of one layer whose sequences share a text, each up to a position of its own.
template <class Layout, class TheShift = DisabledShift>
Cache<Layout, FullCausal, TheShift> with_text(const LayerShape& shape, std::int32_t sequences, bool whole,
                                              const TheShift& shift = TheShift{}) {
    Cache<Layout, FullCausal, TheShift> memory{
        {.each_layer = {shape}}, {.sequences = sequences, .cells = 6016, .batch = 700}, {}, shift};
    for (int at = 0; at < text; at += 700) {
        auto pass = memory.begin(Sequence{0}, 700).value();
        pass.mark_put(0);
        pass.commit();
    }
    for (std::int32_t s = 1; s < sequences; ++s)
        memory.copy_prefix(Sequence{0}, Sequence{s}, Position{whole ? text : number(0, text)}).value();
    return memory;
}

/// What the first call of `attend` allocates.
template <class Memory>
std::int64_t taken_by_attend(Memory& memory, const BatchBuilder& batch, const AttendCall& call) {
    const LayerShape shape = memory.shape()[0];
    auto pass = memory.begin(batch).value();
    pass.mark_put(0);
    const auto rows = static_cast<std::size_t>(pass.tokens() * call.heads);
    const std::vector<float> q(rows * static_cast<std::size_t>(shape.key_dim));
    std::vector<float> out(rows * static_cast<std::size_t>(shape.value_dim));
    watch_allocations();
    attend(pass, 0, q, out, {.reads_shared_once = call.reads_shared_once}, Several{call.threads});
    return live_bytes();
}

template <class Layout, bool OnRead = false>
void check_attention() {
    for (int i = 0; i < 8; ++i) {
        const int kv_heads = number(1, 3);
        const int group = one_of({1, 2, 5, 8, 20});
        const LayerShape shape{kv_heads, 32 * number(1, 3), 32 * number(1, 3)};
        const AttendCall call{.tokens = number(1, 90),
                              .sequences = number(1, 12),
                              .heads = kv_heads * group,
                              .threads = number(1, 3),
                              .reads_shared_once = number(0, 1) == 0,
                              .rotates_on_read = OnRead};
        CAPTURE(call.tokens);
        CAPTURE(call.sequences);
        CAPTURE(group);
        auto memory = [&] {
            const bool whole = number(0, 1) == 0;
            if constexpr (OnRead) {
                const RotateOnRead<Interleaved> shift{RopeShift<Interleaved>{rope_frequencies(shape.key_dim)}};
                return with_text<Layout>(shape, call.sequences, whole, shift);
            } else {
                return with_text<Layout>(shape, call.sequences, whole);
            }
        }();
        BatchBuilder batch;
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(call.sequences));
        for (int t = 0; t < call.tokens; ++t) ++tokens[static_cast<std::size_t>(number(0, call.sequences - 1))];
        for (std::int32_t s = 0; s < call.sequences; ++s)
            batch.add(Sequence{s}, memory.next(Sequence{s}), tokens[static_cast<std::size_t>(s)]);
        const std::int64_t taken = taken_by_attend(memory, batch, call);
        CHECK(taken > 0);
        CHECK(taken <= attend_bytes(shape, call));
    }
}

} // namespace

TEST_CASE("attend takes no more than it says, in any format") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    check_attention<StandardV<float>>();
    check_attention<Blocked<bf16>>();
    check_attention<Blocked<q8_0, 64, q4_0>>();
    check_attention<StandardV<int8_per_head>>();
    check_attention<StandardV<float>, true>();
}

// Apart, because what a thread takes besides is less than is said on most processors.
TEST_CASE_TEMPLATE("rows of a tile take no more than attend_bytes counts", Format, q8_0, q4_1, iq4_nl, Affine<8, 64>,
                   Affine<3, 32>, mxfp4, nvfp4, int8_per_head, fp8_e4m3, fp8_e5m2) {
    for (const int dim : {64, 128, 576}) {
        HostBackend backend;
        const detail::LayerStore<StandardV<Format>, HostBackend> store{backend, 64, {1, dim, dim}};
        const auto source = detail::stored_rows<false>(store.read_keys(), dim);
        using Rows = detail::TileRows<std::remove_cv_t<decltype(source)>>;
        const typename Rows::Kernels kernels{detail::best_instructions()};
        for (const std::int64_t rows : {1, 60, 960}) {
            detail::ScratchArrays counted;
            const Rows taken{source, kernels, rows, counted};
            CAPTURE(dim);
            CAPTURE(rows);
            CHECK(counted.bytes() <= detail::bytes_of_tile_rows(dim, rows));
        }
    }
}

TEST_CASE("attend with a residual takes no more than it says, and what it merges comes on top") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    const LayerShape shape{2, 64, 64};
    const AttendCall call{.tokens = 300, .heads = 16, .has_residual = true};
    AttendCall without = call;
    without.has_residual = false;
    using Older = Cache<StandardV<q8_0>, FullCausal, DisabledShift>;
    using Newer = Cache<StandardV<half>, SlidingWindow<>, DisabledShift>;
    const CacheLimits limits{.capacity = 1000, .batch = 300};
    Hybrid<WithResidual, Older, Newer> memory{1, Older{{.each_layer = {shape}}, limits},
                                              Newer{{.each_layer = {shape}}, limits, SlidingWindow<>{32}}};
    auto pass = memory.begin(Sequence{0}, call.tokens).value();
    pass.mark_put(0);
    constexpr std::int64_t results = std::int64_t{300} * 16 * 64;
    const std::vector<float> q(std::size_t{results});
    std::vector<half> out(q.size()); // so the results of both parts are in float elsewhere
    watch_allocations();
    attend(pass, 0, q, out);
    const std::int64_t taken = live_bytes();
    const std::int64_t merged = 2 * (results + 300 * 16) * std::int64_t{sizeof(float)};
    CHECK(taken >= merged);
    CHECK(taken <= attend_bytes(shape, call) + attend_bytes(shape, without));
    CHECK(attend_bytes(shape, call) - attend_bytes(shape, without) == merged);
}

TEST_CASE("what attend says is not far from what it takes where sequences decode together") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    for (const bool shared : {false, true}) {
        const LayerShape shape{4, 128, 128};
        const AttendCall call{.tokens = 24, .sequences = 24, .heads = 16, .reads_shared_once = shared};
        auto memory = with_text<Blocked<bf16>>(shape, call.sequences, true);
        BatchBuilder batch;
        for (std::int32_t s = 0; s < call.sequences; ++s) batch.add(Sequence{s}, memory.next(Sequence{s}));
        const std::int64_t taken = taken_by_attend(memory, batch, call);
        CHECK(taken <= attend_bytes(shape, call));
        if (!shared) CHECK(attend_bytes(shape, call) <= 2 * taken);
    }
    static_assert(attend_bytes({8, 128, 128}, {.tokens = 200, .sequences = 200, .heads = 32}) < 70'000'000);
}

TEST_CASE("what a prefix tree will take is known before it is made") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    using Memory = RecurrentMemory<States<Shift>>;
    for (int i = 0; i < 10; ++i) {
        const Sequence s{0};
        Memory memory{StateShape{1, {{1}}}, {.batch = 64, .snapshots = 200}};
        const int salts = number(1, 4), prefixes = number(0, 100);
        std::int64_t tokens = 0, with_tree = 0;
        watch_allocations();
        {
            PrefixTree tree{memory};
            for (int k = 0; k < prefixes; ++k) {
                const std::vector<std::int32_t> own{k, 1, 2, 3, k}; // begins like no other one: no edge is divided
                tokens += std::ssize(own);
                memory.remove(s, Position{0}, to_end).value();
                auto pass = memory.begin(s, static_cast<std::int32_t>(own.size())).value();
                for (const MicroBatch& part : pass.micro_batches()) pass.mark_written(0, part);
                pass.commit();
                tree.insert(s, own, static_cast<std::uint64_t>(k % salts)).value();
            }
            with_tree = live_bytes();
        }
        const std::int64_t nodes = prefixes + std::min(salts, prefixes);
        const std::int64_t most = PrefixTree<Memory>::bytes_for(nodes, tokens).total();
        const std::int64_t snapshots = prefixes * std::int64_t{sizeof(cellar::detail::KeptSlot)};
        CHECK(with_tree - live_bytes() == most - tokens * std::int64_t{sizeof(std::int32_t)} + snapshots);
    }
    CHECK(violation_of([] { static_cast<void>(PrefixTree<Memory>::bytes_for(3, -1)); })
          == "bytes_for: 3 nodes and -1 tokens, expected 0 or more");
}

TEST_CASE("a prefix tree takes what it says, besides what its snapshots own") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    for (int i = 0; i < 10; ++i) {
        const Sequence s{0};
        RecurrentMemory<States<Shift>> memory{StateShape{1, {{1}}}, {.batch = 64, .rollback = 63, .snapshots = 40}};
        watch_allocations();
        std::int64_t with_tree = 0, own = 0, snapshots = 0, most_nodes = 0, most_bytes = 0;
        {
            PrefixTree tree{memory};
            for (int n = number(1, 120); n > 0; --n) {
                std::vector<std::int32_t> tokens(static_cast<std::size_t>(number(1, 60)));
                for (std::int32_t& token : tokens) token = number(0, 4) == 0 ? 1 : 0; // many begin alike
                memory.remove(s, Position{0}, to_end).value();
                auto pass = memory.begin(s, static_cast<std::int32_t>(tokens.size())).value();
                for (const MicroBatch& part : pass.micro_batches()) pass.mark_written(0, part);
                pass.commit();
                tree.insert(s, tokens).value();
                most_nodes = std::max(most_nodes, tree.statistics().nodes + 1); // and the root
                if (number(0, 5) == 0) static_cast<void>(tree.evict());
            }
            most_bytes = decltype(tree)::bytes_for(most_nodes + 2, tree.statistics().tokens).total();
            with_tree = live_bytes();
            own = tree.bytes();
            snapshots = tree.statistics().snapshots;
        }
        CHECK(own <= most_bytes);
        CHECK(with_tree - live_bytes() == own + snapshots * std::int64_t{sizeof(cellar::detail::KeptSlot)});
    }
}

TEST_CASE("largest_limits is the inverse of bytes_for: what it finds fits, and one more cell does not") {
    check_largest<Cache<StandardV<float>>>();
    check_largest<Cache<Blocked<bf16>>>();
    check_largest<Cache<PermutedV<half, bf16>, FullCausal, UnrotatedShift>>();
    check_largest<Cache<Blocked<q8_0, 64, q4_0>, SlidingWindow<40>>>();
    check_largest<Cache<StandardV<float>, SlidingWindow<>>>(SlidingWindow<>{300, {.retention = 400, .sinks = 4}});
    check_largest<Cache<StandardV<float>, ChunkedAttention<64>>>();
    using Full = Cache<StandardV<half>>;
    using Sliding = Cache<StandardV<half>, SlidingWindow<>>;
    using Both = Hybrid<RunTimePattern, Sliding, Full>;
    for (int i = 0; i < 20; ++i) {
        const CacheShape shape = random_shape();
        const CacheLimits of_window = random_limits();
        check_largest(random_limits(), [&](const CacheLimits& limits) {
            return Both::bytes_for(9, Sliding::bytes_for(shape, of_window, SlidingWindow<>{50}),
                                   Full::bytes_for(shape, limits))
                   + PrefixTree<Both>::bytes_for(300, 10'000);
        });
    }
    constexpr auto found = largest_limits(CacheLimits{.cells = 7, .padding = 16}, 1000, [](const CacheLimits& limits) {
        return MemoryBytes{.data = 3 * std::int64_t{limits.cells}};
    });
    static_assert(found->cells == 333 && found->padding == 16);
    CHECK(largest_limits({}, INT64_MAX, [](const CacheLimits&) { return MemoryBytes{}; })->cells == 1 << 30);
}

TEST_CASE("caches take what they say, with all masks and lists") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    check_cache<Cache<StandardV<float>>>();
    check_cache<Cache<PermutedV<half, bf16>, FullCausal, UnrotatedShift>>();
    check_cache<Cache<Blocked<bf16>, SlidingWindow<40>>>(SlidingWindow<40>{});
    check_cache<Cache<StandardV<float>, SlidingWindow<>>>(SlidingWindow<>{300, {.retention = 400, .sinks = 4}});
    check_cache<Cache<StandardV<float>, ChunkedAttention<64>>>(ChunkedAttention<64>{});
    check_cache<Cache<StandardV<q8_0, q4_0>>>();
    check_cache<Cache<Blocked<int8_per_head>>>();
}

TEST_CASE("caches without data and memories of encoders take what they say") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    check_cache<EncoderMemory<StandardV<half>>>();
    for (int i = 0; i < 20; ++i) {
        using Memory = Cache<StandardV<float>, FullCausal, UnrotatedShift, NoData>;
        const CacheLimits limits = random_limits();
        const CacheShape shape = random_shape();
        watch_allocations();
        const Memory memory{shape, limits};
        CHECK(Memory::bytes_for(shape, limits).data == 0);
        CHECK(Memory::bytes_for(shape, limits).total() == live_bytes());
    }
}

TEST_CASE("a cache that grows takes what it says once it has grown") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    using Memory = Cache<StandardV<float>>;
    const CacheShape shape{.layers = 3, .kv_heads = 2, .head_dim = 8};
    const CacheLimits limits{.sequences = 2, .cells = 1000, .initial_cells = 100, .batch = 500};
    watch_allocations();
    Memory memory{shape, limits};
    const MemoryBytes bytes = Memory::bytes_for(shape, limits);
    CHECK(live_bytes() < bytes.total());
    const std::vector<float> rows(500 * 16);
    for (const Sequence s : {Sequence{0}, Sequence{1}}) {
        auto pass = memory.begin(BatchBuilder{s, Position{0}, 500}).value();
        for (int layer = 0; layer < 3; ++layer) pass.put(layer, rows, rows);
        pass.commit();
    }
    CHECK(bytes.data == memory.bytes());
    CHECK(live_bytes() - std::int64_t{sizeof(float)} * std::ssize(rows) == bytes.total());
}

TEST_CASE("recurrent memories take what they say") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    using Memory = RecurrentMemory<States<Conv, Ssm, Shift>>;
    for (int i = 0; i < 50; ++i) {
        std::vector<std::vector<StateExtents>> layers(static_cast<std::size_t>(number(1, 40)));
        for (std::vector<StateExtents>& layer : layers)
            layer = {{number(1, 3), number(1, 50)}, {number(1, 4), number(1, 4), number(1, 9)}, {number(1, 50)}};
        const StateLimits limits = random_states();
        const StateShape shape{layers};
        const MemoryBytes bytes = Memory::bytes_for(shape, limits);
        watch_allocations();
        const Memory memory{shape, limits};
        CHECK(bytes.data == memory.bytes());
        CHECK(bytes.total() == live_bytes());
    }
}

TEST_CASE("hybrids take what their members take, and their table of layers") {
    if (!can_watch) CELLAR_SKIP(needs_glibc);
    using Full = Cache<StandardV<half>>;
    using Sliding = Cache<StandardV<half>, SlidingWindow<>>;
    using Memory = Hybrid<RunTimePattern, Sliding, Full>;
    for (int i = 0; i < 20; ++i) {
        const CacheLimits limits = random_limits();
        const CacheShape shape = random_shape();
        const SlidingWindow<> window{50};
        const auto layers = static_cast<int>(shape.each_layer.size());
        std::vector<int> members(static_cast<std::size_t>(2 * layers), 1);
        std::fill_n(members.begin(), layers, 0);
        const MemoryBytes bytes =
            Memory::bytes_for(2 * layers, Sliding::bytes_for(shape, limits, window), Full::bytes_for(shape, limits));
        watch_allocations();
        const Memory memory{members, Sliding{shape, limits, window}, Full{shape, limits}};
        CHECK(bytes.data == memory.bytes());
        CHECK(bytes.total() == live_bytes());
        static_assert(Hybrid<Repeat<Sliding, Full>, Sliding, Full>::bytes_for(2, MemoryBytes{.data = 1}).total() == 1);
    }
}

} // namespace test_bytes
