// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a pass asks of Kokkos, counted by its tools; and of the allocator. docs/kokkos.md has the numbers.
#include "backend/kokkos/device_on_host.hpp"
#include "backend/kokkos/tools.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

namespace {

bool counting_news = false;
int news = 0;

} // namespace

#ifndef __CUDACC__ // which would take them for device code, too
void* operator new(std::size_t size) {
    if (counting_news) ++news;
    void* const block = std::malloc(size == 0 ? 1 : size);
    if (block == nullptr) throw std::bad_alloc{};
    return block;
}
void operator delete(void* block) noexcept {
    std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
    std::free(block);
}
#endif

using namespace cellar;
using cellar_test::DeviceOnHost;
using cellar_test::HostSpace;

namespace {

struct Counts {
    int allocations = 0;
    int fences = 0;
    int copies = 0;
    int kernels = 0;
    int news = 0;

    bool operator==(const Counts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << c.allocations << " allocations, " << c.fences << " fences, " << c.copies << " copies, " << c.kernels
               << " kernels, " << c.news << " news";
}

/// What a call asks of Kokkos. Listening allocates, so what the call itself allocates is counted at another time.
template <class Call>
void count(Counts& counts, Call call) {
    const cellar_test::Listener listener{{.kernel = [&](std::string_view) { ++counts.kernels; },
                                          .fence = [&](std::string_view) { ++counts.fences; },
                                          .allocation = [&](std::string_view) { ++counts.allocations; },
                                          .copy = [&](auto...) { ++counts.copies; }}};
    call();
}

template <class Call>
void count_news(Counts& counts, Call call) {
    news = 0;
    counting_news = true;
    call();
    counting_news = false;
    counts.news += news;
}

/// The verbs of a pass.
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
    /// A pass of so many tokens, the next ones of its sequence.
    template <class Count>
    void pass(int tokens, PassCounts& counts, Count count) {
        positions_.clear();
        for (int i = 0; i < tokens; ++i) positions_.push_back({next_ + i});
        next_ += tokens;
        sequences_.assign(positions_.size(), {0});
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
            for (int layer = 0; layer < layers; ++layer) seen_ += pass.get(layer).mask.size();
        });
        count(counts.commit, [&] { pass.commit(); });
    }

    /// The counts of a pass after ones of the same size.
    PassCounts after_warm_up(int tokens) {
        PassCounts counts;
        const auto only_call = [](Counts&, auto call) { call(); };
        cache_.reserve(batch).drop();
        for (int round = 0; round < 2; ++round) pass(tokens, counts, only_call);
        pass(tokens, counts, [](Counts& of, auto call) { count(of, call); });
        pass(tokens, counts, [](Counts& of, auto call) { count_news(of, call); });
        return counts;
    }

private:
    Cache<Layout, FullCausal, DisabledShift, Backend> cache_{CacheShape{layers, heads, dim},
                                                             {.sequences = 1, .capacity = 5 * batch, .batch = batch}};
    std::vector<cellar::half> rows_ = std::vector<cellar::half>(std::size_t{batch} * heads * dim);
    std::vector<Position> positions_;
    std::vector<Sequence> sequences_;
    int next_ = 0;
    std::int64_t seen_ = 0;
};

using HostWork = KokkosBackend<HostSpace>;

/// Threads of Kokkos waits after every kernel, and allocates to say so; Serial of 4.5 allocates for each kernel.
bool counts_are_ours() {
    const std::string_view name{HostSpace::name()};
    return name != "Threads" && !(name == "Serial" && KOKKOS_VERSION < 40600);
}

} // namespace

TEST_CASE_TEMPLATE("counts: host work", Layout, StandardV<cellar::half>, PermutedV<cellar::half>) {
    if (!counts_are_ours()) CELLAR_SKIP("this Kokkos fences or allocates by itself");
    const int pieces = HostSpace{}.concurrency() > 1 ? 2 * layers : 0; // else the caller does it all
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

// What a graph captures: kernels, and the list they read at the same address in every pass.
TEST_CASE_TEMPLATE("counts: with the cells sent, puts are kernels alone", Layout, StandardV<cellar::half>,
                   PermutedV<cellar::half>) {
    if (!counts_are_ours()) CELLAR_SKIP("this Kokkos fences or allocates by itself");
    Cache<Layout, FullCausal, DisabledShift, DeviceOnHost> cache{CacheShape{layers, heads, dim},
                                                                 {.sequences = 2, .capacity = 100, .batch = 32}};
    cache.reserve(32).drop();
    const std::vector<cellar::half> rows(std::size_t{2} * heads * dim);
    const void* address = nullptr;
    for (int p = 0; p < 20; ++p) {
        const std::vector<Position> positions{{p}, {p}};
        const std::vector<Sequence> sequences{{0}, {1}};
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

TEST_CASE_TEMPLATE("counts: device work", Layout, StandardV<cellar::half>, PermutedV<cellar::half>) {
    if (!counts_are_ours()) CELLAR_SKIP("this Kokkos fences or allocates by itself");
    for (const int tokens : {1, batch}) {
        CAPTURE(tokens);
        const PassCounts counts = Model<DeviceOnHost, Layout>{}.after_warm_up(tokens);
        CHECK(counts.begin == Counts{});
        CHECK(counts.put == Counts{.copies = 1, .kernels = 2 * layers});
        CHECK(counts.get == Counts{.copies = 1, .kernels = 1});
        CHECK(counts.commit == Counts{});
    }
}

// Sources and targets are lists of their own, which all layers share.
TEST_CASE("counts: states of a layer are one launch each way") {
    if (!counts_are_ours()) CELLAR_SKIP("this Kokkos fences or allocates by itself");
    using Memory = RecurrentMemory<States<Conv, Ssm>, DeviceOnHost>;
    Memory memory{StateShape{layers, {{4, 64}, {heads, 16, 16}}}, {.sequences = 3, .batch = 3}};
    PassCounts counts;
    const auto pass_of = [&](int p, auto count) {
        const std::vector<Position> positions{{p}, {p}, {p}};
        const std::vector<Sequence> sequences{{0}, {1}, {2}};
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
    pass_of(4, [](Counts& of, auto call) { count_news(of, call); });
    CHECK(counts.get == Counts{.copies = 1, .kernels = layers});
    CHECK(counts.put == Counts{.copies = 1, .kernels = layers});
    CHECK(counts.commit == Counts{});
}

// As many as the slots of all layers that are filled with zeros for a sequence that starts.
TEST_CASE("counts: slots are one launch for every 8 tensors, and one list for all") {
    DeviceOnHost device;
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
}
