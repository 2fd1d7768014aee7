// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "inspector.hpp"
#include "rows.hpp"
#include "setting.hpp"
#include "step.hpp"
#include "subject.hpp"
#include "trace.hpp"

#include <optional>
#include <set>
#include <vector>

namespace property {

/// Takes one cache and the naive model through the same steps, and compares after each.
///
/// Looking at a whole sequence takes a pass, which is dropped; that may hide what goes wrong only
/// without it. So a trial looks after every `look_every` steps; what a step itself shows (its
/// answer, what its pass sees, counts, what can be resumed) is compared always.
class Trial {
public:
    Trial(Subject& subject, const Setting& setting, const RowSource& rows);

    /// Throws, with what was done, at the first difference.
    void run(const std::vector<Step>& steps);

private:
    void touch_all();
    void take(const Step& step);

    // Each says whether it may have changed anything that can be seen.
    bool take_pass(const Step& step);
    bool take_remove(const Step& step);
    bool take_other(const Step& step);

    void copy(const Step& step, int to);
    void reserve(int tokens);
    std::vector<naive::NewToken> placed(const std::vector<Placed>& tokens);
    void put(int layer, const std::vector<naive::NewToken>& batch, int style);
    void expect_answer(std::optional<naive::No> answer, std::optional<naive::No> expected) const;

    Subject& subject_;
    naive::Model model_;
    const RowSource& rows_;
    const Setting setting_;
    Trace trace_;
    Inspector inspector_;
    std::set<int> touched_; ///< the sequences to compare after this step
    int done_ = 0;
    int next_value_ = 0;
};

} // namespace property
