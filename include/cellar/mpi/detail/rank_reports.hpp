// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cellar::detail {

/// The operations that ranks do together.
enum class JointOperation : std::int32_t {
    none,
    begin,
    reserve,
    copy_prefix,
    remove,
    snapshot,
    restore,
    merge,
    split,
    schedule,
    unschedule,
    page_out,
    page_in,
    defragment,
    compare
};

inline const char* name_of(JointOperation operation) {
    constexpr const char* names[] = {"nothing",    "begin",    "reserve", "copy_prefix", "remove",
                                     "snapshot",   "restore",  "merge",   "split",       "schedule",
                                     "unschedule", "page_out", "page_in", "defragment",  "compare"};
    return names[static_cast<std::size_t>(operation)];
}

/// One call: what is done, and with which numbers.
struct JointCall {
    JointOperation operation = JointOperation::none;
    std::int32_t count = 0; ///< of the arguments
    std::array<std::int32_t, 4> arguments{};
    std::uint64_t batch = 0; ///< its hash

    bool operator==(const JointCall&) const = default;
};

/// `remove(0, 3, 5)`.
inline std::string text_of(const JointCall& call) {
    std::string text = name_of(call.operation);
    if (call.operation == JointOperation::none) return text;
    for (std::int32_t i = 0; i < call.count && i < 4; ++i)
        text += (i == 0 ? "(" : ", ") + std::to_string(call.arguments[static_cast<std::size_t>(i)]);
    if (call.count == 0) text += "(";
    return text + (call.operation == JointOperation::begin ? " tokens)" : ")");
}

/// What a rank tells the others about itself.
struct RankReport {
    std::int64_t number = 0; ///< of the operation; the first is 1
    JointCall call{};
    JointCall last{};       ///< the operation before
    std::uint64_t book = 0; ///< the hash of the bookkeeping before the operation; 0 if it is not compared
    std::int32_t failed = 0;
    std::int32_t unused = 0;
};

} // namespace cellar::detail
