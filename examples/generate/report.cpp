// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report.hpp"

#include <nlohmann/json.hpp>

#include <iomanip>
#include <sstream>

namespace llama {

namespace {

nlohmann::ordered_json to_json(const Report& r) {
    const auto pace = [](const Pace& p) {
        return nlohmann::ordered_json{
            {"tokens", p.tokens}, {"seconds", p.seconds}, {"tokens_per_second", p.per_second()}};
    };
    const auto use = [](const CacheUse& u) {
        return nlohmann::ordered_json{
            {"layers", u.layers}, {"cells_used", u.cells_used}, {"cells", u.cells}, {"bytes", u.bytes}};
    };
    const auto use_of_states = [](const CacheUse& u) {
        return nlohmann::ordered_json{
            {"layers", u.layers}, {"slots_used", u.cells_used}, {"slots", u.cells}, {"bytes", u.bytes}};
    };
    nlohmann::ordered_json over_views; // null
    if (r.over_views) {
        over_views = {{"prefill", pace(r.over_views->prefill)},       {"decode", pace(r.over_views->decode)},
                      {"prefill_ratio", r.over_views->prefill_ratio}, {"decode_ratio", r.over_views->decode_ratio},
                      {"difference", r.over_views->difference},       {"passed", r.agrees_with_views()}};
    }
    nlohmann::ordered_json space; // null
    if (!r.execution_space.empty()) space = r.execution_space;
    return {{"model", r.model},
            {"parameters", r.parameters},
            {"backend", r.backend},
            {"execution_space", space},
            {"layout", r.format.layout},
            {"cache_type", r.format.element},
            {"context", r.context},
            {"seed", r.seed},
            {"temperature", r.temperature},
            {"history", r.history},
            {"prompt", r.prompt},
            {"text", r.text},
            {"prefill", pace(r.prefill)},
            {"decode", pace(r.decode)},
            {"over_views", over_views},
            {"draft", {{"drafted", r.drafted}, {"accepted", r.accepted}}},
            {"cache",
             {{"sliding", use(r.memory.sliding)},
              {"full", use(r.memory.full)},
              {"bytes", r.memory.sliding.bytes + r.memory.full.bytes}}},
            {"states", use_of_states(r.memory.recurrent)},
            {"evicted", r.memory.evicted},
            {"shifts", r.shifts},
            {"check",
             {{"positions", r.check.positions},
              {"after_shift", r.check.after_shift},
              {"difference", r.check.difference},
              {"scale", r.check.scale},
              {"bound", r.check.bound},
              {"passed", r.check.passed()}}}};
}

} // namespace

void print(std::ostream& stream, const Report& r) {
    std::ostringstream out; // the caller's stream keeps its own format
    const auto pace = [&](const char* name, const Pace& p) {
        out << name << p.tokens << " tokens, " << std::fixed << std::setprecision(0) << p.per_second() << " tokens/s\n"
            << std::defaultfloat;
    };
    const auto compared = [&](const char* name, const Pace& views, double ratio) {
        out << name << std::fixed << std::setprecision(0) << views.per_second() << " tokens/s over views; attend is "
            << std::setprecision(2) << ratio << " times as fast\n"
            << std::defaultfloat;
    };
    const auto use = [&](const char* kind, const CacheUse& u) {
        if (u.layers == 0) return;
        out << "cells    " << u.cells_used << " of " << u.cells << " used (" << u.layers << ' ' << kind << " layers)\n";
    };
    out << "backend  " << r.backend << (r.execution_space.empty() ? "" : " on " + r.execution_space) << '\n';
    pace("prefill  ", r.prefill);
    pace("decode   ", r.decode);
    if (r.over_views) {
        compared("prefill  ", r.over_views->prefill, r.over_views->prefill_ratio);
        compared("decode   ", r.over_views->decode, r.over_views->decode_ratio);
    }
    if (r.drafted > 0) out << "draft    " << r.accepted << " of " << r.drafted << " drafted tokens accepted\n";
    use("sliding", r.memory.sliding);
    use("full", r.memory.full);
    if (const CacheUse& u = r.memory.recurrent; u.layers > 0) {
        out << "slots    " << u.cells_used << " of " << u.cells << " used (" << u.layers << " recurrent layers), "
            << u.bytes << " bytes\n";
    }
    out << "memory   " << r.memory.sliding.bytes + r.memory.full.bytes << " bytes of " << r.format.layout << ' '
        << r.format.element << " cache\n"
        << "evicted  " << r.memory.evicted << " tokens by the window, " << r.shifts << " shifts\n"
        << std::setprecision(2) << "check    logits with and without a memory differ by at most " << r.check.difference
        << " (of " << r.check.scale << ", " << r.check.positions << " positions, " << r.check.after_shift
        << " after shifts); allowed: " << r.check.bound << '\n';
    if (r.over_views) {
        out << "check    logits by attend and over views differ by at most " << r.over_views->difference
            << "; allowed: " << 2 * r.check.bound << '\n';
    }
    stream << out.str();
}

void write_json(std::ostream& stream, const Report& r) {
    constexpr auto replace = nlohmann::ordered_json::error_handler_t::replace;
    stream << to_json(r).dump(2, ' ', false, replace) << '\n';
}

} // namespace llama
