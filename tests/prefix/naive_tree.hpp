// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "reader.hpp"
#include <cellar/base/offload_to.hpp>
#include <cellar/window/sliding_window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

// A memory and a prefix tree that do what the real ones say, as simply as possible: no tree, but a list of what is
// kept.

namespace prefix_test::naive {

/// The kinds of layers of a memory. The members of a hybrid are asked in this order.
struct Kind {
    bool window = false; ///< a token sees 4, `retention` are kept
    bool full = false;
    bool states = false;
    bool divides = true; ///< has `split`
    int retention = 6;
    int window_cells = 0;
    int full_cells = 0;
    int snapshots = 0;
    int rollback = 0;
    std::int64_t offloaded_bytes = 0;
    cellar::OffloadTo offload_to = cellar::OffloadTo::host; ///< makes no difference here
    int state_bytes = 0;

    static constexpr int cell_bytes[2] = {32, 16};
};

/// Why a memory refuses.
struct Refused {
    Reason reason{};
    int member = 0;
};

enum Member { window, full };

/// What a sequence or a snapshot has.
struct Holding {
    std::map<int, int> cells[2]; ///< for each member, position and cell
    std::set<int> states;        ///< positions
};

/// A snapshot of the tree.
struct Entry {
    std::uint64_t salt = 0;
    List tokens{}; ///< from position 0 on
    int from[2] = {0, 0};
    bool whole = false; ///< its window had moved on
    Holding holds{};
    std::uint64_t used = 0;
    int pins = 0;
    bool held = false; ///< while it is restored
    bool offloaded = false;

    int end() const { return static_cast<int>(tokens.size()); }
    int begin() const { return std::max(from[window], from[full]); }
};

inline int common(const List& a, const List& b) {
    return static_cast<int>(
        std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(std::min(a.size(), b.size())), b.begin()).first
        - a.begin());
}

class Tree {
public:
    Tree(const Kind& kind, int sequences) : kind_{kind}, lines_(static_cast<std::size_t>(sequences)) {
        const cellar::SlidingWindow<4> asked{{.retention = kind.retention}};
        window_ = asked.resolved(sequences, 100);
    }

