// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "suite.hpp"

#include "generate.hpp"
#include "trial.hpp"

#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace property {

namespace {

// The same series of steps in every run, so that a failure is a change in the code; ask for others
// with RC_PARAMS="seed=...", for more with RC_PARAMS="max_success=...".
[[maybe_unused]] const int settled = setenv("RC_PARAMS", "seed=20261121 max_success=50", 0);

void run(const Combination& combination, const Setting& setting, const std::vector<Step>& steps) {
    const std::unique_ptr<Subject> subject = combination.make(setting);
    Trial trial{*subject, setting, combination.rows};
    trial.run(steps);
}

std::uint64_t salt_of(const Combination& combination) {
    return std::hash<std::string>{}(combination.name);
}

std::vector<Step> draw_steps(const Combination& combination, const Setting& setting, int length) {
    const int most = setting.setup.batch + 1; // one too many now and then
    return *salted(salt_of(combination), steps(length, setting.setup.sequences, most));
}

} // namespace

bool agrees_with_model(const Combination& combination) {
    return rc::check(combination.name, [&] {
        Setting setting =
            *salted(salt_of(combination), settings(combination.sees, combination.window_size, combination.can_shift));
        setting.setup.rotations = combination.rotations;
        run(combination, setting, draw_steps(combination, setting, 120));
    });
}

bool agrees_with_model(const Combination& combination, const Setting& setting, int length) {
    return rc::check(combination.name, [&] {
        const bool taken = *rc::gen::element(true, false, false, false, false);
        if (taken) run(combination, setting, draw_steps(combination, setting, length));
    });
}

} // namespace property
