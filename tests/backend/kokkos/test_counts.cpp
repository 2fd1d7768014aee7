// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts the work that a pass gives to Kokkos, and its allocations. docs/kokkos.md quotes the numbers.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "hybrid/failing_allocations.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

namespace test_counts {

using namespace cellar;
using cellar_test::HostSpace;
using cellar_test::LateDevice;

namespace {

constexpr int max_new_calls = 1'000'000; // none fails

struct Counts {
    int allocations = 0;
    int fences = 0;
    int copies = 0;
    int kernels = 0;
    int new_calls = 0;

    bool operator==(const Counts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << c.allocations << " allocations, " << c.fences << " fences, " << c.copies << " copies, " << c.kernels
               << " kernels, " << c.new_calls << " calls of new";
}

/// Counts the work that a call gives to Kokkos. The listener allocates, so `count_new_calls` needs a run of its own.
template <class Call>
void count(Counts& counts, Call call) {
    const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++counts.kernels; },
                                          .fence = [&](std::string_view) { ++counts.fences; },
                                          .allocation = [&](std::string_view) { ++counts.allocations; },
                                          .copy = [&](auto...) { ++counts.copies; }}};
    call();
}

template <class Call>
void count_new_calls(Counts& counts, Call call) {
    const FailingAllocations counter{max_new_calls};
    call();
    if (!cellar_test::new_calls_are_ours) return;
    counts.new_calls += static_cast<int>(max_new_calls - FailingAllocations::left());
}

/// The counts of a pass by operation.
struct PassCounts {
    Counts begin;
    Counts put; ///< in all layers
    Counts get; ///< in all layers, with a mask
    Counts commit;
};

constexpr int layers = 4;
constexpr int heads = 8;
constexpr int dim = 64;
constexpr int batch = 256;

struct Conv : StateTensor<2> {};
struct Ssm : StateTensor<3> {};

template <class Backend, class Layout>
class Model {
public:
    /// Runs a pass over the next `tokens` tokens.
    template <class Count>
    void pass(int tokens, PassCounts& counts, Count count) {
        positions_.clear();
        for (int i = 0; i < tokens; ++i) positions_.push_back(Position{next_ + i});
        next_ += tokens;
        sequences_.assign(positions_.size(), Sequence{0});
        const std::int64_t row = std::int64_t{heads} * dim;
        const StridedView<const cellar::half, 3> rows{rows_.data(), {tokens, heads, dim}, {row, dim, 1}};
        using Begun = decltype(cache_.begin({positions_, sequences_}));
        std::optional<Begun> begun;
        count(counts.begin, [&] { static_cast<void>(begun.emplace(cache_.begin({positions_, sequences_}))); });
        REQUIRE(*begun);
        auto& pass = **begun;
        count(counts.put, [&] {
            for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
        });
        count(counts.get, [&] {
            for (int layer = 0; layer < layers; ++layer) mask_elements_ += pass.get(layer).mask.size();
        });
        count(counts.commit, [&] { pass.commit(); });
    }

    /// The counts of a pass that follows passes of the same size.
    PassCounts after_warm_up(int tokens) {
        PassCounts counts;
        const auto without_counting = [](Counts&, auto call) { call(); };
        {
            auto reserved = cache_.reserve(batch);
            static_cast<void>(reserved.mask());
        }
        for (int round = 0; round < 2; ++round) pass(tokens, counts, without_counting);
        pass(tokens, counts, [](Counts& of, auto call) { count(of, call); });
        pass(tokens, counts, [](Counts& of, auto call) { count_new_calls(of, call); });
        cache_.fence(); // work that reads the rows
        return counts;
    }

private:
    Cache<Layout, FullCausal, DisabledShift, Backend> cache_{
        CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim},
        {.sequences = 1, .capacity = 5 * batch, .batch = batch}};
    std::vector<cellar::half> rows_ = std::vector<cellar::half>(std::size_t{batch} * heads * dim);
    std::vector<Position> positions_;
    std::vector<Sequence> sequences_;
    int next_ = 0;
    std::int64_t mask_elements_ = 0;
};

using HostWork = KokkosBackend<HostSpace>;

/// False if Kokkos itself fences or allocates: Threads waits after every kernel and allocates in doing so, Serial
/// before 4.6 allocates for each kernel.
bool kokkos_adds_nothing() {
    const std::string_view name{HostSpace::name()};
    return name != "Threads" && !(name == "Serial" && KOKKOS_VERSION < 40600);
}

} // namespace

