// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "conversions.hpp"

#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"
#include <cellar/element/convert.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <vector>

/// `convert`: rows of 128 elements, each by one call, from one element type to another. The counter `hand` is the time
/// of a loop over the processor's instructions, compiled for it; `loop` that of a loop over the elements.
namespace cellar::bench {
namespace {

constexpr std::size_t row = 128;

template <class From, class To>
struct Rows {
    explicit Rows(std::size_t rows) : from(row * rows), to(row * rows) {
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = From{static_cast<float>(i % 1000) * 0.37F - 100.0F};
    }

    /// Converts all rows as often as it takes for the clock to measure it.
    template <class Convert>
    void time(Stopwatch& watch, Convert convert) {
        const int times = static_cast<int>(std::max<std::size_t>(1, (std::size_t{1} << 17) / from.size()));
        watch.start();
        for (int i = 0; i < times; ++i) {
            for (std::size_t first = 0; first < from.size(); first += row)
                convert(std::span<const From>{from}.subspan(first, row), std::span<To>{to}.subspan(first, row));
            benchmark::ClobberMemory();
        }
        watch.stop(times);
    }

    std::vector<From> from;
    std::vector<To> to;
};

template <class From, class To>
[[gnu::noinline]] void convert_one_by_one(std::span<const From> from, std::span<To> to) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(from[i]);
}

template <class From, class To>
void measure_rows(benchmark::State& state, std::size_t count) {
    Rows<From, To> rows{count};
    Stopwatch hand;
    Stopwatch loop;
    const auto by_hand = [](auto from, auto to) { convert_by_hand(from.data(), to.data(), std::ssize(from)); };
    measure(state, [&](Stopwatch& watch) {
        rows.time(loop, convert_one_by_one<From, To>);
        const std::vector<To> expected = rows.to;
        if constexpr (has_conversions_by_hand) rows.time(hand, by_hand);
        rows.time(watch, [](auto from, auto to) { cellar::convert(from, to); });
        expect(std::memcmp(expected.data(), rows.to.data(), sizeof(To) * expected.size()) == 0,
               "convert: a loop over the elements has other bits");
    });
    if (has_conversions_by_hand) state.counters["hand"] = hand.median();
    state.counters["loop"] = loop.median();
}

template <class From, class To>
void add_rows(const std::string& name) {
    for (const std::size_t count : {16, 4096})
        add("convert/" + name + "/128/" + (count == 4096 ? "4k" : std::to_string(count)) + "/cellar",
            [count](benchmark::State& state) { measure_rows<From, To>(state, count); });
}

} // namespace

void add_conversions() {
    add_rows<half, float>("half_to_float");
    add_rows<float, half>("float_to_half");
    add_rows<bfloat16, float>("bf16_to_float");
    add_rows<float, bfloat16>("float_to_bf16");
}

} // namespace cellar::bench
