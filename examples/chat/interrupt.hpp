// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace chat {

/// The next Ctrl-C (SIGINT) does not end the program: `was_interrupted` tells. One more does.
void catch_interrupts();

bool was_interrupted();

/// Forgets an earlier one, and catches the next.
void expect_interrupt();

} // namespace chat