TEST_CASE_TEMPLATE("counts: host work launches kernels for large batches and nothing else", Layout,
                   StandardV<cellar::half>, PermutedV<cellar::half>) {
    if (!kokkos_adds_nothing()) CELLAR_SKIP("this Kokkos itself fences or allocates");
    const int pieces = HostSpace{}.concurrency() > 1 ? 2 * layers : 0; // a single thread needs no launch
    const PassCounts decode = Model<HostWork, Layout>{}.after_warm_up(1);
    CHECK(decode.begin == Counts{});
    CHECK(decode.put == Counts{});
    CHECK(decode.get == Counts{});
    CHECK(decode.commit == Counts{});
    const PassCounts prefill = Model<HostWork, Layout>{}.after_warm_up(batch);
    CHECK(prefill.begin == Counts{});
    CHECK(prefill.put == Counts{.kernels = pieces});
    CHECK(prefill.get == Counts{});
    CHECK(prefill.commit == Counts{});
}

// A graph captures the kernels, which read the list at the same address in every pass.
TEST_CASE_TEMPLATE("counts: after upload_cells, put launches kernels and nothing else", Layout, StandardV<cellar::half>,
                   PermutedV<cellar::half>) {
    Cache<Layout, FullCausal, DisabledShift, LateDevice> cache{
        CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim},
        {.sequences = 2, .capacity = 100, .batch = 32}};
    cache.reserve(32).drop();
    const std::vector<cellar::half> rows(std::size_t{2} * heads * dim);
    const void* address = nullptr;
    for (int p = 0; p < 20; ++p) {
        const std::vector<Position> positions{Position{p}, Position{p}};
        const std::vector<Sequence> sequences{Sequence{0}, Sequence{1}};
        auto pass = cache.begin({positions, sequences});
        REQUIRE(pass);
        const void* to = nullptr;
        {
            const cellar_test::Listener listener{{.copy = [&](const void* at, auto...) { to = at; }}};
            pass->upload_cells();
        }
        REQUIRE(to != nullptr);
        if (p > 0) CHECK(to == address);
        address = to;
        Counts counts;
        count(counts, [&] {
            for (int layer = 0; layer < layers; ++layer) pass->put(layer, rows, rows);
        });
        CHECK(counts == Counts{.kernels = 2 * layers});
        pass->commit();
    }
}

TEST_CASE_TEMPLATE("counts: device work copies one list for all puts and one for the mask", Layout,
                   StandardV<cellar::half>, PermutedV<cellar::half>) {
    for (const int tokens : {1, batch}) {
        CAPTURE(tokens);
        const PassCounts counts = Model<LateDevice, Layout>{}.after_warm_up(tokens);
        CHECK(counts.begin == Counts{});
        CHECK(counts.put == Counts{.copies = 1, .kernels = 2 * layers});
        CHECK(counts.get == Counts{.copies = 1, .kernels = 1});
        CHECK(counts.commit == Counts{});
    }
}

TEST_CASE("counts: after a reserved pass, no list grows in the largest pass") {
    Cache<StandardV<cellar::half>, FullCausal, DisabledShift, LateDevice> cache{
        CacheShape{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 100, .batch = 100}};
    cache.reserve(100).drop();
    const std::vector<cellar::half> rows(std::size_t{100} * heads * dim);
    int grown = 0;
    {
        const cellar_test::Listener listener{
            {.allocation = [&](std::string_view name) { grown += name == "cellar: staging"; }}};
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 100});
        REQUIRE(pass);
        pass->put(0, rows, rows);
        static_cast<void>(pass->mask()); // two words for each token, the second of which is not full
        pass->commit();
    }
    CHECK(grown == 0);
    cache.fence();
}

// The copies of `get` and of `put` are a list each, which all layers share.
TEST_CASE("counts: the states of a layer take one launch to get and one to put") {
    using Memory = RecurrentMemory<States<Conv, Ssm>, LateDevice>;
    Memory memory{StateShape{layers, {{4, 64}, {heads, 16, 16}}}, {.sequences = 3, .batch = 3}};
    PassCounts counts;
    const auto pass_of = [&](int p, auto count) {
        const std::vector<Position> positions{Position{p}, Position{p}, Position{p}};
        const std::vector<Sequence> sequences{Sequence{0}, Sequence{1}, Sequence{2}};
        auto pass = memory.begin({positions, sequences});
        REQUIRE(pass);
        for (int layer = 0; layer < layers; ++layer) {
            const MicroBatch& micro_batch = pass->micro_batches()[0];
            count(counts.get, [&] { static_cast<void>(pass->get<Conv>(layer, micro_batch)); });
            count(counts.put, [&] { pass->put(layer, micro_batch); });
        }
        count(counts.commit, [&] { pass->commit(); });
    };
    for (int p = 0; p < 3; ++p) pass_of(p, [](Counts&, auto call) { call(); });
    pass_of(3, [](Counts& of, auto call) { count(of, call); });
    pass_of(4, [](Counts& of, auto call) { count_new_calls(of, call); });
    CHECK(counts.get == Counts{.copies = 1, .kernels = layers});
    CHECK(counts.put == Counts{.copies = 1, .kernels = layers});
    CHECK(counts.commit == Counts{});
}