    const List& tokens(int s) const { return line(s).tokens; }
    int evictions() const { return evictions_; }
    int offloads() const { return offloads_; }
    int reloads() const { return reloads_; }
    std::int64_t bytes(bool offloaded) const {
        std::int64_t sum = 0;
        for (const Entry& e : entries_) sum += e.offloaded == offloaded ? bytes_of(e) : 0;
        return sum;
    }
    int snapshots(bool offloaded) const {
        return static_cast<int>(
            std::count_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.offloaded == offloaded; }));
    }
    int snapshots() const { return static_cast<int>(entries_.size()); }
    const std::list<Entry>& entries() const { return entries_; }

    int used_cells(Member m) const {
        std::set<int> used;
        for (const Line& l : lines_)
            for (const auto& [position, cell] : l.holds.cells[m]) used.insert(cell);
        for (const Entry& e : entries_)
            if (!e.offloaded)
                for (const auto& [position, cell] : e.holds.cells[m]) used.insert(cell);
        return static_cast<int>(used.size());
    }

    /// Cells that would be free if all snapshots went that are neither pinned nor needed by one that is.
    int evictable_cells(Member m) {
        std::set<int> stay;
        for (const Line& l : lines_)
            for (const auto& [position, cell] : l.holds.cells[m]) stay.insert(cell);
        for (Entry& pinned : entries_)
            for (const Entry* e = pinned.pins > 0 ? &pinned : nullptr; e != nullptr; e = base(*e))
                for (const auto& [position, cell] : e->holds.cells[m])
                    if (!e->offloaded) stay.insert(cell);
        return used_cells(m) - static_cast<int>(stay.size());
    }

    /// The tokens in the edges: distinct prefixes. And the nodes: where something is kept, or parts.
    std::pair<int, int> tokens_and_nodes() const {
        std::map<std::pair<std::uint64_t, List>, std::set<int>> next; // by prefix
        std::set<std::pair<std::uint64_t, List>> nodes;
        for (const Entry& e : entries_) {
            for (int n = 0; n < e.end(); ++n) next[{e.salt, first(n, e.tokens)}].insert(e.tokens[std::size_t(n)]);
            nodes.insert({e.salt, e.tokens});
        }
        int tokens = 0;
        for (const auto& [prefix, children] : next) {
            tokens += static_cast<int>(children.size());
            if (children.size() > 1 && !prefix.second.empty()) nodes.insert(prefix);
        }
        return {tokens, static_cast<int>(nodes.size())};
    }

    PrefixMatch match(const List& tokens, std::uint64_t salt) {
        const auto [entry, length] = deepest(tokens, salt);
        return {entry == nullptr ? 0 : length, verified(tokens, salt)};
    }

    PrefixMatch attach(int s, const List& tokens, std::uint64_t salt) {
        const PrefixMatch match = this->match(tokens, salt);
        if (match.length == 0) return match;
        int length = 0;
        auto [entry, end] = deepest(tokens, salt);
        while (entry != nullptr) {
            if (end <= length || restore(s, *entry, end, length)) {
                use(*entry);
                break;
            }
            entry = above(tokens, end, salt);
            end = end_of(entry);
        }
        line(s).tokens = first(length, tokens);
        return {length, match.verified};
    }

    /// Returns false if the memory refuses.
    bool compute(int s, const List& tokens) {
        Line& l = line(s);
        while (l.tokens.size() < tokens.size()) {
            const int begin = static_cast<int>(l.tokens.size());
            const int end = std::min(begin + 8, static_cast<int>(tokens.size()));
            while (const std::optional<Refused> refused = full_member(end - begin, end - begin))
                if (!make_room(*refused)) return false;
            for (int p = begin; p < end; ++p) {
                if (kind_.window) l.holds.cells[window][p] = next_cell_++;
                if (kind_.full) l.holds.cells[full][p] = next_cell_++;
                l.holds.states.insert(p + 1);
            }
            std::erase_if(l.holds.states, [&](int p) { return p < end - kind_.rollback; });
            std::erase_if(l.holds.cells[window], [&](const auto& at) {
                return at.first < window_.oldest_kept(cellar::Position{end - 1}).value;
            });
            l.tokens = first(end, tokens);
        }
        return true;
    }

    void leave(int s) { line(s) = {}; }

    std::optional<Reason> insert(int s, int n, std::uint64_t salt) {
        if (n > 0) refresh(s, first(n, line(s).tokens), salt);
        while (true) {
            const std::optional<Reason> refused = try_insert(s, first(n, line(s).tokens), salt);
            if (refused != Reason::too_many_snapshots || !make_room({*refused})) return refused;
        }
    }

    /// Gives up what was not used for the longest time.
    bool evict() {
        Entry* const least =
            least_used([&](const Entry& e) { return is_free(e) && !is_needed(e, true) && !is_needed(e, false); });
        if (least != nullptr) give_up(*least);
        return least != nullptr;
    }

    /// Null if there is nothing to pin.
    Entry* pin(const List& tokens, std::uint64_t salt) {
        Entry* const entry = deepest(tokens, salt).first;
        if (entry != nullptr) ++entry->pins;
        return entry;
    }

