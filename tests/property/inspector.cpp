// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "inspector.hpp"

#include <climits>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace property {

namespace {

Counts counts_of(const naive::Model& model) {
    const std::map<naive::TokenRef, int> owners = model.owners();
    Counts counts;
    for (int s = 0; s < model.setup().sequences; ++s) {
        counts.tokens += static_cast<int>(model.tokens(s).size());
        counts.sequences += model.tokens(s).empty() ? 0 : 1;
    }
    counts.used = static_cast<int>(owners.size());
    for (const auto& [token, count] : owners) counts.shared += count > 1 ? 1 : 0;
    for (const naive::Snapshot& snapshot : model.snapshots()) {
        const int tokens = static_cast<int>(snapshot.tokens.size());
        (snapshot.is_offloaded ? counts.offloaded : counts.snapshots) += 1;
        (snapshot.is_offloaded ? counts.offloaded_tokens : counts.kept) += tokens;
    }
    return counts;
}

/// The lowest run of n free cells, else the n lowest free cells.
std::vector<int> expected_cells(const std::set<int>& taken, int n, int cells) {
    std::vector<int> free;
    for (int c = 0; c < cells; ++c)
        if (!taken.contains(c)) free.push_back(c);
    const auto size = static_cast<std::ptrdiff_t>(n);
    for (auto first = free.begin(); n > 0 && free.end() - first >= size; ++first)
        if (first[size - 1] - *first == n - 1) return {first, first + size};
    return {free.begin(), free.begin() + size};
}

/// The cells of the longest run of free cells, of which the lowest counts; or of wholly free blocks, the lowest run of
/// n cells, else the lowest run.
std::pair<int, int> longest_run(const std::set<int>& taken, int cells) {
    std::pair<int, int> longest{0, 0};
    for (int c = 0, run = 0; c < cells; ++c) {
        run = taken.contains(c) ? 0 : run + 1;
        if (run > longest.second) longest = {c + 1 - run, run};
    }
    return longest;
}
std::pair<int, int> run_of_blocks(const std::set<int>& taken, int n, int cells) {
    std::pair<int, int> lowest{0, 0};
    std::pair<int, int> run{0, 0};
    for (int block = 0; block < cells; block += 64) {
        const int end = std::min(block + 64, cells);
        const bool is_free = taken.lower_bound(block) == taken.lower_bound(end);
        if (!is_free) {
            run = {end, 0};
            continue;
        }
        if (lowest.second == 0 || run == lowest) lowest = {run.first, end - run.first};
        run.second = end - run.first;
        if (run.second >= n) return run;
    }
    return lowest;
}

/// The cells of n neighbouring tokens of one sequence, whose last token is in cell `last`, or -1.
std::vector<int> expected_in_blocks(std::set<int> taken, int n, int last, int cells) {
    std::vector<int> expected;
    const auto take = [&](int first, int end) {
        for (int c = first; c < end && static_cast<int>(expected.size()) < n; ++c) {
            taken.insert(c);
            expected.push_back(c);
        }
    };
    for (int c = last + 1; last >= 0 && c < cells && !taken.contains(c); ++c) {
        const int end = std::min(c + 64, cells);
        if (c % 64 == 0 && (n == 1 || taken.lower_bound(c) != taken.lower_bound(end))) break;
        take(c, c + 1);
    }
    while (static_cast<int>(expected.size()) < n) {
        const int rest = n - static_cast<int>(expected.size());
        if (const auto [first, count] = run_of_blocks(taken, rest, cells); count > 0) {
            take(first, first + count);
        } else {
            const auto [longest, free] = longest_run(taken, cells);
            take(longest + std::min(free / 2, std::max(free - rest, 0)), longest + free);
        }
    }
    return expected;
}

} // namespace

