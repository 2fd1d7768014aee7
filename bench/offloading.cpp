// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

/// Snapshots that are offloaded to the host and back: keys and values of the layers of Llama 3 8B, in half. `offload`
/// allocates memory and copies rows to it, `restore` and `reload` copy rows to cells. The state says whether the
/// sequence's cells are neighbours (`contiguous`), or every second one is another sequence's (`alternating`). The
/// number of cells is that of the tokens. The counter `memcpy` is a copy of as many bytes: for `offload` to memory
/// that is allocated for each copy, as its own is, else to memory that was written before; `warm` is the latter. With
/// 32k tokens, this needs 14 GiB.
namespace cellar::bench {
namespace {

using Memory = Cache<StandardV<half>>;

constexpr int layers = 32;

/// A cache in which sequence 0 has so many tokens.
class Scene {
public:
    Scene(std::int32_t tokens, bool alternating)
        : memory{CacheShape{.layers = layers, .kv_heads = 8, .head_dim = 128},
                 {.sequences = 2,
                  .cells = tokens * (alternating ? 2 : 1),
                  .batch = max_batch,
                  .placement = alternating ? Placement::scattered : Placement::blocks}},
          bytes{memory.bytes() / memory.cells() * tokens} {
        const std::vector<half> rows(std::size_t{max_batch} * 8 * 128, half{1.5F});
        const std::int32_t step = alternating ? max_batch / 2 : max_batch;
        for (std::int32_t p = 0; p < tokens; p += step) {
            BatchBuilder batch;
            for (std::int32_t i = 0; i < step; ++i) {
                batch.add(cellar::Sequence{0}, Position{p + i});
                if (alternating) batch.add(cellar::Sequence{1}, Position{p + i});
            }
            auto pass = memory.begin(batch).value();
            for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
            pass.commit();
        }
        std::int32_t runs = 0;
        memory.visit_cells(cellar::Sequence{0}, [&](Position, Cell, std::int32_t) { ++runs; });
        expect(runs == (alternating ? tokens : 1), "offloading: the cells do not lie as intended");
    }

    CellSnapshot snapshot() { return memory.snapshot(cellar::Sequence{0}).value(); }

    Memory memory;
    std::int64_t bytes; ///< of sequence 0
};

/// Copies in pieces of at most 256 MiB, from and to the same memory, so that a large scene leaves room for them.
class Copies {
public:
    explicit Copies(std::int64_t bytes) : piece_{std::min(bytes, std::int64_t{256} << 20)}, times_{bytes / piece_} {
        std::memset(from_.data(), 1, size());
        std::memset(to_.data(), 2, size());
    }

    void run() {
        run(fresh_, [&] {
            ZeroedArray<char> to{piece_};
            std::memcpy(to.data(), from_.data(), size());
            benchmark::DoNotOptimize(to.data());
            return to;
        });
        run(warm_, [&] {
            std::memcpy(to_.data(), from_.data(), size());
            benchmark::DoNotOptimize(to_.data());
            return 0;
        });
    }

    double fresh() { return fresh_.median() * static_cast<double>(times_); }
    double warm() { return warm_.median() * static_cast<double>(times_); }

private:
    std::size_t size() const { return static_cast<std::size_t>(piece_); }

    // What a copy returns is destroyed outside of the measured interval.
    template <class Copy>
    void run(Stopwatch& watch, Copy copy) {
        for (std::int64_t i = 0; i < times_; ++i) {
            watch.start();
            [[maybe_unused]] const auto done = copy();
            watch.stop();
        }
    }

    std::int64_t piece_;
    std::int64_t times_;
    ZeroedArray<char> from_{piece_};
    ZeroedArray<char> to_{piece_};
    Stopwatch fresh_;
    Stopwatch warm_;
};

void measure_offload(benchmark::State& state, std::int32_t tokens, bool alternating) {
    Scene scene{tokens, alternating};
    Copies copies{scene.bytes};
    measure(state, [&](Stopwatch& watch) {
        CellSnapshot snapshot = scene.snapshot();
        watch.start();
        scene.memory.offload(snapshot);
        watch.stop();
        expect(snapshot.bytes() == scene.bytes, "offload: not all bytes are offloaded");
        copies.run();
    });
    state.counters["memcpy"] = copies.fresh();
    state.counters["warm"] = copies.warm();
}

void measure_restore(benchmark::State& state, std::int32_t tokens, bool alternating) {
    Scene scene{tokens, alternating};
    Copies copies{scene.bytes};
    CellSnapshot snapshot = scene.snapshot();
    scene.memory.offload(snapshot);
    measure(state, [&](Stopwatch& watch) {
        expect(scene.memory.remove(cellar::Sequence{0}, Position{0}, to_end).has_value(),
               "restore: remove was refused");
        watch.start();
        const bool done = scene.memory.restore(cellar::Sequence{0}, snapshot).has_value();
        watch.stop();
        expect(done && scene.memory.next(cellar::Sequence{0}) == Position{tokens}, "restore: it was refused");
        copies.run();
    });
    state.counters["memcpy"] = copies.warm();
}

void measure_reload(benchmark::State& state, std::int32_t tokens, bool alternating) {
    Scene scene{tokens, alternating};
    Copies copies{scene.bytes};
    CellSnapshot snapshot = scene.snapshot();
    expect(scene.memory.remove(cellar::Sequence{0}, Position{0}, to_end).has_value(), "reload: remove was refused");
    measure(state, [&](Stopwatch& watch) {
        scene.memory.offload(snapshot);
        watch.start();
        const bool done = scene.memory.reload(snapshot).has_value();
        watch.stop();
        expect(done && !snapshot.is_offloaded(), "reload: it was refused");
        copies.run();
    });
    state.counters["memcpy"] = copies.warm();
}

} // namespace

void add_offloading() {
    const auto add_job = [](const std::string& job, auto measured) {
        for (const std::int32_t tokens : {8 * 1024, 32 * 1024})
            for (const bool alternating : {false, true})
                add(
                    job + (alternating ? "/alternating/1/" : "/contiguous/1/") + std::to_string(tokens / 1024)
                        + "k/cellar",
                    [=](benchmark::State& state) { measured(state, tokens, alternating); }, 3);
    };
    add_job("offload", measure_offload);
    add_job("restore", measure_restore);
    add_job("reload", measure_reload);
}

} // namespace cellar::bench
