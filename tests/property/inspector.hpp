// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "rows.hpp"
#include "subject.hpp"
#include "trace.hpp"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace property {

/// Compares what can be seen of a cache with what the model says. It learns where tokens lie from
/// the passes it looks at, and holds the cache to it: a token stays in its cell, one cell holds one
/// token, and new tokens come to the places that the rules name.
class Inspector {
public:
    using Batch = std::vector<naive::NewToken>;

    Inspector(Subject& subject, const RowSource& rows, const Trace& trace, bool contiguous)
        : subject_{subject}, rows_{rows}, trace_{trace}, contiguous_{contiguous} {}

    void check_counts(const naive::Model& model, const std::set<int>& sequences) const;

    /// The contents of these sequences, each through a pass of one token that sees all of it.
    void check_contents(const naive::Model& model, const std::set<int>& sequences);

    /// The cells of a pass just begun; `model` is as before it.
    void check_placement(const naive::Model& model, int tokens);

    /// What the open pass sees; `open` is as while it is open. Its own rows are read if `filled`.
    void check_pass(const naive::Model& open, const Batch& batch, int style, bool filled);

    /// After a defragmentation: the fewest moves, so what lay in the first cells stays there.
    void forget_cells_from(int cell) {
        std::erase_if(cell_of_, [cell](const auto& known) { return known.second >= cell; });
    }

private:
    void check_resume(const naive::Model& model, int s) const;
    void check_history(const std::set<int>& seen, int padding) const;
    void check_query(const naive::Model& open, const naive::NewToken& query, const std::set<int>& cells,
                     const std::set<int>& unwritten);
    naive::TokenRef token_in(int cell, const naive::NewToken& query, const std::set<naive::TokenRef>& expected);
    void check_cell(const naive::TokenRef& token, int cell);
    void check_rows(const naive::Token& token, int layer, int column) const;
    void check_full(const naive::Model& model);
    std::optional<std::set<int>> taken_cells(const naive::Model& model) const;

    Subject& subject_;
    const RowSource& rows_;
    const Trace& trace_;
    bool contiguous_;
    std::map<naive::TokenRef, int> cell_of_; ///< as far as it was seen
    std::map<int, naive::TokenRef> read_;    ///< what lies in the cells that this pass has read
};

} // namespace property
