// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iomanip>
#include <sstream>
#include <utility>

namespace serve {

namespace {

std::string rounded(double number, int digits) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(digits) << number;
    return text.str();
}

/// The 50th, 90th and 99th percentile.
template <class T, class Text>
std::string percentiles(const std::vector<T>& values, Text text_of) {
    std::ostringstream text;
    for (const int percent : {50, 90, 99}) text << (percent == 50 ? "" : " / ") << text_of(percentile(values, percent));
    return text.str();
}
std::string percentiles_of_steps(const Latency& latency) {
    return percentiles(latency.steps, [](int steps) { return steps; });
}
std::string percentiles_of_seconds(const Latency& latency) {
    return percentiles(latency.seconds, [](double seconds) { return rounded(seconds, 3); });
}

struct Row {
    const char* name;
    std::function<std::string(const Outcome&)> value;
};

const std::vector<Row>& rows() {
    static const std::vector<Row> all = {
        {"replies", [](const Outcome& o) { return std::to_string(o.replies); }},
        {"steps", [](const Outcome& o) { return std::to_string(o.steps); }},
        {"seconds", [](const Outcome& o) { return rounded(o.seconds, 2); }},
        {"tokens computed", [](const Outcome& o) { return std::to_string(o.computed); }},
        {"tokens attached", [](const Outcome& o) { return std::to_string(o.tree.tokens_attached); }},
        {"hit rate", [](const Outcome& o) { return rounded(100 * o.hit_rate(), 1) + " %"; }},
        {"prefixes evicted", [](const Outcome& o) { return std::to_string(o.tree.evictions); }},
        {"prefixes offloaded", [](const Outcome& o) { return std::to_string(o.tree.offloads); }},
        {"prefixes reloaded", [](const Outcome& o) { return std::to_string(o.tree.reloads); }},
        {"refused passes", [](const Outcome& o) { return std::to_string(o.refusals); }},
        {"preemptions", [](const Outcome& o) { return std::to_string(o.preemptions); }},
        {"shifts", [](const Outcome& o) { return std::to_string(o.shifts); }},
        {"steps to the first byte, p50 / p90 / p99", [](const Outcome& o) { return percentiles_of_steps(o.first); }},
        {"seconds to the first byte", [](const Outcome& o) { return percentiles_of_seconds(o.first); }},
        {"steps to the whole reply", [](const Outcome& o) { return percentiles_of_steps(o.whole); }},
        {"seconds to the whole reply", [](const Outcome& o) { return percentiles_of_seconds(o.whole); }},
    };
    return all;
}

nlohmann::ordered_json to_json(const Latency& latency) {
    nlohmann::ordered_json json;
    for (const auto& [name, percent] : {std::pair{"p50", 50}, std::pair{"p90", 90}, std::pair{"p99", 99}}) {
        json[name] = {{"steps", percentile(latency.steps, percent)}, {"seconds", percentile(latency.seconds, percent)}};
    }
    return json;
}

/// Texts may differ where a model's results depend on the rest of a batch.
std::string equality(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) equal += a[i] == b[i] ? 1 : 0;
    if (equal == a.size()) return "The texts are equal.";
    return std::to_string(equal) + " of " + std::to_string(a.size()) + " texts are equal.";
}

} // namespace

void print(std::ostream& stream, const std::vector<NamedOutcome>& runs) {
    std::ostringstream out; // the caller's stream keeps its own format
    constexpr int width = 24;
    out << std::left << std::setw(42) << "" << std::right;
    for (const NamedOutcome& run : runs) out << std::setw(width) << run.name;
    out << '\n';
    for (const Row& row : rows()) {
        out << std::left << std::setw(42) << row.name << std::right;
        for (const NamedOutcome& run : runs) out << std::setw(width) << row.value(run.outcome);
        out << '\n';
    }
    if (runs.size() == 2) {
        const Outcome& tree = runs[0].outcome;
        const Outcome& plain = runs[1].outcome;
        const double share =
            100 * static_cast<double>(plain.computed - tree.computed) / static_cast<double>(plain.computed);
        out << "\nThe tree saved " << plain.computed - tree.computed << " of " << plain.computed << " tokens ("
            << rounded(share, 1) << " %) and " << rounded(plain.seconds - tree.seconds, 2) << " of "
            << rounded(plain.seconds, 2) << " seconds. " << equality(tree.texts, plain.texts) << '\n';
    }
    stream << out.str();
}

void write_json(std::ostream& stream, const std::vector<NamedOutcome>& runs) {
    nlohmann::ordered_json json;
    for (const auto& [name, o] : runs) {
        json[name] = {{"replies", o.replies},
                      {"steps", o.steps},
                      {"passes", o.passes},
                      {"seconds", o.seconds},
                      {"tokens_computed", o.computed},
                      {"tokens_attached", o.tree.tokens_attached},
                      {"hit_rate", o.hit_rate()},
                      {"evictions", o.tree.evictions},
                      {"offloads", o.tree.offloads},
                      {"reloads", o.tree.reloads},
                      {"refusals", o.refusals},
                      {"preemptions", o.preemptions},
                      {"shifts", o.shifts},
                      {"to_first_byte", to_json(o.first)},
                      {"to_whole_reply", to_json(o.whole)},
                      {"texts", o.texts},
                      {"audit", o.audit}};
    }
    stream << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

} // namespace serve
