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

/// A combination of policies: how to make a cache with it, and the parameters for the model.
struct Combination {
    std::string name{};
    naive::WindowKind window_kind = naive::WindowKind::full;
    int window_size = 0; ///< if the type fixes it, else 0
    bool can_shift = false;
    bool rotates_keys = true; ///< shifts change keys
    int block_cells = 1;      ///< of the layout: the padding is a multiple
    RowSource rows;
    std::function<std::unique_ptr<Subject>(const Setting&)> make{};
};

/// True if a cache with these policies and the naive model agree after every step of random series of steps: see
/// `holds` (series.hpp).
bool agrees_with_model(const Combination& combination);

/// The same for one setting, with series of up to `length` steps. For large caches, which are slow to compare, so it
/// runs only one series in five.
bool agrees_with_model(const Combination& combination, const Setting& setting, int length);

} // namespace property
