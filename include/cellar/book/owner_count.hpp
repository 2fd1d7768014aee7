// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/book/words.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace cellar::detail {

/// How many sequences own each cell, counted for 64 cells at a time. Plane k holds bit k of every cell's count, so
/// adding an owner to a run of cells is a ripple-carry addition on whole words. A change of n neighbouring cells
/// touches O(n / 64) words, twice that on average because of carries. Planes that no count has reached are not read.
class OwnerCount {
public:
    /// All counts are zero. `owners` is the largest count that can occur.
    OwnerCount(Cell cells, std::int32_t owners) { reserve(cells, owners); }
    static constexpr std::int64_t bytes_for(Cell cells, std::int64_t owners) {
        return bytes_of<ZeroedArray<Word>>(most_planes) + bytes_of<Word>(planes_for(owners) * words_for(cells));
    }

    /// Afterwards counts of up to `owners` can occur. Throws `std::bad_alloc`, with nothing visible changed.
    void reserve(Cell cells, std::int64_t owners) {
        while (std::ssize(planes_) < planes_for(owners)) planes_.emplace_back(words_for(cells));
    }

    /// Adds an owner to each cell of [first, first + n).
    void add(Cell first, std::int32_t n) {
        visit_words(first, n, [&](std::int64_t at, Word cells) { add_word(at, cells); });
    }

    /// The same for cells of one word, or for all cells of several.
    void add(const CellsOfWords& cells) {
        if (cells.words == 1) return add_word(cells.at, cells.cells);
        for_each_chunk(cells, [&](std::int64_t at, std::int64_t n) {
            Chunk carry;
            carry.fill(~Word{0});
            Word any = ~Word{0};
            std::size_t k = 0;
            for (; any != 0; ++k) {
                Word* const plane = planes_[k].data() + at;
                any = 0;
                for (std::int64_t i = 0; i < n; ++i) {
                    const Word both = plane[i] & carry[static_cast<std::size_t>(i)];
                    plane[i] ^= carry[static_cast<std::size_t>(i)];
                    carry[static_cast<std::size_t>(i)] = both;
                    any |= both;
                }
            }
            reached_ = std::max(reached_, k);
        });
    }

    /// Adds an owner to these cells of word `at`.
    void add_word(std::int64_t at, Word cells) {
        std::size_t k = 0;
        for (; cells != 0; ++k) {
            const Word plane = planes_[k][at];
            planes_[k][at] = plane ^ cells;
            cells &= plane;
        }
        if (k > reached_) reached_ = k;
    }

    /// Removes an owner from these cells of word `at`, all of them owned. Returns those that have none left. Inlined,
    /// because a call for each word would cost a fifth of a removal.
    [[gnu::always_inline]] Word drop_word(std::int64_t at, Word cells) {
        Word borrow = cells;
        Word free = cells;
        std::size_t k = 0;
        for (; borrow != 0; ++k) {
            const Word plane = planes_[k][at] ^ borrow;
            planes_[k][at] = plane;
            borrow &= plane;
            free &= ~plane;
        }
        for (; free != 0 && k < reached_; ++k) free &= ~planes_[k][at];
        return free;
    }

    /// The same for all cells of several words. Calls `visit(cells)` for those that have none left.
    template <class Visit>
    void drop_words(const CellsOfWords& cells, Visit visit) {
        for_each_chunk(cells, [&](std::int64_t at, std::int64_t n) {
            if (any_shared(at, n)) {
                for (std::int64_t i = at; i < at + n; ++i)
                    if (const Word free = drop_word(i, ~Word{0}); free != 0) visit(CellsOfWords{i, free});
            } else {
                std::fill_n(planes_[0].data() + at, n, Word{0});
                visit(CellsOfWords{at, ~Word{0}, n});
            }
        });
    }

    /// The counts of moved cells go to the cells they move to, which have no owner. Between the first and the last cell
    /// that moves, no cell has an owner afterwards; between the first and the last target, every cell has one, unless
    /// this counts `some` of the owners.
    void transfer(const TrivialList<Move>& moves, bool some = false) {
        if (moves.empty()) return;
        const Cell first = moves.front().from;
        const Cell end = moves.back().from + moves.back().count;
        const bool copies = some || any_shared(word_of(first), word_of(end - 1) + 1 - word_of(first));
        if (!copies) own_free(moves.front().to, moves.back().to + moves.back().count);
        for (std::size_t k = 0; k < (copies ? std::min(reached_, planes_.size()) : 1); ++k) {
            Word* const plane = planes_[k].data();
            if (copies)
                for (const Move& move : moves) copy_bits(plane, move);
            visit_words(first, end - first, [&](std::int64_t at, Word cells) { plane[at] &= ~cells; });
        }
    }

