// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cellar::detail {

/// The book's notes on the pass that is open. The vectors are as long as the largest batch and are never reallocated.
struct OpenPass {
    explicit OpenPass(std::int32_t batch) {
        const auto n = static_cast<std::size_t>(batch);
        positions.reserve(n);
        sequences.reserve(n);
        bidirectional.reserve(n);
        cells.reserve(n);
        members.reserve(n);
    }

    void start(const Batch& batch) {
        positions.assign(batch.positions.begin(), batch.positions.end());
        sequences.assign(batch.sequences.begin(), batch.sequences.end());
        bidirectional.assign(batch.bidirectional.begin(), batch.bidirectional.end());
        cells.clear();
        members.clear();
        history = {};
        open = true;
    }

    std::int32_t tokens() const { return static_cast<std::int32_t>(positions.size()); }
    bool sees_all(std::size_t token) const { return !bidirectional.empty() && bidirectional[token] != 0; }

    std::vector<Position> positions;
    std::vector<Sequence> sequences;
    std::vector<std::uint8_t> bidirectional; ///< empty, or a flag for each token
    std::vector<Cell> cells;                 ///< the cell of each token
    std::vector<Sequence> members;           ///< each sequence of the batch once
    CellRange history;
    bool open = false;
};

} // namespace cellar::detail
