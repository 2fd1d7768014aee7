// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <stdexcept>
#include <string>

/// While it lives, a violation throws its message instead of ending the process.
class ThrowingViolations {
public:
    ThrowingViolations()
        : previous_{
            cellar::set_violation_handler([](const cellar::Violation& v) { throw std::logic_error{v.message}; })} {}
    ~ThrowingViolations() { cellar::set_violation_handler(previous_); }
    ThrowingViolations(const ThrowingViolations&) = delete;
    ThrowingViolations& operator=(const ThrowingViolations&) = delete;

private:
    cellar::ViolationHandler previous_;
};

/// The message of the violation in `call`, or "none".
template <class Call>
std::string violation_of(Call call) {
    const ThrowingViolations guard;
    try {
        call();
    } catch (const std::logic_error& error) {
        return error.what();
    }
    return "none";
}
