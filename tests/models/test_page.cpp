// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Compares the table of docs/models.md with a new one.
#include "every_model.hpp"
#include "paths.hpp"

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

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const auto first = text.find(begin);
    const auto last = text.find(end);
    if (first == std::string::npos || last == std::string::npos) return {};
    return text.substr(first + begin.size(), last - first - begin.size());
}

} // namespace

TEST_CASE("the table of docs/models.md is up to date") {
    std::ifstream file{cellar_test::source_dir() + "/docs/models.md"};
    const std::string page{std::istreambuf_iterator<char>{file}, {}};
    const std::string expected = table();
    INFO("the page must have, between its two marks:\n", expected);
    CHECK(between(page, "<!-- table -->\n", "<!-- /table -->") == expected);
}

} // namespace test_page
