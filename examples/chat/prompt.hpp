// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "commands.hpp"

namespace chat {

/// Carries out the lines of the standard input, until it ends or the user quits.
void read_lines(Commands& commands);

} // namespace chat
