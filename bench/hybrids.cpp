// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"

#include <string>
#include <tuple>
#include <utility>

/// `decode_step`: begin and commit of the next token of each sequence, by a hybrid; `apart`: by the same caches, one
/// after another. Of one cache (`full`), or of one with a window and one without (`window_full`). Both ways take rotations,
/// so that what else the machine does concerns both.
namespace cellar::bench {
namespace {

template <class... Caches>
class Apart {
public:
    explicit Apart(Caches... caches) : caches_{std::move(caches)...} {}

    auto& first() { return std::get<0>(caches_); }
    auto& last() { return std::get<sizeof...(Caches) - 1>(caches_); }
    void step(const Batch& batch) {
        const auto commit = [](auto... passes) { (passes->commit(), ...); };
        std::apply([&](auto&... cache) { commit(cache.begin(batch)...); }, caches_);
    }

private:
    std::tuple<Caches...> caches_;
};

template <class... Caches>
class Together {
public:
    explicit Together(Caches... caches) : memory_{static_cast<int>(sizeof...(Caches)), std::move(caches)...} {}

    auto& first() { return memory_.template member<0>(); }
    auto& last() { return memory_.template member<static_cast<int>(sizeof...(Caches)) - 1>(); }
    void step(const Batch& batch) { memory_.begin(batch)->commit(); }

private:
    Hybrid<Repeat<Caches...>, Caches...> memory_;
};

// The last cache has no window: it is brought back now and then, and what comes next leaves a gap in its positions. For
// the others, which forget by themselves, the positions have to go on.
template <class Way>
void run_steps(Way& way, const Scene& scene, Tokens& tokens, Stopwatch& watch) {
    constexpr int steps = 16;
    watch.start();
    for (int i = 0; i < steps; ++i, tokens.advance(1)) way.step(tokens.batch());
    watch.stop(steps);
    for (std::int32_t s = 0; s < scene.sequences; ++s) {
        expect(way.last().tokens({s}) == scene.tokens() + steps, "decode_step: tokens are missing");
        expect(way.last().remove({s}, {scene.tokens()}, to_end).has_value(), "decode_step: it was refused");
    }
}

template <WindowPolicy... Windows>
void measure_steps(benchmark::State& state, const Scene& scene) {
    Together<Bookkeeping<Windows>...> together{filled<Windows>(scene)...};
    Apart<Bookkeeping<Windows>...> apart{filled<Windows>(scene)...};
    Tokens tokens = Tokens::step(table_of(together.first()), scene.sequences);
    Tokens same = tokens;
    Stopwatch other;
    measure(state, [&](Stopwatch& watch) {
        run_steps(together, scene, tokens, watch);
        run_steps(apart, scene, same, other);
    });
    state.counters["apart"] = other.median();
}

template <WindowPolicy... Windows>
void add_steps(const std::string& kind, const Scene& scene) {
    add("decode_step/" + kind + "/" + scene.name() + "/cellar",
        [=](benchmark::State& state) { measure_steps<Windows...>(state, scene); });
}

} // namespace

void add_hybrids() {
    for (const Cell cells : {4 * 1024, 32 * 1024})
        for (const std::int32_t sequences : {1, 64}) {
            add_steps<FullCausal>("full", {sequences, cells, 75});
            add_steps<SlidingWindow<>, FullCausal>("window_full", {sequences, cells, 75});
        }
}

} // namespace cellar::bench
