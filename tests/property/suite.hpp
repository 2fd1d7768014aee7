// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "rows.hpp"
#include "setting.hpp"
#include "subject.hpp"

#include <functional>
#include <memory>
#include <string>

namespace property {

/// One combination of policies: how to make a cache of it, and what the model has to know.
struct Combination {
    std::string name{};
    naive::Sees sees = naive::Sees::everything;
    int window_size = 0; ///< where the type fixes it, else 0
    bool can_shift = false;
    bool rotations = true; ///< tokens that are shifted get other keys
    RowSource rows;
    std::function<std::unique_ptr<Subject>(const Setting&)> make{};
};

/// True if a cache of these policies and the naive model agree after every step of random series
/// of steps; otherwise the smallest series found goes to stderr. RC_PARAMS in the environment sets
/// rapidcheck's seed, the number of series, and series to reproduce.
bool agrees_with_model(const Combination& combination);

/// The same for this one setting, with series of up to `length` steps. Meant for big caches, which are slow to compare:
/// takes one series in five.
bool agrees_with_model(const Combination& combination, const Setting& setting, int length);

} // namespace property