private:
    struct Line {
        List tokens{};
        Holding holds{};
    };

    // Moves out of the memory what was not used for the longest time, of what would help.
    bool make_room(const Refused& refused) {
        std::vector<const Entry*> failed;
        while (true) {
            Entry* const least = least_used([&](Entry& e) {
                const bool helps = refused.reason == Reason::too_many_snapshots || frees(e, refused.member);
                return helps && !e.offloaded && is_free(e) && !is_needed(e, false)
                       && std::ranges::count(failed, &e) == 0;
            });
            if (least == nullptr)
                return refused.reason == Reason::full
                       && (make_room_together(refused.member) || make_room_below(refused.member));
            if (move_out(*least)) return true;
            failed.push_back(least);
        }
    }

    // The same by several that do not help alone: the first one that helps with those that were used before it, and of
    // these, in the same way, those that are needed.
    bool make_room_together(int member) {
        std::vector<Entry*> candidates;
        for (Entry& e : entries_)
            if (!e.offloaded && is_free(e) && !is_needed(e, false) && !frees(e, member)) candidates.push_back(&e);
        std::sort(candidates.begin(), candidates.end(), [](Entry* a, Entry* b) { return a->used < b->used; });
        std::vector<Entry*> chosen;
        while (!frees(chosen, member)) {
            std::vector<Entry*> tried = chosen;
            std::size_t n = 0;
            while (n < candidates.size() && !frees(tried, member)) tried.push_back(candidates[n++]);
            if (!frees(tried, member)) return false;
            chosen.insert(chosen.begin(), candidates[n - 1]);
            candidates.resize(n - 1);
        }
        bool any = false;
        for (Entry* e : chosen) {
            if (!move_out(*e)) break;
            any = true;
        }
        return any;
    }

    // The same by one that frees nothing, but needs a shorter one that does.
    bool make_room_below(int member) {
        std::vector<Entry*> candidates;
        for (Entry& e : entries_)
            if (!e.offloaded && is_free(e) && !is_needed(e, false) && !frees(e, member)) candidates.push_back(&e);
        std::sort(candidates.begin(), candidates.end(), [](Entry* a, Entry* b) { return a->used < b->used; });
        for (Entry* e : candidates)
            for (Entry* shorter = base(*e); shorter != nullptr; shorter = base(*shorter))
                if (!shorter->offloaded && frees(*shorter, member) && !stays(*shorter) && move_out(*e)) return true;
        return false;
    }
    bool stays(const Entry& entry) {
        for (Entry& longer : entries_)
            for (Entry* e = is_free(longer) ? nullptr : &longer; e != nullptr; e = base(*e))
                if (e == &entry) return true;
        return false;
    }

    bool move_out(Entry& entry) {
        if (offload(entry)) return true;
        while (is_needed(entry, true)) {
            Entry* const offloaded = least_offloaded();
            if (offloaded == nullptr) return false;
            give_up(*offloaded);
        }
        give_up(entry);
        return true;
    }

    bool offload(Entry& entry) {
        if (bytes_of(entry) > kind_.offloaded_bytes) return false;
        while (bytes(true) + bytes_of(entry) > kind_.offloaded_bytes) {
            Entry* const offloaded = least_offloaded();
            if (offloaded == nullptr || offloaded->used > entry.used) return false;
            give_up(*offloaded);
        }
        entry.offloaded = true;
        ++offloads_;
        return true;
    }

    // If there is room.
    void reload(Entry& entry) {
        while (const std::optional<Refused> refused = lacks_room(entry))
            if (!make_room(*refused)) return;
        for (const Member m : {window, full})
            for (auto& [position, cell] : entry.holds.cells[m]) cell = next_cell_++;
        entry.offloaded = false;
        ++reloads_;
    }
    std::optional<Refused> lacks_room(const Entry& e) const {
        const auto count = [&](Member m) { return static_cast<int>(e.holds.cells[m].size()); };
        if (const auto refused = full_member(count(window), count(full))) return refused;
        if (kind_.states && snapshots(false) >= kind_.snapshots) return Refused{Reason::too_many_snapshots};
        return std::nullopt;
    }

    void give_up(Entry& entry) {
        entries_.remove_if([&](const Entry& e) { return &e == &entry; });
        ++evictions_;
    }

    template <class OfUse>
    Entry* least_used(OfUse of_use) {
        Entry* least = nullptr;
        for (Entry& e : entries_)
            if (of_use(e) && (least == nullptr || e.used < least->used)) least = &e;
        return least;
    }
    Entry* least_offloaded() {
        return least_used(
            [&](const Entry& e) { return e.offloaded && is_free(e) && !is_needed(e, true) && !is_needed(e, false); });
    }
    static bool is_free(const Entry& e) { return e.pins == 0 && !e.held; }

    std::int64_t bytes_of(const Entry& e) const {
        std::int64_t bytes = kind_.state_bytes;
        for (const Member m : {window, full})
            bytes += static_cast<std::int64_t>(e.holds.cells[m].size()) * Kind::cell_bytes[m];
        return bytes;
    }

    Line& line(int s) { return lines_[static_cast<std::size_t>(s)]; }
    const Line& line(int s) const { return lines_[static_cast<std::size_t>(s)]; }

    static bool is_prefix(const Entry& e, const List& tokens, std::uint64_t salt) {
        return e.salt == salt && common(e.tokens, tokens) == e.end();
    }

    int verified(const List& tokens, std::uint64_t salt) const {
        int verified = 0;
        for (const Entry& e : entries_)
            if (e.salt == salt) verified = std::max(verified, common(e.tokens, tokens));
        return verified;
    }

    /// The end of the edge that position n of the tokens lies within; n if it lies at the end of one.
    int edge_end(const List& tokens, int n, std::uint64_t salt) const {
        std::vector<const List*> through;
        for (const Entry& e : entries_) {
            if (e.salt != salt || common(e.tokens, tokens) < n) continue;
            if (e.end() == n) return n;
            through.push_back(&e.tokens);
        }
        int end = static_cast<int>(through.front()->size());
        for (const List* other : through) end = std::min(end, common(*through.front(), *other));
        return n == 0 ? 0 : end;
    }

    Entry* entry_at(const List& tokens, int n, std::uint64_t salt) {
        for (Entry& e : entries_)
            if (e.end() == n && is_prefix(e, tokens, salt)) return &e;
        return nullptr;
    }
    /// The longest one below n.
    Entry* above(const List& tokens, int n, std::uint64_t salt) {
        Entry* found = nullptr;
        for (Entry& e : entries_)
            if (e.end() < n && is_prefix(e, tokens, salt) && (found == nullptr || found->end() < e.end())) found = &e;
        return found;
    }
    /// The entry at the end of the edge that n lies within; null if there is none.
    Entry* below(const List& tokens, int n, std::uint64_t salt) {
        const int end = edge_end(tokens, n, salt);
        for (Entry& e : entries_)
            if (end > n && e.salt == salt && e.end() == end && common(e.tokens, tokens) >= n) return &e;
        return nullptr;
    }

    std::pair<Entry*, int> deepest(const List& tokens, std::uint64_t salt) {
        const int n = verified(tokens, salt);
        if (n == 0) return {nullptr, 0};
        Entry* const lower = below(tokens, n, salt);
        if (lower != nullptr && can_restore(*lower, n)) return {lower, n};
        Entry* const upper = above(tokens, n + 1, salt);
        return {upper, upper == nullptr ? 0 : upper->end()};
    }

    bool can_restore(const Entry& e, int n) const {
        if (n < e.begin() || e.end() < n || (kind_.states && n != e.end())) return false;
        if (!kind_.window) return true;
        for (int p = std::max(window_.oldest_visible(cellar::Position{n}).value, e.from[window]); p < n; ++p)
            if (!e.holds.cells[window].contains(p)) return false;
        return true;
    }

    Entry* base(const Entry& e) { return e.begin() == 0 ? nullptr : entry_at(e.tokens, e.begin(), e.salt); }

    // `length` is how much s has, before and after, also if this fails.
    bool restore(int s, Entry& last, int n, int& length) {
        std::vector<Entry*> chain;
        for (Entry* e = &last; e != nullptr && e->end() != length; e = base(*e)) chain.insert(chain.begin(), e);
        for (Entry* e : chain) e->held = true;
        bool done = true;
        for (Entry* e : chain) {
            const int to = e == &last ? n : e->end();
            if (e->offloaded && to == e->end()) reload(*e);
            done = restore_one(s, *e, to);
            if (!done) break;
            length = to;
        }
        for (Entry* e : chain) e->held = false;
        return done;
    }

    // A copy of what is offloaded.
    bool restore_one(int s, const Entry& e, int n) {
        Line& l = line(s);
        const auto kept = [&](Member m) {
            return static_cast<int>(
                std::ranges::count_if(e.holds.cells[m], [&](const auto& at) { return at.first < n; }));
        };
        while (e.offloaded) {
            const Holding before = l.holds; // the cells that s gives up count as free
            for (const Member m : {window, full})
                std::erase_if(l.holds.cells[m], [&](const auto& at) { return at.first >= e.from[m]; });
            const std::optional<Refused> refused = full_member(kept(window), kept(full));
            l.holds = before;
            if (!refused) break;
            if (!make_room(*refused)) return false;
        }
        for (const Member m : {window, full}) {
            std::erase_if(l.holds.cells[m], [&](const auto& at) { return at.first >= e.from[m]; });
            for (const auto& [position, cell] : e.holds.cells[m])
                if (position < n) l.holds.cells[m][position] = e.offloaded ? next_cell_++ : cell;
        }
        l.holds.states = {n};
        return true;
    }

    void use(Entry& entry) {
        for (Entry* e = &entry; e != nullptr; e = base(*e)) e->used = ++clock_;
    }

    // By snapshots that are offloaded, or in place.
    bool is_needed(const Entry& entry, bool offloaded) const {
        return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
            return e.offloaded == offloaded && e.begin() == entry.end() && is_prefix(entry, e.tokens, e.salt);
        });
    }

    // s has the tokens: where it remembers what is offloaded, that comes back.
    void refresh(int s, const List& tokens, std::uint64_t salt) {
        for (Entry* e = above(tokens, static_cast<int>(tokens.size()) + 1, salt); e != nullptr; e = base(*e)) {
            if (!e->offloaded) continue;
            Entry again;
            const int from = e->begin();
            if (snapshot(s, from, e->tokens, salt, 0, again) || again.begin() != from) return;
            e->holds = again.holds;
            e->offloaded = false;
            ++reloads_;
        }
    }

    bool frees(Entry& entry, int member) const { return frees(std::vector{&entry}, member); }
    bool frees(const std::vector<Entry*>& given_up, int member) const {
        const Member m = kind_.window && member == 0 ? window : full;
        std::set<int> others;
        for (const Line& l : lines_)
            for (const auto& [position, cell] : l.holds.cells[m]) others.insert(cell);
        for (const Entry& e : entries_)
            if (!e.offloaded && std::ranges::count(given_up, &e) == 0)
                for (const auto& [position, cell] : e.holds.cells[m]) others.insert(cell);
        return std::any_of(given_up.begin(), given_up.end(), [&](const Entry* e) {
            return std::any_of(e->holds.cells[m].begin(), e->holds.cells[m].end(),
                               [&](const auto& at) { return !others.contains(at.second); });
        });
    }

    // Where there is no room for as many cells.
    std::optional<Refused> full_member(int in_window, int in_full) const {
        if (kind_.window && kind_.window_cells - used_cells(window) < in_window) return Refused{Reason::full, 0};
        if (kind_.full && kind_.full_cells - used_cells(full) < in_full)
            return Refused{Reason::full, kind_.window ? 1 : 0};
        return std::nullopt;
    }

    /// `more`: snapshots that are not in the tree yet.
    std::optional<Reason> snapshot(int s, int from, const List& tokens, std::uint64_t salt, int more, Entry& entry) {
        const Holding& own = line(s).holds;
        const int end = static_cast<int>(tokens.size());
        entry = {.salt = salt, .tokens = tokens};
        if (kind_.window) {
            entry.whole = window_.oldest_kept(cellar::Position{end - 1}).value > 0;
            entry.from[window] = entry.whole ? 0 : from;
            for (int p = window_.oldest_visible(cellar::Position{end}).value; p < end; ++p)
                if (!own.cells[window].contains(p)) return Reason::cannot_resume;
        }
        if (kind_.full) entry.from[full] = from;
        if (kind_.states && !own.states.contains(end)) return Reason::cannot_rewind;
        if (kind_.states && snapshots(false) + more >= kind_.snapshots) return Reason::too_many_snapshots;
        for (const Member m : {window, full})
            for (const auto& [position, cell] : own.cells[m])
                if (entry.from[m] <= position && position < end) entry.holds.cells[m][position] = cell;
        if (!can_restore(entry, end)) return Reason::cannot_resume;
        return std::nullopt;
    }

    void keep(Entry entry) { use(entries_.emplace_back(std::move(entry))); }

    static int end_of(const Entry* entry) { return entry == nullptr ? 0 : entry->end(); }

    std::optional<Reason> try_insert(int s, const List& tokens, std::uint64_t salt) {
        const int end = static_cast<int>(tokens.size());
        if (end == 0) return std::nullopt;
        if (Entry* const there = entry_at(tokens, end, salt)) {
            use(*there);
            return std::nullopt;
        }
        const int n = verified(tokens, salt);
        Entry* const upper = above(tokens, n == end ? n : n + 1, salt);
        const bool within = n > 0 && edge_end(tokens, n, salt) > n;
        Entry entry;
        if (!within) {
            if (const auto refused = snapshot(s, end_of(upper), tokens, salt, 0, entry)) return refused;
            keep(std::move(entry));
            return std::nullopt;
        }
        Entry* const lower = below(tokens, n, salt);
        const bool divides = kind_.divides && lower != nullptr && can_restore(*lower, n) && !lower->whole;
        return n == end ? cut(s, tokens, salt, upper, divides ? lower : nullptr)
                        : fork(s, tokens, n, salt, upper, divides ? lower : nullptr);
    }

    // `lower`, if not null, can be divided.
    std::optional<Reason> cut(int s, const List& tokens, std::uint64_t salt, Entry* upper, Entry* lower) {
        Entry entry;
        if (lower != nullptr) {
            divide(s, *lower, static_cast<int>(tokens.size()), upper);
            return std::nullopt;
        }
        if (const auto refused = snapshot(s, end_of(upper), tokens, salt, 0, entry)) return refused;
        keep(std::move(entry));
        return std::nullopt;
    }

    std::optional<Reason> fork(int s, const List& tokens, int n, std::uint64_t salt, Entry* upper, Entry* lower) {
        Entry leaf;
        Entry head;
        if (const auto refused = snapshot(s, n, tokens, salt, 0, leaf)) return refused;
        if (lower != nullptr) {
            divide(s, *lower, n, upper);
        } else if (!snapshot(s, end_of(upper), first(n, tokens), salt, 1, head)) {
            keep(std::move(head));
        } else if (leaf.begin() == n) {
            if (const auto refused = snapshot(s, end_of(upper), tokens, salt, 0, leaf)) return refused;
        }
        keep(std::move(leaf));
        return std::nullopt;
    }

    // What s remembers of the first part is better than what is offloaded.
    void divide(int s, Entry& lower, int n, Entry* upper) {
        Entry head = lower;
        head.tokens = first(n, lower.tokens);
        head.pins = 0;
        Entry own;
        if (lower.offloaded && !snapshot(s, end_of(upper), head.tokens, lower.salt, 0, own)) head = own;
        for (const Member m : {window, full}) {
            std::erase_if(head.holds.cells[m], [&](const auto& at) { return at.first >= n; });
            std::erase_if(lower.holds.cells[m], [&](const auto& at) { return at.first < n; });
        }
        if (kind_.window) lower.from[window] = n;
        if (kind_.full) lower.from[full] = n;
        keep(std::move(head));
    }

    Kind kind_;
    cellar::SlidingWindow<4> window_;
    std::vector<Line> lines_;
    std::list<Entry> entries_; // each stays at its address
    std::uint64_t clock_ = 0;
    int next_cell_ = 0;
    int evictions_ = 0;
    int offloads_ = 0;
    int reloads_ = 0;
};

} // namespace prefix_test::naive
