// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "everything.hpp"

#include <cstdio>

const void* handler_in_second();
cellar::ViolationHandler swap_in_second(cellar::ViolationHandler handler);

namespace {

void quiet(const cellar::Violation&) {}

} // namespace

// An inline variable must exist once in a program. The test takes the handler of violations.
int main() {
    if (&cellar::detail::violation_handler != handler_in_second()) {
        std::puts("each translation unit has its own violation handler");
        return 1;
    }
    swap_in_second(quiet);
    if (cellar::set_violation_handler(nullptr) != quiet) {
        std::puts("a handler set in one translation unit has no effect in the other");
        return 1;
    }
}