void Inspector::check_counts(const naive::Model& model, const std::set<int>& sequences) const {
    Counts expected = counts_of(model);
    expected.longest_free_run = subject_.counts().longest_free_run;
    trace_.expect(subject_.counts() == expected, "the counts are ", subject_.counts(), ", expected ", expected);
    const int free = model.cells() - expected.used;
    trace_.expect(subject_.free_cells() == free, subject_.free_cells(), " cells are free, expected ", free);
    const std::map<naive::TokenRef, int> owners = model.owners();
    for (const int s : sequences) {
        const int freed = model.freed_by(s, owners);
        trace_.expect(subject_.cells_freed_by(s) == freed, "s", s, " would free ", subject_.cells_freed_by(s),
                      " cells, expected ", freed);
        const auto& tokens = model.tokens(s);
        const int count = static_cast<int>(tokens.size());
        trace_.expect(subject_.tokens(s) == count, "s", s, " has ", subject_.tokens(s), " tokens, expected ", count);
        std::optional<std::pair<int, int>> range;
        if (count > 0) range = {tokens.begin()->first, tokens.rbegin()->first};
        trace_.expect(subject_.range(s) == range, "s", s, " has the wrong range");
        trace_.expect(subject_.next(s) == model.next(s), "next(s", s, ") is ", subject_.next(s));
        if (!model.setup().is_encoder)
            trace_.expect(subject_.altered_from(s) == model.altered(s), "s", s, " is altered from ",
                          subject_.altered_from(s), " on, expected ", model.altered(s));
        check_resume(model, s);
    }
}

void Inspector::check_contents(const naive::Model& model, const std::set<int>& sequences) {
    std::erase_if(cell_of_, [](const auto& known) { return known.first.use_count() == 1; });
    const Counts before = subject_.counts();
    subject_.reserve(1);
    readable_layers_ = static_cast<int>(rows_.layers().size());
    for (const int s : sequences) check_contents(model, s);
    subject_.drop();
    trace_.expect(subject_.counts() == before, "reading sequences changed the counts");
}

// In a pass that sees all cells.
void Inspector::check_contents(const naive::Model& model, int s) {
    std::multimap<int, naive::TokenRef> missing = model.tokens(s);
    for (const auto& [position, cell] : subject_.cells_of(s)) {
        Rows rows;
        subject_.read(0, cell, rows);
        const int value = rows_.value_of(rows);
        auto [token, end] = missing.equal_range(position);
        while (token != end && token->second->value != value) ++token;
        trace_.expect(token != end, "s", s, " has token ", value, " at position ", position, " in cell ", cell);
        check_cell(token->second, cell);
        missing.erase(token);
    }
    trace_.expect(missing.empty(), "s", s, " lost ", missing.size(), " tokens");
}

void Inspector::check_placement(const naive::Model& model, const Batch& batch) {
    const bool is_contiguous = placement_ == cellar::Placement::contiguous;
    const int tokens = naive::stored_in(batch);
    const std::vector<int> cells = subject_.own_cells();
    trace_.expect(static_cast<int>(cells.size()) == tokens, "a pass that stores ", tokens, " tokens has ", cells.size(),
                  " cells");
    const std::optional<std::set<int>> taken = taken_cells(model);
    if (!taken && is_contiguous) cell_of_.clear(); // the cache may have defragmented itself
    if (!taken) return;
    std::vector<int> expected = placement_ == cellar::Placement::blocks ? cells_by_blocks(model, batch, *taken)
                                                                        : expected_cells(*taken, tokens, model.cells());
    if (is_contiguous && tokens > 0 && expected.back() - expected.front() + 1 != tokens) {
        forget_cells_from(model.used());
        for (int i = 0; i < tokens; ++i) expected[static_cast<std::size_t>(i)] = model.used() + i;
    }
    for (std::size_t i = 0; i < cells.size(); ++i)
        trace_.expect(cells[i] == expected[i], "stored token ", i, " is in cell ", cells[i], ", expected ",
                      expected[i]);
}

// The stored tokens of a sequence that follow one another in the batch go on behind the cell of its last token.
std::vector<int> Inspector::cells_by_blocks(const naive::Model& model, const Batch& batch, std::set<int> taken) const {
    std::vector<int> cells;
    std::map<int, std::pair<int, int>> newest; // position and cell of each sequence's last token
    for (std::size_t i = 0, n = 0; i < batch.size(); i += n) {
        const int s = batch[i].sequence;
        n = 1;
        if (!batch[i].stored) continue;
        while (i + n < batch.size() && batch[i + n].sequence == s && batch[i + n].stored) ++n;
        std::pair<int, int> last{-1, -1};
        if (const auto& old = model.tokens(s); !old.empty())
            last = {old.rbegin()->first, cell_of_.at(old.rbegin()->second)};
        if (const auto known = newest.find(s); known != newest.end()) last = known->second;
        const std::vector<int> more = expected_in_blocks(taken, static_cast<int>(n), last.second, model.cells());
        for (std::size_t k = 0; k < n; ++k) {
            taken.insert(more[k]);
            cells.push_back(more[k]);
            if (batch[i + k].position >= last.first) last = {batch[i + k].position, more[k]};
        }
        newest[s] = last;
    }
    return cells;
}

