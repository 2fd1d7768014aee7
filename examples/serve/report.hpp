// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "outcome.hpp"

#include <ostream>
#include <string>
#include <vector>

namespace serve {

struct NamedOutcome {
    std::string name;
    Outcome outcome;
};

/// A table with a column for each run, and what the first one saved of the second.
void print(std::ostream& stream, const std::vector<NamedOutcome>& runs);

/// The same as JSON.
void write_json(std::ostream& stream, const std::vector<NamedOutcome>& runs);

} // namespace serve
