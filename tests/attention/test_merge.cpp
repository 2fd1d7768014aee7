// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Results of attention over parts of a history that have few bits. Those of float are in test_attend.cpp.
#include "attended.hpp"
#include <cellar/attention/merge_attention.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace test_merge {

using namespace cellar;
using attention_test::Floats;
using attention_test::wave;

namespace {

constexpr int tokens = 2, heads = 4, kv_heads = 2, dim = 16;

/// Elements [first, end) of a history, as the inputs of a sequence, because all queries see all of them.
void write(EncoderMemory<StandardV<float>>& memory, int sequence, int first, int end) {
    auto pass = memory.write(Sequence{sequence}, Position{0}, end - first).value();
    const Floats keys = wave(20 * kv_heads * dim, 1), values = wave(20 * kv_heads * dim, 2);
    const auto part = [&](const Floats& all) {
        return Floats(all.begin() + std::ptrdiff_t{first} * kv_heads * dim,
                      all.begin() + std::ptrdiff_t{end} * kv_heads * dim);
    };
    pass.put(0, part(keys), part(values));
    pass.commit();
}

template <class T>
struct Attended {
    std::vector<T> out = std::vector<T>(std::size_t{tokens} * heads * dim);
    Floats sums = Floats(std::size_t{tokens} * heads);

    PartialAttention<T> view() {
        return {contiguous_view(out.data(), tokens, heads, dim), contiguous_view(sums.data(), tokens, heads)};
    }
};

template <class T>
Attended<T> attended(EncoderMemory<StandardV<float>>& memory, int sequence) {
    Attended<T> found;
    auto pass = memory.begin(BatchBuilder{}.add_at(Sequence{sequence}, Position{0}, tokens)).value();
    const PartialAttention<T> view = found.view();
    attend(pass, 0, wave(tokens * heads * dim, 3), view.out, {.log_sum_exp = view.log_sum_exp});
    return found;
}

} // namespace

TEST_CASE_TEMPLATE("results of few bits are merged within their rounding", T, half, bfloat16) {
    EncoderMemory<StandardV<float>> memory{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim},
                                           {.sequences = 3, .capacity = 20, .batch = 20}};
    write(memory, 0, 0, 20);
    write(memory, 1, 0, 12);
    write(memory, 2, 12, 20);
    const Attended<float> whole = attended<float>(memory, 0);
    Attended<T> into = attended<T>(memory, 1);
    Attended<T> rest = attended<T>(memory, 2);
    const std::vector<T> before = into.out;
    merge_attention(into.view(), rest.view());
    // The results lie between -1 and 1. Both parts were rounded, and so is what is between them.
    constexpr float rounding = std::is_same_v<T, half> ? 0x1p-11F : 0x1p-8F;
    constexpr float allowed = 2 * rounding + 1e-6F;
    int changed = 0;
    for (std::size_t i = 0; i < whole.out.size(); ++i) {
        CHECK(std::abs(static_cast<float>(into.out[i]) - whole.out[i]) <= allowed);
        changed += std::abs(static_cast<float>(before[i]) - whole.out[i]) > allowed ? 1 : 0;
    }
    CHECK(changed > 100);
    for (std::size_t i = 0; i < whole.sums.size(); ++i)
        CHECK(into.sums[i] == doctest::Approx(whole.sums[i]).epsilon(1e-6));
}

} // namespace test_merge
