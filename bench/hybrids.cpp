// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"

#include <string>
#include <tuple>
#include <utility>

/// `decode_step`: `begin` and `commit` of the next token of each sequence, by a hybrid. The counter `separate` is the
/// same work by the same caches without a hybrid, one after another. The hybrid has one cache (`full`), or one with a
/// window and one without (`window_full`). Both variants alternate, so that disturbances affect both.
namespace cellar::bench {
namespace {

template <class... Caches>
class Separate {
public:
    explicit Separate(Caches... caches) : caches_{std::move(caches)...} {}

    auto& first() { return std::get<0>(caches_); }
    auto& last() { return std::get<sizeof...(Caches) - 1>(caches_); }
    void step(const Batch& batch) {
        const auto commit = [](auto... passes) { ((mark_put(*passes, 1), passes->commit()), ...); };
        std::apply([&](auto&... cache) { commit(cache.begin(batch)...); }, caches_);
    }

private:
    std::tuple<Caches...> caches_;
};

template <class... Caches>
class Combined {
public:
    explicit Combined(Caches... caches) : memory_{static_cast<int>(sizeof...(Caches)), std::move(caches)...} {}

    // One by one, because a member with a window has had more tokens than one without.
    void fill(const Scene& scene) { (fill_all(memory_.template member<Caches>(), scene), ...); }
    auto& first() { return memory_.template member<0>(); }
    auto& last() { return memory_.template member<static_cast<int>(sizeof...(Caches)) - 1>(); }
    void step(const Batch& batch) {
        auto pass = memory_.begin(batch);
        mark_put(*pass, memory_.layers());
        pass->commit();
    }

private:
    Hybrid<Repeat<Caches...>, Caches...> memory_;
};

// The last cache has no window, so it is rewound after each run. Positions still continue, because the caches with a
// window need them to; this leaves gaps in the positions of the last cache.
template <class Variant>
void run_steps(Variant& variant, const Scene& scene, TokenList& tokens, Stopwatch& watch) {
    constexpr int steps = 16;
    watch.start();
    for (int i = 0; i < steps; ++i, tokens.advance(1)) variant.step(tokens.batch());
    watch.stop(steps);
    for (std::int32_t s = 0; s < scene.sequences; ++s) {
        expect(variant.last().tokens(cellar::Sequence{s}) == scene.tokens() + steps, "decode_step: tokens are missing");
        expect(variant.last().remove(cellar::Sequence{s}, cellar::Position{scene.tokens()}, to_end).has_value(),
               "decode_step: remove was refused");
    }
}

template <WindowPolicy... Windows>
void measure_steps(benchmark::State& state, const Scene& scene) {
    Combined<Bookkeeping<Windows>...> combined{empty<Windows>(scene, Positions::any)...};
    combined.fill(scene);
    Separate<Bookkeeping<Windows>...> separate{filled<Windows>(scene, Positions::any)...};
    TokenList combined_tokens = TokenList::step(table_of(combined.first()), scene.sequences);
    TokenList separate_tokens = combined_tokens;
    Stopwatch separate_watch;
    measure(state, [&](Stopwatch& watch) {
        run_steps(combined, scene, combined_tokens, watch);
        run_steps(separate, scene, separate_tokens, separate_watch);
    });
    state.counters["separate"] = separate_watch.median();
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
