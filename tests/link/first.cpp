// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "everything.hpp"

#include <cstdio>

const void* handler_in_second();
cellar::ViolationHandler swap_in_second(cellar::ViolationHandler handler);

namespace {

void quiet(const cellar::Violation&) {}

} // namespace

// What is inline must be one thing in the whole program: here the handler of violations.
int main() {
    if (&cellar::detail::violation_handler != handler_in_second()) {
        std::puts("the two translation units have a violation handler each");
        return 1;
    }
    swap_in_second(quiet);
    if (cellar::set_violation_handler(nullptr) != quiet) {
        std::puts("a handler set in one translation unit is not seen in the other");
        return 1;
    }
}
