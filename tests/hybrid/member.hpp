// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include <cellar/base/result.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace property::hybrid {

using Batch = std::vector<naive::NewToken>;
using Answer = std::optional<cellar::Reason>;

/// One member of a hybrid beside its naive model. The model of the result of an operation is computed separately. It
/// replaces the model once all members agree.
class Member {
public:
    virtual ~Member() = default;

    // The model's answers to operations.
    virtual Answer begin(const Batch& batch) = 0;
    virtual Answer remove(int s, int begin, int end) = 0;
    virtual Answer copy_prefix(int from, int to, int length) = 0;
    virtual Answer snapshot(int s, int from, int to) = 0; ///< adds one
    virtual Answer restore(int s, std::size_t snapshot, int to) = 0;
    virtual Answer rewind(int s, int to) = 0;
    virtual Answer reload(std::size_t snapshot) = 0;
    virtual Answer schedule(int s, int p) = 0;
    virtual void unschedule(int s, int p) = 0;                        ///< at once
    virtual Answer merge(std::size_t parent, std::size_t child) = 0;  ///< the child goes
    virtual Answer split(std::size_t snapshot, int at) = 0;           ///< adds one
    virtual void offload(std::size_t snapshot) = 0;                   ///< at once
    virtual void release(std::size_t snapshot) = 0;                   ///< at once
    virtual bool can_restore(std::size_t snapshot, int to) const = 0; ///< the position lies within it
    virtual int end_of(std::size_t) const { return -1; }              ///< of a snapshot of a member that has inputs
    virtual bool can_merge(std::size_t parent, std::size_t child) const = 0;

    /// All members agreed to the last operation, which was carried out.
    virtual void settle() = 0;

    virtual bool can_resume(int s, int p) const = 0;
    virtual int next(int s) const = 0;

    // The member itself, while a pass of the hybrid is open.
    virtual void put(int layer, const Batch& batch, int style) = 0;
    virtual void check_begun(const Batch& batch) = 0;
    virtual void check_filled(const Batch& batch, int style, bool filled) = 0;
    virtual void check_reserved(int tokens) = 0;

    /// While no pass is open. `look`: compares contents, too, not only counts.
    virtual void check(bool look) = 0;

    // For some kinds of members only.
    virtual void defragmented() {}
    virtual void checkpoint(int) {}
    virtual void write(const Batch&, int, bool) {}

    /// True if it has inputs, which wait for the next token of a sequence if they lie there or behind it.
    virtual bool has_inputs() const { return false; }

    virtual bool follows() const { return false; }       ///< accepts only tokens that follow without gaps
    virtual bool may_have_gaps() const { return false; } ///< of positions, so that a sequence may be unable to go on
};

} // namespace property::hybrid
