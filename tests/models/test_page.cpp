// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Compares the tables of docs/models.md and docs/how-to/store-in-fewer-bits.md with new ones.
#include "every_model.hpp"
#include "paths.hpp"
#include <cellar/format/blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace test_page {

using namespace cellar;
using namespace cellar::models;

namespace {

std::string mebibytes(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / (1 << 20));
    return text;
}

std::string layers(const Description& model) {
    const auto entry = [&](LayerKind kind, const std::string& what) {
        const int count = model.count(kind);
        return count == 0 ? std::string{} : ", " + std::to_string(count) + " " + what;
    };
    const std::string window = "sliding (" + std::to_string(model.sliding.window) + ")";
    return (entry(LayerKind::sliding, window) + entry(LayerKind::full, "full")
            + entry(LayerKind::recurrent, "recurrent") + entry(LayerKind::nothing, "without memory"))
        .substr(2);
}

std::string table() {
    std::string lines = "| model | layers | pattern | bytes per token | MiB per sequence | MiB at 128k |\n"
                        "|---|---|---|--:|--:|--:|\n";
    for_each_model([&]<class M>(M) {
        const Description& model = M::description;
        lines += "| " + std::string{model.name} + " | " + layers(model) + " | `" + std::string{model.pattern} + "` | "
                 + std::to_string(bytes_per_token(model)) + " | " + mebibytes(bytes_per_sequence(model)) + " | "
                 + mebibytes(bytes(model, {.attention = {.capacity = 131072, .batch = 1}}).data) + " |\n";
    });
    return lines;
}

/// Thousands of tokens of one sequence whose keys and values take so many GiB.
template <class Layout>
std::string tokens(const Description& model, std::int64_t gibibytes) {
    const std::int64_t left = (gibibytes << 30) - bytes_per_sequence<Layout>(model);
    return std::to_string(left / bytes_per_token<Layout>(model) / 1000);
}

std::string fitting() {
    std::string lines = "| model | 8 GiB | 24 GiB | 80 GiB |\n|---|--:|--:|--:|\n";
    for (const Description* const model :
         {&llama31_8b, &llama31_70b, &qwen3_8b, &deepseek_v3, &gemma3_12b, &gpt_oss_20b}) {
        lines += "| " + std::string{model->name};
        for (const int gibibytes : {8, 24, 80})
            lines += " | " + tokens<StandardV<half>>(*model, gibibytes) + " · "
                     + tokens<StandardV<q8_0>>(*model, gibibytes) + " · "
                     + tokens<StandardV<q8_0, q4_0>>(*model, gibibytes) + " · "
                     + tokens<StandardV<q4_0>>(*model, gibibytes);
        lines += " |\n";
    }
    return lines;
}

std::string read(const std::string& page) {
    std::ifstream file{cellar_test::source_dir() + "/docs/" + page};
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const auto first = text.find(begin);
    const auto last = text.find(end);
    if (first == std::string::npos || last == std::string::npos) return {};
    return text.substr(first + begin.size(), last - first - begin.size());
}

} // namespace

TEST_CASE("the table of docs/models.md is up to date") {
    const std::string expected = table();
    INFO("the page must have, between its two marks:\n", expected);
    CHECK(between(read("models.md"), "<!-- table -->\n", "<!-- /table -->") == expected);
}

TEST_CASE("the table of what fits in docs/how-to/store-in-fewer-bits.md is up to date") {
    const std::string expected = fitting();
    INFO("the page must have, between its two marks:\n", expected);
    CHECK(between(read("how-to/store-in-fewer-bits.md"), "<!-- fits -->\n", "<!-- /fits -->") == expected);
}

} // namespace test_page
