// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>

#include <string>

namespace cellar {

/// Why a hybrid said no, and which of its members did. Compares with a `Refusal` by the reason.
struct Refused {
    Refusal reason;
    int member; ///< counted from 0, in the order of the hybrid's type; members before it would have done it

    constexpr bool operator==(const Refused&) const = default;
    friend constexpr bool operator==(const Refused& a, Refusal b) { return a.reason == b; }
};

/// One line for a person.
inline std::string to_string(const Refused& refused) {
    return "member " + std::to_string(refused.member) + ": " + std::string{to_string(refused.reason)};
}

} // namespace cellar
