// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "interrupt.hpp"

#include <csignal>

namespace chat {

namespace {

volatile std::sig_atomic_t interrupted = 0;

void note_interrupt(int) {
    interrupted = 1;
    std::signal(SIGINT, SIG_DFL);
}

} // namespace

void catch_interrupts() {
    std::signal(SIGINT, note_interrupt);
}

bool was_interrupted() {
    return interrupted != 0;
}

void expect_interrupt() {
    interrupted = 0;
    catch_interrupts();
}

} // namespace chat
