// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "report.hpp"

#include <ostream>
#include <vector>

namespace serve {

/// Draws how the cells of the pool were used over time, as SVG: a panel for each run, with the same axes.
void draw(std::ostream& stream, const std::vector<NamedOutcome>& runs);

} // namespace serve
