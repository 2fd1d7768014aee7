// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "rows.hpp"
#include "setting.hpp"
#include "subject.hpp"
#include "trace.hpp"
#include <cellar/cache/cache_limits.hpp>

#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

namespace property {

/// Compares what is visible of a cache with the model. Passes show in which cells tokens lie. From then on a token must
/// stay in its cell, a cell must hold one token, and new tokens must come to the cells that the rules of placement
/// give.
class Inspector {
public:
    using Batch = std::vector<naive::NewToken>;

    Inspector(Subject& subject, const RowSource& rows, const Trace& trace, const Setting& setting)
        : subject_{subject},
          rows_{rows},
          trace_{trace},
          placement_{setting.placement},
          start_padding_{std::lcm(setting.setup.padding, setting.start_padding)} {}

    void check_counts(const naive::Model& model, const std::set<int>& sequences) const;

    /// Compares the contents of these sequences.
    void check_contents(const naive::Model& model, const std::set<int>& sequences);

    /// Compares the cells of a newly opened pass. `model`: before the pass.
    void check_placement(const naive::Model& model, const Batch& batch);

    /// Compares what the open pass sees. `open`: while it is open. `filled`: the layers that were put, from the first
    /// one on; only these are read.
    void check_pass(const naive::Model& open, const Batch& batch, int style, int filled);

    /// To be called after a defragmentation. It makes the fewest moves, so tokens in cells below `cell` stay there.
    void forget_cells_from(int cell) {
        std::erase_if(cell_of_, [cell](const auto& known) { return known.second >= cell; });
    }

private:
    void check_resume(const naive::Model& model, int s) const;
    void check_history(const std::set<int>& seen, int padding) const;
    void check_query(const naive::Model& open, const Batch& batch, std::size_t i, const std::set<int>& cells);
    void check_runs(int token, const std::set<int>& cells) const;
    void check_lists(const naive::Model& open, const Batch& batch) const;
    void check_contents(const naive::Model& model, int s);
    naive::TokenRef token_in(const naive::Model& open, int cell, const naive::NewToken& query,
                             const std::set<naive::TokenRef>& expected);
    bool has_position_of(const naive::Model& open, int sequence, const naive::TokenRef& token, int cell) const;
    void check_cell(const naive::TokenRef& token, int cell);
    void check_rows(const naive::Token& token, int layer, int column) const;
    std::optional<std::set<int>> taken_cells(const naive::Model& model) const;
    std::vector<int> cells_by_blocks(const naive::Model& model, const Batch& batch, std::set<int> taken) const;

    Subject& subject_;
    const RowSource& rows_;
    const Trace& trace_;
    cellar::Placement placement_;
    int start_padding_; ///< of histories; 0: they start at cell 0
    int readable_layers_ = 0;
    std::map<naive::TokenRef, int> cell_of_; ///< as far as passes have shown
    std::map<int, naive::TokenRef> read_;    ///< the tokens in the cells that this pass has read
};

} // namespace property
