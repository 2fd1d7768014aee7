// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include <cellar/base/result.hpp>

#include <optional>
#include <vector>

namespace property::hybrid {

using Batch = std::vector<naive::NewToken>;
using Answer = std::optional<cellar::Reason>;

/// One member of a hybrid beside its naive model. What a verb would lead to is worked out apart from the model, and
/// becomes the model once all members agreed.
class Member {
public:
    virtual ~Member() = default;

    // What the model says to a verb.
    virtual Answer begin(const Batch& batch) = 0;
    virtual Answer remove(int s, int begin, int end) = 0;
    virtual Answer copy_prefix(int from, int to, int length) = 0;

    /// The verb was done, which was asked for last.
    virtual void settle() = 0;

    virtual bool can_resume(int s, int p) const = 0;
    virtual int next(int s) const = 0;

    // The member itself, while a pass of the hybrid is open.
    virtual void put(int layer, const Batch& batch, int style) = 0;
    virtual void check_begun(const Batch& batch) = 0;
    virtual void check_filled(const Batch& batch, int style, bool filled) = 0;
    virtual void check_reserved(int tokens) = 0;

    /// And while none is. `look`: not only at what can be counted.
    virtual void check(bool look) = 0;

    // What only some can do.
    virtual void defragmented() {}
    virtual void checkpoint(int) {}
    virtual void schedule(int, int) {}
    virtual void write(const Batch&, int, bool) {}

    virtual bool follows() const { return false; } ///< takes only tokens that go on without gaps
};

} // namespace property::hybrid
