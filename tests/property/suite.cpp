// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "suite.hpp"

#include "generate.hpp"
#include "series.hpp"
#include "trial.hpp"

#include <rapidcheck.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace property {

namespace {

constexpr int least_series = 20;

void run(const Combination& combination, const Setting& setting, const std::vector<Step>& steps) {
    const std::unique_ptr<Subject> subject = combination.make(setting);
    Trial trial{*subject, setting, combination.rows};
    trial.run(steps);
}

std::uint64_t salt_of(const Combination& combination) {
    return std::hash<std::string>{}(combination.name);
}

std::vector<Step> draw_steps(const Combination& combination, const Setting& setting, int length) {
    const int max_tokens = setting.setup.batch + 1; // some batches have one token too many
    return *salted(salt_of(combination), steps(length, setting.setup.sequences, max_tokens));
}

} // namespace

bool agrees_with_model(const Combination& combination) {
    return holds(combination.name, least_series, [&] {
        Setting setting = *salted(salt_of(combination),
                                  settings(combination.window_kind, combination.window_size, combination.can_shift));
        setting.setup.rotates_keys = combination.rotates_keys;
        setting.setup.padding = std::lcm(setting.setup.padding, combination.block_cells);
        run(combination, setting, draw_steps(combination, setting, 120));
    });
}

bool agrees_with_model(const Combination& combination, const Setting& setting, int length) {
    return holds(combination.name, least_series, [&] {
        const bool selected = *rc::gen::element(true, false, false, false, false);
        if (selected) run(combination, setting, draw_steps(combination, setting, length));
    });
}

} // namespace property