// There are many tensors when a new sequence starts from zeros: those of all layers.
TEST_CASE("counts: copy_slots takes one launch for every 8 tensors, and one list for all") {
    LateDevice device;
    auto buffer = device.allocate<float>(20 * 16);
    std::vector<SlotRows> tensors;
    for (int i = 0; i < 20; ++i) {
        auto* const slots = reinterpret_cast<std::byte*>(buffer.data() + 16 * i);
        tensors.push_back({slots, slots, 16, 16, 16});
    }
    int slot = 0;
    for (const std::size_t n : {1U, 8U, 9U, 20U}) {
        CAPTURE(n);
        const std::vector<SlotCopy> copies{{0, slot++ % 3 + 1}};
        Counts counts;
        count(counts, [&] { device.copy_slots(std::span{tensors}.first(n), copies); });
        CHECK(counts.kernels == static_cast<int>((n + 7) / 8));
        CHECK(counts.copies == 1);
    }
    device.fence(); // before the buffer is destroyed
}

namespace {

/// The counts of a removal of 10 tokens, 30 tokens behind which have another sequence's keys or their own.
template <class Layout>
Counts count_removal(int model_layers, bool shared, int warm_ups) {
    using Shift = RopeShift<Neox>;
    Cache<Layout, FullCausal, Shift, LateDevice> cache{
        CacheShape{.layers = model_layers, .kv_heads = 2, .head_dim = dim},
        {.sequences = 2, .capacity = 100, .batch = 50},
        FullCausal{},
        Shift{rope_frequencies(dim)}};
    const std::vector<float> rows(std::size_t{50} * 2 * dim);
    Counts counts;
    for (int round = 0; round <= warm_ups; ++round) {
        REQUIRE(cache.remove(Sequence{0}, Position{0}, to_end));
        REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
        BatchBuilder tokens;
        for (int p = 0; p < 50; ++p) tokens.add(Sequence{0}, Position{p});
        auto pass = cache.begin(tokens);
        REQUIRE(pass);
        for (int layer = 0; layer < model_layers; ++layer) pass->put(layer, rows, rows);
        pass->commit();
        if (shared) REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{40}));
        Counts now;
        bool removed = false;
        const int before = warm_ups - round; // other tokens, by another distance
        count(now, [&] {
            removed = cache.remove(Sequence{0}, Position{10 - 3 * before}, Position{20 - 2 * before}).has_value();
        });
        REQUIRE(removed);
        counts = now;
    }
    cache.fence();
    return counts;
}

} // namespace

TEST_CASE_TEMPLATE("counts: a removal copies each of its lists once, however many layers there are", Layout,
                   StandardV<cellar::half>, PermutedV<cellar::half>) {
    for (const int n : {1, 2, 8}) {
        CAPTURE(n);
        // Cells and factors; keys are rotated.
        CHECK(count_removal<Layout>(n, false, 1) == Counts{.copies = 2, .kernels = n});
        // Moves, cells and factors; keys and values are moved, keys are rotated.
        CHECK(count_removal<Layout>(n, true, 1) == Counts{.copies = 3, .kernels = 3 * n});
        // The first one allocates each list and its staging memory.
        CHECK(count_removal<Layout>(n, true, 0) == Counts{.allocations = 3, .copies = 3, .kernels = 3 * n});
    }
}

TEST_CASE("counts: larger removals wait once for each list that grows") {
    using Shift = RopeShift<Neox>;
    Cache<StandardV<cellar::half>, FullCausal, Shift, LateDevice> cache{
        CacheShape{.layers = 8, .kv_heads = 2, .head_dim = dim},
        {.sequences = 2, .capacity = 200, .batch = 50},
        FullCausal{},
        Shift{rope_frequencies(dim)}};
    const std::vector<float> rows(std::size_t{50} * 2 * dim);
    for (int p = 0; p < 200; p += 50) {
        BatchBuilder tokens;
        for (int i = 0; i < 50; ++i) tokens.add(Sequence{0}, Position{p + i});
        auto pass = cache.begin(tokens);
        REQUIRE(pass);
        for (int layer = 0; layer < 8; ++layer) pass->put(layer, rows, rows);
        pass->commit();
    }
    REQUIRE(cache.copy_prefix(Sequence{0}, Sequence{1}, Position{200}));
    REQUIRE(cache.remove(Sequence{1}, Position{190}, Position{191}));
    Counts counts;
    bool removed = false;
    {
        const cellar_test::Listener listener{
            {.fence = [&](std::string_view name) { counts.fences += name.starts_with("cellar"); }, // not Kokkos' own
             .copy = [&](auto...) { ++counts.copies; }}};
        removed = cache.remove(Sequence{0}, Position{10}, Position{20}).has_value();
    }
    CHECK(removed);
    CHECK(counts.fences == 2); // moves and rotations
    CHECK(counts.copies == 3);
    cache.fence();
}

} // namespace test_counts
