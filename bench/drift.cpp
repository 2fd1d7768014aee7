// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How far keys drift when their tokens move again and again: for each format of keys, the error of attention after some
// shifts, with keys that are rotated in place (`RopeShift`) and with keys that are rotated as they are read
// (`RotateOnRead`). Prints the table of docs/how-to/keep-a-long-chat.md. Measures no time.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/rotated.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace cellar;
using Floats = std::vector<float>;

constexpr int dim = 128;
constexpr int kept = 256;       // tokens that move
constexpr int most = 1000;      // shifts, each by one position
constexpr int queries = 64;     // heads that share the keys
constexpr double base = 500000; // of the rotary frequencies, as in Llama 3

/// Keys, values and queries of the kept tokens: normally distributed, keys before their rotation.
struct Tokens {
    Floats keys = draw(kept * dim, 1);
    Floats values = draw(kept * dim, 2);
    Floats q = draw(queries * dim, 3);

    static Floats draw(int n, unsigned seed) {
        std::mt19937 random{seed};
        std::normal_distribution<float> normal;
        Floats numbers(static_cast<std::size_t>(n));
        std::generate(numbers.begin(), numbers.end(), [&] { return normal(random); });
        return numbers;
    }
};

/// A key at a position, in double.
std::vector<double> rotated(const float* key, const std::vector<double>& frequencies, std::int32_t position) {
    constexpr int pairs = dim / 2;
    std::vector<double> result(dim);
    for (int i = 0; i < pairs; ++i) {
        const double angle = position * frequencies[static_cast<std::size_t>(i)];
        const double a = key[i], b = key[i + pairs];
        result[static_cast<std::size_t>(i)] = a * std::cos(angle) - b * std::sin(angle);
        result[static_cast<std::size_t>(i + pairs)] = a * std::sin(angle) + b * std::cos(angle);
    }
    return result;
}

/// Attention over the tokens at positions 0 to kept - 1, and over one whose key and value are zeros: by the definition,
/// in double, with keys and values as they were drawn.
std::vector<double> exact_results(const Tokens& tokens, const std::vector<double>& frequencies) {
    std::vector<std::vector<double>> keys;
    for (int p = 0; p < kept; ++p)
        keys.push_back(rotated(&tokens.keys[static_cast<std::size_t>(p * dim)], frequencies, p));
    std::vector<double> results;
    for (std::size_t query = 0; query < queries; ++query) {
        std::vector<double> weights, result(dim);
        double sum = 1; // of the zeros
        for (const std::vector<double>& key : keys) {
            double score = 0;
            for (std::size_t d = 0; d < dim; ++d) score += key[d] * tokens.q[query * dim + d];
            weights.push_back(std::exp(score / std::sqrt(double{dim})));
            sum += weights.back();
        }
        for (std::size_t p = 0; p < weights.size(); ++p)
            for (std::size_t d = 0; d < dim; ++d) result[d] += weights[p] / sum * tokens.values[p * dim + d];
        results.insert(results.end(), result.begin(), result.end());
    }
    return results;
}

/// The same by a cache whose tokens got to their positions by shifts of one position each.
template <class Key, class Shift>
Floats results_after(int shifts, const Tokens& tokens, const std::vector<double>& frequencies) {
    Cache<StandardV<Key, float>, FullCausal, Shift> cache{{.layers = 1, .kv_heads = 1, .head_dim = dim},
                                                          {.capacity = most + kept + 1, .batch = most + kept},
                                                          {},
                                                          RopeShift<>{frequencies}};
    const auto put = [&](Floats keys, const Floats& values) {
        const auto n = static_cast<std::int32_t>(keys.size() / dim);
        const std::int32_t first = cache.next(Sequence{0}).value;
        for (std::int32_t i = 0; i < n && !rotates_on_read<Shift>; ++i) {
            float* const key = &keys[static_cast<std::size_t>(i * dim)];
            const std::vector<double> at_its_position = rotated(key, frequencies, first + i);
            std::transform(at_its_position.begin(), at_its_position.end(), key,
                           [](double x) { return static_cast<float>(x); });
        }
        auto pass = cache.begin(Sequence{0}, n).value();
        pass.put(0, keys, values);
        return pass;
    };
    const Floats removed(static_cast<std::size_t>(shifts * dim), 1.0F);
    if (shifts > 0) put(removed, removed).commit();
    put(tokens.keys, tokens.values).commit();
    for (int i = 0; i < shifts; ++i) cache.remove(Sequence{0}, Position{0}, Position{1}).value();
    auto pass = put(Floats(dim), Floats(dim)); // zeros
    Floats out(tokens.q.size());
    attend(pass, 0, tokens.q, out);
    pass.drop();
    return out;
}

/// The root of the mean square of the error, relative to that of the results, in percent.
double error_of(const Floats& found, const std::vector<double>& exact) {
    double error = 0, all = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        error += (found[i] - exact[i]) * (found[i] - exact[i]);
        all += exact[i] * exact[i];
    }
    return 100 * std::sqrt(error / all);
}

std::string text_of(double percent) {
    if (!std::isfinite(percent)) return "not finite";
    char text[32];
    std::snprintf(text, sizeof text, percent >= 100 ? "%.0f" : percent < 0.001 ? "%.6f" : "%.2g", percent);
    return text;
}

template <class Key>
void print_row(const char* name, const Tokens& tokens, const std::vector<double>& frequencies,
               const std::vector<double>& exact) {
    const auto print = [&](const Floats& found) { std::printf(" %s |", text_of(error_of(found, exact)).c_str()); };
    std::printf("| `%s` |", name);
    for (const int shifts : {0, 1, 10, 100, most}) print(results_after<Key, RopeShift<>>(shifts, tokens, frequencies));
    print(results_after<Key, RotateOnRead<>>(most, tokens, frequencies));
    std::puts("");
}

} // namespace

int main() {
    const Tokens tokens;
    const std::vector<double> frequencies = rope_frequencies(dim, base);
    const std::vector<double> exact = exact_results(tokens, frequencies);
    std::puts("| format of keys | `RopeShift`, 0 shifts | 1 | 10 | 100 | 1,000 | `RotateOnRead`, 1,000 |\n"
              "|---|--:|--:|--:|--:|--:|--:|");
    print_row<float>("float", tokens, frequencies, exact);
    print_row<half>("half", tokens, frequencies, exact);
    print_row<bf16>("bf16", tokens, frequencies, exact);
    print_row<fp8_e4m3>("fp8_e4m3", tokens, frequencies, exact);
    print_row<q8_0>("q8_0", tokens, frequencies, exact);
    print_row<q4_0>("q4_0", tokens, frequencies, exact);
    print_row<Rotated<Hadamard<128>, q4_0>>("Rotated<Hadamard<128>, q4_0>", tokens, frequencies, exact);
}
