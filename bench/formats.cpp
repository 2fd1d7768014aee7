// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jobs.hpp"
#include "stopwatch.hpp"
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

/// `put`: keys and values of 256 tokens with 8 heads of 128 values, in one layer of a cache of 4,096 cells, in each
/// format. `f32` is a copy.
namespace cellar::bench {
namespace {

constexpr int tokens = 256;
constexpr int cells = 4096;

template <StorageFormat F>
void measure_put(benchmark::State& state) {
    std::mt19937 random{1};
    std::normal_distribution<float> normal;
    std::vector<float> rows(std::size_t{tokens} * 8 * 128);
    for (float& x : rows) x = normal(random);
    Cache<StandardV<F>> cache{CacheShape{.layers = 1, .kv_heads = 8, .head_dim = 128},
                              {.sequences = 1, .capacity = cells, .batch = tokens}};
    int position = 0;
    measure(state, [&](Stopwatch& watch) {
        if (position == cells) {
            static_cast<void>(cache.remove(Sequence{0}, Position{0}, Position{cells}));
            position = 0;
        }
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{position}, tokens}).value();
        position += tokens;
        watch.start();
        pass.put(0, rows, rows);
        watch.stop();
        pass.commit();
    });
}

template <StorageFormat... Formats>
void add_puts() {
    (add("put/" + std::string{detail::format_of<Formats>::name} + "/256/4k/cellar", measure_put<Formats>), ...);
}

} // namespace

void add_formats() {
    add_puts<float, half, q8_0, int8_per_head, fp8_e4m3, fp8_e5m2, q5_1, q5_0, q4_1, q4_0, iq4_nl, mxfp4, nvfp4,
             Affine<8>, Affine<4>, Rotated<Hadamard<128>, q4_0>>();
}

} // namespace cellar::bench
