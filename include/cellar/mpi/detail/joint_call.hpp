// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/operations.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cellar::detail {

/// What ranks do together.
enum class JointOperation : std::int32_t {
    none,
    begin,
    reserve,
    copy_prefix,
    remove,
    snapshot,
    restore,
    rewind,
    merge,
    split,
    schedule,
    unschedule,
    promise,
    form_pages,
    offload,
    reload,
    defragment,
    compare,
    commit,
    drop,
    attend,
    end
};

inline const char* name_of(JointOperation operation) {
    constexpr const char* names[] = {"nothing", "begin",      "reserve", "copy_prefix", "remove",     "snapshot",
                                     "restore", "rewind",     "merge",   "split",       "schedule",   "unschedule",
                                     "promise", "form_pages", "offload", "reload",      "defragment", "compare",
                                     "commit",  "drop",       "attend",  "end"};
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

inline std::int32_t number_of(std::int32_t number) {
    return number;
}
/// Of an id.
template <class Id>
std::int32_t number_of(Id id) {
    return id.value;
}
template <class... Arguments>
JointCall joint_call(JointOperation operation, Arguments... arguments) {
    return {operation, std::int32_t{sizeof...(arguments)}, {number_of(arguments)...}, 0};
}
/// O(tokens).
inline JointCall call_of(const op::Begin& begin) {
    const Batch& batch = begin.batch;
    Digest digest;
    for (const Position p : batch.positions) digest.add(p);
    for (const Sequence s : batch.sequences) digest.add(s);
    const auto add_list = [&](auto list) { // with its length, so that no list is taken for another
        digest.add(list.size());
        for (const std::int32_t number : list) digest.add(number);
    };
    add_list(batch.groups);
    add_list(batch.stored);
    add_list(batch.parents);
    return {JointOperation::begin, 1, {batch.tokens()}, digest.value()};
}
inline JointCall call_of(const op::CopyPrefix& copy) {
    return joint_call(JointOperation::copy_prefix, copy.from, copy.to, copy.end);
}
inline JointCall call_of(const op::Remove& remove) {
    const auto& [s, begin, end, rotate_by] = remove;
    return rotate_by ? joint_call(JointOperation::remove, s, begin, end, rotate_by->positions)
                     : joint_call(JointOperation::remove, s, begin, end);
}
inline JointCall call_of(const op::Rewind& rewind) {
    return joint_call(JointOperation::rewind, rewind.sequence, rewind.to);
}
inline JointCall call_of(const op::Snapshot& snapshot) {
    return joint_call(JointOperation::snapshot, snapshot.sequence, snapshot.from, snapshot.to);
}
template <class S>
JointCall call_of(const op::Restore<S>& restore) {
    const auto& [s, snapshot, to, unchecked] = restore;
    return joint_call(JointOperation::restore, s, snapshot.from(), snapshot.to(), to);
}
template <class S>
JointCall call_of(const op::Merge<S>& merge) {
    const auto& [parent, child] = merge;
    return joint_call(JointOperation::merge, parent.from(), parent.to(), child.from(), child.to());
}
template <class S>
JointCall call_of(const op::Split<S>& split) {
    return joint_call(JointOperation::split, split.snapshot.from(), split.snapshot.to(), split.at);
}
template <class S>
JointCall call_of(const op::Offload<S>& page) {
    const auto to = static_cast<std::int32_t>(page.to);
    return joint_call(JointOperation::offload, page.snapshot.from(), page.snapshot.to(), to);
}
template <class S>
JointCall call_of(const op::Reload<S>& page) {
    return joint_call(JointOperation::reload, page.snapshot.from(), page.snapshot.to());
}
inline JointCall call_of(const op::Schedule& schedule) {
    return joint_call(JointOperation::schedule, schedule.sequence, schedule.position);
}
inline JointCall call_of(const op::Unschedule& schedule) {
    return joint_call(JointOperation::unschedule, schedule.sequence, schedule.position);
}
inline JointCall call_of(const op::Promise& promise) {
    return joint_call(JointOperation::promise, promise.sequence, promise.tokens);
}
inline JointCall call_of(const op::FormPages& pages) {
    return joint_call(JointOperation::form_pages, pages.sequence, pages.page_size);
}
inline JointCall call_of(const op::Defragment&) {
    return joint_call(JointOperation::defragment);
}

} // namespace cellar::detail