void Inspector::check_pass(const naive::Model& open, const Batch& batch, int style, int filled) {
    read_.clear();
    readable_layers_ = filled;
    std::vector<std::vector<bool>> visible;
    subject_.read_mask(style, visible);
    trace_.expect(visible.size() == batch.size(), "the mask has ", visible.size(), " rows");
    const std::vector<int> cells = subject_.own_cells();
    const std::set<int> own{cells.begin(), cells.end()};
    std::set<int> seen = own;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        trace_.expect(static_cast<int>(visible[i].size()) == subject_.history().second, "a row of the mask has ",
                      visible[i].size(), " columns");
        std::set<int> row;
        for (std::size_t c = 0; c < visible[i].size(); ++c)
            if (visible[i][c]) row.insert(subject_.history().first + static_cast<int>(c));
        seen.insert(row.begin(), row.end());
        check_runs(static_cast<int>(i), row);
        check_query(open, batch, i, row);
    }
    check_history(seen, open.setup().padding);
    if (style % 4 != 0) check_lists(open, batch); // not in all passes: a later one has more to bring up to date
}

void Inspector::check_resume(const naive::Model& model, int s) const {
    if (model.setup().consecutive && subject_.tokens(s) > 0)
        trace_.expect(subject_.can_resume(s, subject_.next(s)), "s", s, " has tokens, but cannot go on at ",
                      subject_.next(s));
    const int newest = model.newest(s);
    int nearest = 0;
    for (int p = 0; p <= newest + 9; ++p) {
        // Skips the middle of a long sequence, where all positions are alike, to save time.
        if (p == 8 && newest > 40) p = newest - 20;
        if (model.can_resume(s, p)) nearest = p;
        if (nearest >= p - 7)
            trace_.expect(subject_.resumable_prefix(s, p) == nearest, "resumable_prefix(s", s, ", ", p, ") is ",
                          subject_.resumable_prefix(s, p), ", expected ", nearest);
        trace_.expect(subject_.can_resume(s, p) == model.can_resume(s, p), "can_resume(s", s, ", ", p, ") is ",
                      subject_.can_resume(s, p) ? "true" : "false");
    }
}

void Inspector::check_history(const std::set<int>& seen, int padding) const {
    std::pair<int, int> expected{0, 0};
    if (!seen.empty()) {
        if (start_padding_ != 0) expected.first = *seen.begin() / start_padding_ * start_padding_;
        const int end = (*seen.rbegin() + padding) / padding * padding;
        expected.second = end - expected.first;
    }
    const std::pair<int, int> history = subject_.history();
    trace_.expect(history.second == expected.second && (history.second == 0 || history == expected), "the history is ",
                  history.second, " cells from ", history.first, ", expected ", expected.second, " from ",
                  expected.first);
}

/// The runs of visible cells say what the mask says, in the order of memory, and are as long as they can be.
void Inspector::check_runs(int token, const std::set<int>& cells) const {
    std::set<int> found;
    int end = -1;
    for (const auto& [first, count] : subject_.visible(token)) {
        trace_.expect(first > end && count > 0, "token ", token, " sees cells [", first, ", ", first + count,
                      "), expected a run behind cell ", end);
        end = first + count;
        for (int cell = first; cell < end; ++cell) found.insert(cell);
    }
    trace_.expect(found == cells, "the runs of token ", token, " and its row of the mask differ");
}

/// The lists have the cells of all tokens from the oldest position that the batch sees to its newest, in the order of
/// positions.
void Inspector::check_lists(const naive::Model& open, const Batch& batch) const {
    for (const CellList& list : subject_.lists()) {
        int from = INT_MAX;
        int last = -1; // a group ends with a token of the batch
        for (const naive::NewToken& t : batch) {
            if (t.sequence != list.sequence) continue;
            from = std::min(from, open.setup().window.oldest_visible(t.position));
            last = std::max(last, t.position);
        }
        const auto is_listed = [&](int position) {
            return position <= last && (position < open.setup().window.sinks || position >= from);
        };
        std::vector<std::pair<int, int>> expected = subject_.cells_of(list.sequence);
        std::erase_if(expected, [&](const auto& own) { return !is_listed(own.first); });
        trace_.expect(list.cells == expected, "the list of s", list.sequence, " has ", list.cells.size(),
                      " cells, which differ from the ", expected.size(), " that its tokens see");
        const auto& tokens = open.tokens(list.sequence);
        const auto listed =
            std::count_if(tokens.begin(), tokens.end(), [&](const auto& t) { return is_listed(t.first); });
        trace_.expect(static_cast<std::size_t>(listed) == list.cells.size(), "the list of s", list.sequence, " has ",
                      list.cells.size(), " cells, expected ", listed);
    }
}

