// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/cache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cellar {

namespace detail {

/// Draws who owns which cell, a letter for each.
class CellMap {
public:
    CellMap(const Ledger& ledger, bool colour) : ledger_{ledger}, colour_{colour} {
        owner_.assign(static_cast<std::size_t>(ledger.cells()), nobody);
        for (std::int32_t s = 0; s < ledger.sequences(); ++s)
            ledger.record({s}).runs.for_each({0}, end_of_time, [&](Position, Cell cell, std::int32_t n) {
                for (Cell c = cell; c < cell + n; ++c) {
                    std::int32_t& owner = owner_[static_cast<std::size_t>(c)];
                    owner = owner == nobody ? s : several;
                }
            });
    }

    /// Rows of `width` cells with the number of the first in front. Equal rows after one another are drawn once.
    std::string rows(std::int32_t width) const {
        std::string drawn;
        const auto number_width = std::to_string(ledger_.cells()).size();
        std::string before;
        bool skipped = false;
        for (Cell first = 0; first < ledger_.cells(); first += width) {
            const Cell end = std::min(first + width, ledger_.cells());
            const std::string cells = row(first, end);
            if (cells == before && end < ledger_.cells()) {
                if (!skipped) drawn += std::string(number_width, ' ') + "  ...\n";
                skipped = true;
                continue;
            }
            const std::string number = std::to_string(first);
            drawn += std::string(number_width - number.size(), ' ') + number + "  " + cells + '\n';
            before = cells;
            skipped = false;
        }
        return drawn;
    }

    /// The letter of a sequence, coloured if colours are wanted.
    std::string symbol(std::int32_t owner) const {
        static constexpr char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        if (owner == nobody) return colour_ ? "\033[90m.\033[0m" : ".";
        if (owner == several) return colour_ ? "\033[7m*\033[0m" : "*";
        const std::string letter(1, letters[owner % 62]);
        return colour_ ? "\033[" + std::to_string(31 + owner % 6) + "m" + letter + "\033[0m" : letter;
    }

private:
    static constexpr std::int32_t nobody = -1;
    static constexpr std::int32_t several = -2;

    std::string row(Cell first, Cell end) const {
        std::string cells;
        for (Cell c = first; c < end; ++c) cells += symbol(owner_[static_cast<std::size_t>(c)]);
        return cells;
    }

    const Ledger& ledger_;
    bool colour_;
    std::vector<std::int32_t> owner_;
};

} // namespace detail

/// The cell map for people: who owns which cell ('.' nobody, '*' several sequences, else the sequence's letter: 0-9,
/// a-z, A-Z, over again), a line for each sequence that has tokens, and the numbers of `Statistics`. `colour` adds
/// the escape codes of a terminal; `width` is the cells per row. O(cells + tokens).
template <class L, class W, class S, class B>
std::string describe(const Cache<L, W, S, B>& cache, bool colour = false, std::int32_t width = 64) {
    CELLAR_EXPECTS(width > 0, "describe: a width of ", width, " cells, expected at least 1");
    const Statistics statistics = cache.statistics();
    const detail::CellMap map{cache.ledger(), colour};
    std::string drawn = std::to_string(statistics.cells - statistics.free) + " of " + std::to_string(statistics.cells)
                        + " cells used, " + std::to_string(statistics.shared) + " shared, longest free run "
                        + std::to_string(statistics.longest_free_run) + ", " + std::to_string(statistics.bytes)
                        + " bytes in " + std::to_string(cache.shape().layers()) + " layers\n";
    drawn += map.rows(width);
    for (std::int32_t s = 0; s < cache.limits().sequences; ++s) {
        const auto range = cache.range({s});
        if (!range) continue;
        drawn += map.symbol(s) + "  sequence " + std::to_string(s) + ": " + std::to_string(cache.tokens({s}))
                 + " tokens, positions " + std::to_string(range->first.value) + " to "
                 + std::to_string(range->last.value) + '\n';
    }
    return drawn;
}

} // namespace cellar