    /// How many cells of [first, first + n) have several owners.
    std::int32_t shared(Cell first, std::int32_t n) const {
        std::int32_t count = 0;
        visit_words(first, n, [&](std::int64_t at, Word cells) { count += shared_word(at, cells); });
        return count;
    }

    /// The cells of word `at` that have several owners.
    Word shared_in(std::int64_t at) const {
        Word any = 0;
        for (std::size_t k = 1; k < reached_; ++k) any |= planes_[k][at];
        return any;
    }
    /// How many of these cells of word `at` have several owners.
    std::int32_t shared_word(std::int64_t at, Word cells) const {
        const Word any = shared_in(at) & cells;
        return any == 0 ? 0 : std::popcount(any); // popcount is a function call on plain x86-64
    }
    std::int32_t shared(const CellsOfWords& cells) const {
        if (cells.words == 1) return shared_word(cells.at, cells.cells);
        std::int32_t count = 0;
        for_each_chunk(cells, [&](std::int64_t at, std::int64_t n) {
            if (any_shared(at, n))
                for (std::int64_t i = at; i < at + n; ++i) count += shared_word(i, ~Word{0});
        });
        return count;
    }

    /// How many cells from `first` on, n at most, agree in being shared or not.
    std::int32_t uniform(Cell first, std::int32_t n) const {
        const std::int32_t count = shared(first, n);
        if (count == 0 || count == n) return n;
        const bool expected = is_shared(first);
        std::int32_t alike = 1;
        while (is_shared(first + alike) == expected) ++alike;
        return alike;
    }

    bool is_shared(Cell cell) const { return shared(cell, 1) != 0; }
    /// False if no cell ever had several owners.
    bool ever_shared() const { return reached_ > 1; }

    /// How many of these cells have owners, and all of them are among `some`, which counts part of the owners.
    std::int32_t owned_by(const OwnerCount& some, const CellsOfWords& cells) const {
        std::int32_t count = 0;
        for (std::int64_t at = cells.at; at < cells.at + cells.words; ++at) {
            Word owned = 0;
            Word others = 0;
            for (std::size_t k = 0; k < reached_; ++k) {
                const Word of_some = k < some.planes_.size() ? some.planes_[k][at] : 0;
                owned |= of_some;
                others |= of_some ^ planes_[k][at];
            }
            owned &= cells.cells & ~others;
            count += owned == 0 ? 0 : std::popcount(owned);
        }
        return count;
    }

    /// How many sequences own a cell.
    std::int32_t count(Cell cell) const {
        std::int32_t owners = 0;
        for (std::size_t k = 0; k < planes_.size(); ++k)
            owners |= static_cast<std::int32_t>(planes_[k][cell / 64] >> (cell % 64) & 1) << k;
        return owners;
    }

private:
    using Chunk = std::array<Word, 64>;
    static constexpr int most_planes = 64; // as many as a count can have bits

    static constexpr std::int64_t planes_for(std::int64_t owners) {
        return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(owners)));
    }

    // Calls `visit(at, n)` for pieces of several words.
    template <class Visit>
    static void for_each_chunk(const CellsOfWords& cells, Visit visit) {
        constexpr auto size = static_cast<std::int64_t>(Chunk{}.size());
        for (std::int64_t i = 0; i < cells.words; i += size) visit(cells.at + i, std::min(cells.words - i, size));
    }

    // True if a cell of words [at, at + n) has several owners.
    bool any_shared(std::int64_t at, std::int64_t n) const {
        Word any = 0;
        for (std::size_t k = 1; k < reached_; ++k)
            for (std::int64_t i = at; i < at + n; ++i) any |= planes_[k][i];
        return any != 0;
    }

    // Every cell of [first, end) that has no owner gets one.
    void own_free(Cell first, Cell end) {
        visit_words(first, end - first, [&](std::int64_t at, Word cells) {
            for (std::size_t k = 1; k < reached_; ++k) cells &= ~planes_[k][at];
            planes_[0][at] |= cells;
        });
    }

    // The bits of moved cells are also set where they move to, where none are.
    static void copy_bits(Word* plane, const Move& move) {
        std::int64_t from = move.from;
        std::int64_t to = move.to;
        for (std::int64_t left = move.count, n = 0; left > 0; left -= n, from += n, to += n) {
            const std::int64_t skipped = bit_of(from);
            const std::int64_t room = word_bits - bit_of(to);
            n = std::min(left, room);
            const Word* const source = plane + word_of(from);
            Word cells = source[0] >> skipped;
            if (skipped + n > word_bits) cells |= source[1] << (word_bits - skipped);
            plane[word_of(to)] |= (cells & bit_range(0, n)) << bit_of(to);
        }
    }

    ReservedList<ZeroedArray<Word>> planes_{most_planes};
    std::size_t reached_ = 1; // planes from here on are zero
};

} // namespace cellar::detail