void Inspector::check_query(const naive::Model& open, const Batch& batch, std::size_t i, const std::set<int>& cells) {
    const naive::NewToken& query = batch[i];
    const std::vector<naive::TokenRef> visible = open.visible(batch, i);
    trace_.expect(visible.size() == cells.size(), "the query at ", query.position, " of s", query.sequence, " sees ",
                  cells.size(), " cells, expected ", visible.size());
    if (readable_layers_ == 0) return;
    std::set<naive::TokenRef> missing{visible.begin(), visible.end()};
    for (const int cell : cells) {
        const naive::TokenRef token = token_in(open, cell, query, missing);
        trace_.expect(missing.erase(token) == 1, "the query at ", query.position, " of s", query.sequence,
                      " sees token ", token->value, ", which is not visible to it, or sees it twice");
    }
}

/// The token in a cell. It is read and compared once per pass, because all queries see the same memory.
naive::TokenRef Inspector::token_in(const naive::Model& open, int cell, const naive::NewToken& query,
                                    const std::set<naive::TokenRef>& expected) {
    if (const auto known = read_.find(cell); known != read_.end()) return known->second;
    Rows rows;
    subject_.read(0, cell - subject_.history().first, rows);
    const int value = rows_.value_of(rows);
    const auto is_same = [value](const naive::TokenRef& token) { return token->value == value; };
    const bool is_ambiguous = std::count_if(expected.begin(), expected.end(), is_same) > 1;
    for (const naive::TokenRef& token : expected) {
        if (!is_same(token) || (is_ambiguous && !has_position_of(open, query.sequence, token, cell))) continue;
        check_cell(token, cell);
        return read_[cell] = token;
    }
    trace_.fail("the query at ", query.position, " of s", query.sequence, " sees token ", value, " in cell ", cell,
                ", which is not visible to it, or sees it twice");
}

/// True if the token has the position that the sequence has in this cell. A token that was moved and a restored copy of
/// it may both be in one sequence.
bool Inspector::has_position_of(const naive::Model& open, int sequence, const naive::TokenRef& token, int cell) const {
    for (const auto& [position, own] : subject_.cells_of(sequence)) {
        if (own != cell) continue;
        const auto [begin, end] = open.tokens(sequence).equal_range(position);
        if (std::any_of(begin, end, [&](const auto& held) { return held.second == token; })) return true;
    }
    return false;
}

void Inspector::check_cell(const naive::TokenRef& token, int cell) {
    const int known = cell_of_.try_emplace(token, cell).first->second;
    trace_.expect(known == cell, "token ", token->value, " was in cell ", known, " and is in ", cell);
    for (int layer = 0; layer < readable_layers_; ++layer) check_rows(*token, layer, cell - subject_.history().first);
}

void Inspector::check_rows(const naive::Token& token, int layer, int column) const {
    Rows rows;
    subject_.read(layer, column, rows);
    trace_.expect(rows.value == rows_.stored(layer, token.value).value, "token ", token.value,
                  " has the wrong value row in layer ", layer);
    const std::vector<double> key = rows_.key_of(token, layer);
    trace_.expect(key.size() == rows.key.size(), "layer ", layer, " has a wrong key extent");
    for (std::size_t i = 0; i < key.size(); ++i)
        trace_.expect(std::abs(rows.key[i] - key[i]) <= rows_.tolerance(token), "token ", token.value, ", shifted by ",
                      token.shifted, " in total, has key element ", i, " of layer ", layer, " = ", rows.key[i],
                      ", expected ", key[i]);
}

/// The cells in use, if all of them are known.
std::optional<std::set<int>> Inspector::taken_cells(const naive::Model& model) const {
    std::set<int> cells;
    for (const auto& [token, count] : model.owners()) {
        const auto known = cell_of_.find(token);
        if (known == cell_of_.end()) return std::nullopt;
        cells.insert(known->second);
    }
    trace_.expect(static_cast<int>(cells.size()) == model.used(), "two tokens share a cell");
    return cells;
}

} // namespace property
