// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "steps.hpp"

#include <algorithm>
#include <optional>

/// Writing the mask of an open pass, by cellar and by the scan. The limit, `fill`, fills as many bytes with one value.
/// `cold`: the mask is in none of the processor's caches, as after a layer of a model. Otherwise every iteration writes
/// the same memory.
namespace cellar::bench {
namespace {

void sweep_caches() {
    static std::vector<std::uint64_t> memory(std::size_t{12} << 20);
    for (std::size_t i = 0; i < memory.size(); i += 8) ++memory[i];
}

template <class T>
void measure_cellar(benchmark::State& state, const Scene& scene, std::int32_t prompt, bool cold) {
    Steps<FullCausal> steps{scene, prompt};
    steps.cache.reserve(steps.batch().tokens()).drop();
    measure(state, [&](Stopwatch& watch) {
        auto pass = steps.cache.begin(steps.batch());
        if (cold) sweep_caches();
        watch.start();
        benchmark::DoNotOptimize(pass->template mask<T>().data_handle());
        watch.stop();
    });
}

template <class T>
void measure_scan(benchmark::State& state, const Scene& scene, std::int32_t prompt) {
    expect_same_passes<FullCausal>(scene, prompt, Search::from_first, "mask/" + scene.name() + std::to_string(prompt));
    Steps<FullCausal> steps{scene, prompt};
    ScanCache<FullCausal> scan{table_of(steps.cache), FullCausal{}};
    scan.begin(steps.batch(), Search::from_first);
    ZeroedArray<T> mask{std::int64_t{steps.batch().tokens()} * scan.history().count};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        scan.write_mask(steps.batch(), mask.data());
        watch.stop();
    });
}

template <class T>
void measure_fill(benchmark::State& state, const Scene& scene, std::int32_t prompt, bool cold) {
    Steps<FullCausal> steps{scene, prompt};
    auto pass = steps.cache.begin(steps.batch());
    ZeroedArray<T> mask{std::int64_t{pass->tokens()} * pass->history().count};
    T value = detail::MaskValues<T>::hidden;
    benchmark::DoNotOptimize(&value); // by its address: g++ loses a float that is passed itself
    measure(state, [&](Stopwatch& watch) {
        if (cold) sweep_caches();
        watch.start();
        std::fill(mask.data(), mask.data() + mask.size(), value);
        watch.stop();
    });
}

template <class T>
void add_all(const std::string& element, const Scene& scene, std::int32_t prompt) {
    const std::string shape =
        std::to_string(prompt != 0 ? prompt : scene.sequences) + "/" + std::to_string(scene.cells / 1024) + "k";
    const std::string name = "mask_" + element + "/full/" + shape;
    add(name + "/cellar", [=](benchmark::State& state) { measure_cellar<T>(state, scene, prompt, false); });
    add(name + "/scan", [=](benchmark::State& state) { measure_scan<T>(state, scene, prompt); });
    add(name + "/fill", [=](benchmark::State& state) { measure_fill<T>(state, scene, prompt, false); });
    if (element != "float") return;
    const std::string cold = "mask_float_cold/full/" + shape;
    add(
        cold + "/cellar", [=](benchmark::State& state) { measure_cellar<T>(state, scene, prompt, true); }, 25);
    add(
        cold + "/fill", [=](benchmark::State& state) { measure_fill<T>(state, scene, prompt, true); }, 25);
}

} // namespace

void add_masks() {
    const auto add_elements = [](const Scene& scene, std::int32_t prompt) {
        add_all<float>("float", scene, prompt);
        add_all<half>("half", scene, prompt);
        add_all<bool>("bool", scene, prompt);
    };
    for (const Cell cells : capacities) {
        for (const std::int32_t sequences : {1, 8, 64}) add_elements({sequences, cells}, 0);
        add_elements({1, cells, 50}, max_batch);
    }
}

} // namespace cellar::bench
