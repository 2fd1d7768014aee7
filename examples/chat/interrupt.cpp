// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "interrupt.hpp"

#include <atomic>
#include <csignal>

namespace chat {

namespace {

std::atomic<bool> interrupted{false}; // any thread may get the signal
static_assert(std::atomic<bool>::is_always_lock_free);

void note_interrupt(int) {
    interrupted = true;
    std::signal(SIGINT, SIG_DFL);
}

} // namespace

void catch_interrupts() {
    std::signal(SIGINT, note_interrupt);
}

bool was_interrupted() {
    return interrupted;
}

void expect_interrupt() {
    interrupted = false;
    catch_interrupts();
}

} // namespace chat
