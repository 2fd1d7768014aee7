// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/encoder_memory.hpp>
#include <cellar/cache/statistics.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cellar {

namespace detail {

/// A drawing of which sequence owns which cell, one letter per cell.
class CellMap {
public:
    template <class Memory>
    CellMap(const Memory& memory, bool colour)
        : colour_{colour}, owner_(static_cast<std::size_t>(memory.cells()), no_owner) {
        for (std::int32_t s = 0; s < memory.sequences(); ++s)
            memory.visit_cells(Sequence{s}, [&](Position, Cell cell, std::int32_t n) {
                for (Cell c = cell; c < cell + n; ++c) {
                    std::int32_t& owner = owner_[static_cast<std::size_t>(c)];
                    owner = owner == no_owner ? s : several;
                }
            });
        memory.visit_kept_cells([&](Position, Cell cell, std::int32_t n) {
            const auto first = owner_.begin() + cell;
            std::replace(first, first + n, no_owner, snapshots);
        });
    }

    /// Rows of `width` cells, each with the number of its first cell in front. Repeated rows are drawn once.
    std::string rows(std::int32_t width) const {
        const auto cells = static_cast<Cell>(owner_.size());
        const auto number_width = std::to_string(cells).size();
        std::string drawn;
        std::string before;
        bool skipped = false;
        for (std::int64_t first = 0; first < cells; first += width) {
            const auto end = static_cast<Cell>(std::min<std::int64_t>(first + width, cells));
            const std::string current = row(static_cast<Cell>(first), end);
            if (current == before && end < cells) {
                if (!skipped) drawn += std::string(number_width, ' ') + "  ...\n";
                skipped = true;
                continue;
            }
            const std::string number = std::to_string(first);
            drawn += std::string(number_width - number.size(), ' ') + number + "  " + current + '\n';
            before = current;
            skipped = false;
        }
        return drawn;
    }

    /// The letter of an owner, in colour if wanted.
    std::string symbol(std::int32_t owner) const {
        static constexpr char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        if (owner == no_owner) return colour_ ? "\033[90m.\033[0m" : ".";
        if (owner == snapshots) return colour_ ? "\033[90m+\033[0m" : "+";
        if (owner == several) return colour_ ? "\033[7m*\033[0m" : "*";
        const std::string letter(1, letters[owner % 62]);
        return colour_ ? "\033[" + std::to_string(31 + owner % 6) + "m" + letter + "\033[0m" : letter;
    }

private:
    static constexpr std::int32_t no_owner = -1;
    static constexpr std::int32_t several = -2;
    static constexpr std::int32_t snapshots = -3; ///< and no sequence

    std::string row(Cell first, Cell end) const {
        std::string drawn;
        for (Cell c = first; c < end; ++c) drawn += symbol(owner_[static_cast<std::size_t>(c)]);
        return drawn;
    }

    bool colour_;
    std::vector<std::int32_t> owner_;
};

/// "1 layer", "2 layers".
inline std::string counted(std::int64_t n, const char* what) {
    return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

template <class Memory>
std::string describe(const Memory& memory, bool colour, std::int32_t width) {
    CELLAR_EXPECTS(width > 0, "describe: a width of ", width, " cells, expected at least 1");
    const CacheStatistics statistics = memory.statistics();
    const CellMap map{memory, colour};
    std::string drawn = std::to_string(statistics.cells - statistics.free) + " of " + counted(statistics.cells, "cell")
                        + " used, " + std::to_string(statistics.shared) + " shared, longest free run "
                        + std::to_string(statistics.longest_free_run) + ", " + counted(statistics.bytes, "byte")
                        + " in " + counted(memory.layers(), "layer") + '\n';
    drawn += map.rows(width);
    for (std::int32_t s = 0; s < memory.sequences(); ++s) {
        const auto range = memory.range(Sequence{s});
        if (!range) continue;
        drawn += map.symbol(s) + "  sequence " + std::to_string(s) + ": " + counted(memory.tokens(Sequence{s}), "token")
                 + ", positions " + std::to_string(range->first.value) + " to " + std::to_string(range->last.value)
                 + '\n';
    }
    return drawn;
}

} // namespace detail

/// The cell map, for people: a character for each cell, a line for each sequence that has tokens, and the numbers of
/// `CacheStatistics`. A free cell is '.', one that only snapshots own '+', and one that several sequences own '*'.
/// Others have the character of their owner: 0-9, a-z, A-Z, and again from 0. `colour` adds terminal escape codes;
/// `width` is the number of cells per row. O(cells + tokens of all sequences and snapshots).
template <class Layout, class Window, class Shift, class Backend>
std::string describe(const Cache<Layout, Window, Shift, Backend>& cache, bool colour = false, std::int32_t width = 64,
                     Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::describe(cache, colour, width);
}
template <class Layout, class Backend>
std::string describe(const EncoderMemory<Layout, Backend>& memory, bool colour = false, std::int32_t width = 64,
                     Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::describe(memory, colour, width);
}

} // namespace cellar
