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

/// Runs the same steps on a cache and on the naive model, and compares the two after each step.
///
/// Comparing the contents of a sequence takes a pass, which is dropped; such a pass may hide an error. So a trial
/// compares contents only after every `inspect_every` steps. It always compares what a step itself shows: its answer,
/// what its pass sees, counts, and what can be resumed.
class Trial {
public:
    Trial(Subject& subject, const Setting& setting, const RowSource& rows);

    /// Throws at the first difference. The message lists the operations so far.
    void run(const std::vector<Step>& steps);

private:
    void check_snapshots() const;
    void touch_all();
    void run_step(const Step& step);

    // Each returns true if it may have changed anything visible.
    bool run_pass(const Step& step);
    bool run_remove(const Step& step);
    bool run_other(const Step& step);
    bool run_snapshot(const Step& step);
    bool run_restore(const Step& step);
    bool run_split(const Step& step);
    bool run_with_one(const Step& step);
    bool run_schedule(const Step& step);
    bool run_unschedule(const Step& step);
    bool run_merge(const Step& step);
    bool carried_out(std::optional<naive::Reason> answer, std::optional<naive::Reason> refused) const;

    bool copy(const Step& step, int to);
    void reserve(int tokens);
    std::vector<naive::NewToken> batch_of(const std::vector<RelativeToken>& tokens);
    void put(int layer, const std::vector<naive::NewToken>& batch, int style);
    void expect_answer(std::optional<naive::Reason> answer, std::optional<naive::Reason> expected) const;

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
