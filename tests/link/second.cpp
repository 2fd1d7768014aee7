// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "everything.hpp"

const void* handler_in_second();
cellar::ViolationHandler swap_in_second(cellar::ViolationHandler handler);

const void* handler_in_second() {
    return &cellar::detail::violation_handler;
}

cellar::ViolationHandler swap_in_second(cellar::ViolationHandler handler) {
    return cellar::set_violation_handler(handler);
}
