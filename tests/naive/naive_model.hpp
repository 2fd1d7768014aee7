// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <climits>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// What a cache must do, in the simplest form: a map from position to token for each sequence, and everything else by
/// definition and by search. It shares no code with the library, has no keys or values, and is slow.
namespace naive {

enum class WindowKind { full, sliding, chunked };

/// What a token sees, and what is kept. `size` is the width or the length of a chunk. A retention of 0 means the
/// default.
struct Window {
    WindowKind kind = WindowKind::full;
    int size = 0;
    int retention = 0;
    int sinks = 0;

    int oldest_visible(int query) const {
        if (kind == WindowKind::sliding) return query - size + 1;
        if (kind == WindowKind::chunked) return query / size * size;
        return 0;
    }
    bool visible(int query, int last, int position) const {
        if (position > last) return false;
        return position < sinks || position >= oldest_visible(query);
    }
    bool kept(int newest, int position) const {
        if (kind == WindowKind::full || position < sinks) return true;
        return position > newest - retention || position >= oldest_visible(newest);
    }
};

/// One token. Sequences that share it hold the same object. It never changes: moving it makes a new one.
struct Token {
    int value = 0;   ///< unique; stands for the rows that were put
    int shifted = 0; ///< how far it was moved in total
    int shifts = 0;  ///< how often it was moved; each move may round
};
using TokenRef = std::shared_ptr<const Token>;

struct NewToken {
    int sequence = 0;
    int position = 0;
    int group = -1; ///< tokens of the same group, 0 or more, see one another
    int value = 0;
    bool stored = true; ///< false: another memory has it; this one only answers for it
};

/// How many of the tokens are stored.
inline int stored_in(const std::vector<NewToken>& batch) {
    return static_cast<int>(std::count_if(batch.begin(), batch.end(), [](const NewToken& t) { return t.stored; }));
}

enum class Reason { full, batch_too_long, cannot_shift, not_next, cannot_resume, cannot_split, cannot_share };

/// What a sequence remembered at positions [from, to).
struct Snapshot {
    std::multimap<int, TokenRef> tokens;
    int from = 0;
    int to = 0;
    bool is_window = false;    ///< something below `to` had been forgotten
    bool is_offloaded = false; ///< its tokens are copies, outside the cells
    int altered = INT_MAX;     ///< as of a sequence, within [from, to)
};

struct Setup {
    Window window{};
    int sequences = 1;
    int capacity = 1;
    int batch = 1;
    int padding = 1;
    bool consecutive = false; ///< tokens must follow the last one of their sequence
    bool can_shift = false;
    bool rotates_keys = true; ///< false if keys carry no position, so that moving a token does not change its key
    bool is_encoder = false;  ///< inputs of an encoder: moves change no key, and every position can be resumed
};

class Model {
public:
    explicit Model(Setup setup)
        : setup_{setup},
          sequences_(static_cast<std::size_t>(setup.sequences)),
          schedules_(static_cast<std::size_t>(setup.sequences)),
          cuts_(static_cast<std::size_t>(setup.sequences)),
          altered_(static_cast<std::size_t>(setup.sequences), INT_MAX) {
        Window& w = setup_.window;
        const bool asked = w.retention > w.size && w.sinks + w.retention >= setup.capacity;
        if (w.retention == 0) w.retention = w.size + (setup.sequences > 1 ? 1 : 0);
        if (asked || w.sinks + w.size > setup.capacity) w.retention = INT_MAX;
    }

    const Setup& setup() const { return setup_; }

    int cells() const {
        const Window& w = setup_.window;
        const bool everything = w.kind == WindowKind::full || w.retention == INT_MAX;
        const int needed =
            everything ? setup_.sequences * setup_.capacity : setup_.sequences * (w.sinks + w.retention) + setup_.batch;
        return (needed + setup_.padding - 1) / setup_.padding * setup_.padding;
    }

    /// How many sequences and snapshots have each token.
    std::map<TokenRef, int> owners() const {
        std::map<TokenRef, int> owners;
        for (const auto& tokens : sequences_)
            for (const auto& [position, token] : tokens) ++owners[token];
        for (const Snapshot& snapshot : snapshots_) {
            if (snapshot.is_offloaded) continue;
            for (const auto& [position, token] : snapshot.tokens) ++owners[token];
        }
        return owners;
    }
    /// Cells in use. A shared token counts once.
    int used() const { return static_cast<int>(owners().size()); }

    /// Cells that only this sequence has. `owners`: of all tokens.
    int freed_by(int sequence, const std::map<TokenRef, int>& owners) const {
        const auto is_own = [&](const auto& held) { return owners.at(held.second) == 1; };
        return static_cast<int>(std::count_if(tokens(sequence).begin(), tokens(sequence).end(), is_own));
    }

    const std::multimap<int, TokenRef>& tokens(int sequence) const {
        return sequences_.at(static_cast<std::size_t>(sequence));
    }
    int newest(int sequence) const { return tokens(sequence).empty() ? -1 : tokens(sequence).rbegin()->first; }

    /// Where a sequence goes on: after its last token; or where it was cut, though its window has forgotten what lies
    /// before.
    int next(int sequence) const {
        return std::max(newest(sequence) + 1, setup_.consecutive ? cuts_.at(static_cast<std::size_t>(sequence)) : 0);
    }

    /// From this position on, a prefill of the sequence's tokens might compute something else: they have seen tokens
    /// that were removed since, or not seen all that are visible to them.
    int altered(int sequence) const { return altered_.at(static_cast<std::size_t>(sequence)); }

    std::optional<Reason> refuses(const std::vector<NewToken>& batch) const {
        const int n = static_cast<int>(batch.size());
        if (n > setup_.batch) return Reason::batch_too_long;
        if (setup_.consecutive)
            if (const auto refused = refuses_positions(batch)) return refused;
        if (used() + stored_in(batch) > cells()) return Reason::full;
        return std::nullopt;
    }

    /// The model while a pass over the batch is open.
    Model with(const std::vector<NewToken>& batch) const {
        Model open = *this;
        for (const NewToken& t : batch)
            if (t.stored) open.of(t.sequence).emplace(t.position, std::make_shared<const Token>(Token{t.value}));
        return open;
    }

    /// The model after the commit of that pass, which was opened after `before` and is open in this model: the
    /// sequences of the batch forget what they need not keep.
    Model committed(const Model& before, const std::vector<NewToken>& batch) const {
        Model done = *this;
        done.note_alterations(before, batch);
        for (const NewToken& t : batch) {
            done.forget_old(t.sequence, t.position);
            done.end_alteration(t.sequence);
        }
        return done;
    }

    /// What token i of the batch of an open pass sees.
    std::vector<TokenRef> visible(const std::vector<NewToken>& batch, std::size_t i) const {
        const NewToken& query = batch.at(i);
        int last = query.position;
        for (const NewToken& other : batch)
            if (query.group >= 0 && other.group == query.group) last = std::max(last, other.position);
        std::vector<TokenRef> seen;
        for (const auto& [position, token] : tokens(query.sequence))
            if (setup_.window.visible(query.position, last, position)) seen.push_back(token);
        return seen;
    }

    /// `rotate_by`: by how much later keys are rotated back; -1 for as much as their tokens move.
    std::optional<Reason> remove(int sequence, int begin, int end, int rotate_by = -1) {
        if (begin == end) return std::nullopt;
        Model next = *this;
        next.of(sequence).clear();
        for (const auto& [position, token] : tokens(sequence)) {
            if (position < begin) next.of(sequence).emplace(position, token);
            if (position < end) continue;
            const int by = begin - end;
            if (setup_.is_encoder || (setup_.can_shift && (!setup_.rotates_keys || rotate_by == 0))) {
                next.of(sequence).emplace(position + by, token);
                continue;
            }
            if (!setup_.can_shift) return Reason::cannot_shift;
            const int shifted = token->shifted + (rotate_by < 0 ? by : -rotate_by);
            next.of(sequence).emplace(position + by,
                                      std::make_shared<const Token>(Token{token->value, shifted, token->shifts + 1}));
        }
        next.remove_schedules(sequence, begin, end, newest(sequence));
        int removed = 0; // positions of the sequence, kept or forgotten
        for (int p = begin; p < end && p < this->next(sequence); ++p) ++removed;
        next.cuts_.at(static_cast<std::size_t>(sequence)) = this->next(sequence) - removed;
        if (setup_.consecutive && removed > 0 && !next.can_resume(sequence, next.next(sequence)))
            return Reason::cannot_resume;
        if (next.used() > cells()) return Reason::full;
        if (newest(sequence) >= end) next.alter(sequence, begin);
        next.end_alteration(sequence);
        *this = std::move(next);
        return std::nullopt;
    }

    std::optional<Reason> copy_prefix(int from, int to, int length) {
        if (from == to) return std::nullopt;
        if (setup_.consecutive && !can_resume(from, std::min(length, next(from)))) return Reason::cannot_resume;
        of(to).clear();
        schedules(to).clear();
        for (const auto& [position, token] : tokens(from))
            if (position < length) of(to).emplace(position, token);
        cuts_.at(static_cast<std::size_t>(to)) = std::min(length, next(from));
        altered_.at(static_cast<std::size_t>(to)) = altered(from);
        end_alteration(to);
        forget_old(to);
        return std::nullopt;
    }

    /// What a pass that ends before `position` keeps is not forgotten.
    void schedule(int sequence, int position) {
        if (!setup_.is_encoder) schedules(sequence).insert(position);
    }
    void unschedule(int sequence, int position) {
        if (schedules(sequence).erase(position) > 0) forget_old(sequence);
    }
    const std::set<int>& scheduled(int sequence) const { return schedules_.at(static_cast<std::size_t>(sequence)); }

    /// If tokens have no gaps, they have reached the position.
    bool can_resume(int sequence, int position) const { return !refuses_rewind(sequence, position); }

    std::optional<Reason> refuses_rewind(int sequence, int position) const {
        if (setup_.is_encoder) return std::nullopt;
        if (setup_.consecutive && position > next(sequence)) return Reason::not_next;
        if (!has_all_visible(tokens(sequence), position)) return Reason::cannot_resume;
        return std::nullopt;
    }

    const std::vector<Snapshot>& snapshots() const { return snapshots_; }

    /// Adds a snapshot.
    std::optional<Reason> snapshot(int sequence, int from, int to) {
        Snapshot made{.tokens = {}, .from = from, .to = to};
        for (int p = 0; p < to && !setup_.is_encoder; ++p)
            made.is_window = made.is_window || !setup_.window.kept(to - 1, p);
        if (const auto refused = refuses_rewind(sequence, to)) return refused;
        if (made.is_window) made.from = 0;
        for (const auto& [position, token] : tokens(sequence))
            if (made.from <= position && position < to && (!made.is_window || setup_.window.kept(to - 1, position)))
                made.tokens.emplace(position, token);
        if (altered(sequence) < to) made.altered = std::max(altered(sequence), made.from);
        snapshots_.push_back(std::move(made));
        unschedule(sequence, to);
        return std::nullopt;
    }

    std::optional<Reason> restore(int sequence, std::size_t index, int to) {
        const Snapshot& snapshot = snapshots_.at(index);
        std::multimap<int, TokenRef> joined;
        for (const auto& [position, token] : tokens(sequence))
            if (position < snapshot.from) joined.emplace(position, token);
        for (const auto& [position, token] : snapshot.tokens)
            if (position < to) joined.emplace(position, snapshot.is_offloaded ? copy_of(token) : token);
        if (!setup_.is_encoder && !has_all_visible(joined, to)) return Reason::cannot_resume;
        std::set<TokenRef> distinct;
        for (const auto& [position, token] : joined)
            if (!distinct.insert(token).second) return Reason::cannot_share;
        Model next = *this;
        next.of(sequence) = std::move(joined);
        next.schedules(sequence).clear();
        next.cuts_.at(static_cast<std::size_t>(sequence)) = to;
        if (altered(sequence) >= snapshot.from) next.altered_.at(static_cast<std::size_t>(sequence)) = INT_MAX;
        next.alter(sequence, snapshot.altered);
        next.end_alteration(sequence);
        if (next.used() > cells()) return Reason::full;
        *this = std::move(next);
        return std::nullopt;
    }

    void offload(std::size_t index) {
        Snapshot& snapshot = snapshots_.at(index);
        if (snapshot.is_offloaded) return;
        for (auto& [position, token] : snapshot.tokens) token = copy_of(token);
        snapshot.is_offloaded = true;
    }

    std::optional<Reason> reload(std::size_t index) {
        Model next = *this;
        next.snapshots_.at(index).is_offloaded = false;
        if (next.used() > cells()) return Reason::full;
        *this = std::move(next);
        return std::nullopt;
    }

    /// The snapshot keeps what lies below `at`. The rest becomes a new one.
    std::optional<Reason> split(std::size_t index, int at) {
        Snapshot& head = snapshots_.at(index);
        if (head.is_window) return Reason::cannot_split;
        Snapshot tail{.tokens = {}, .from = at, .to = head.to, .is_offloaded = head.is_offloaded};
        for (const auto& [position, token] : head.tokens)
            if (position >= at) tail.tokens.emplace(position, token);
        std::erase_if(head.tokens, [at](const auto& held) { return held.first >= at; });
        head.to = at;
        if (head.altered != INT_MAX) tail.altered = std::max(head.altered, at);
        if (head.altered >= at) head.altered = INT_MAX;
        snapshots_.push_back(std::move(tail));
        return std::nullopt;
    }

    /// True if `child` begins where `parent` ends, or stands for all of it. A parent up to INT_MAX ends there, too.
    bool can_merge(std::size_t parent, std::size_t child) const {
        const Snapshot& p = snapshots_.at(parent);
        const Snapshot& c = snapshots_.at(child);
        const bool is_within = p.to == INT_MAX && c.from >= p.from;
        return parent != child && (c.from == p.to || is_within || (c.from == 0 && c.to >= p.to));
    }
    /// The parent takes in the child, which goes. It stays where it is, unless the child takes its place.
    std::optional<Reason> merge(std::size_t parent, std::size_t child) {
        Model next = *this;
        Snapshot& p = next.snapshots_.at(parent);
        const Snapshot& c = next.snapshots_.at(child);
        if (c.from == 0) {
            p = c;
        } else {
            std::erase_if(p.tokens, [&](const auto& held) { return held.first >= c.from; });
            for (const auto& [own_position, own] : p.tokens)
                for (const auto& [position, token] : c.tokens)
                    if (own == token) return Reason::cannot_share;
            for (const auto& [position, token] : c.tokens)
                p.tokens.emplace(position, p.is_offloaded ? copy_of(token) : token);
            p.to = c.to;
            p.altered = std::min(p.altered, c.altered);
        }
        next.release(child);
        if (next.used() > cells()) return Reason::full;
        *this = std::move(next);
        return std::nullopt;
    }

    void release(std::size_t index) { snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(index)); }

private:
    static TokenRef copy_of(const TokenRef& token) { return std::make_shared<const Token>(*token); }

    bool has_all_visible(const std::multimap<int, TokenRef>& tokens, int position) const {
        for (int p = 0; p < position; ++p)
            if (setup_.window.visible(position, position, p) && !tokens.contains(p)) return false;
        return true;
    }

    std::optional<Reason> refuses_positions(const std::vector<NewToken>& batch) const {
        std::map<int, int> next; // of the sequences whose tokens were looked at
        for (const NewToken& t : batch) {
            const bool is_first = !next.contains(t.sequence);
            const int expected = is_first ? this->next(t.sequence) : next.at(t.sequence);
            if (t.position != expected && (is_first || t.position != expected - 1)) return Reason::not_next;
            if (is_first && !can_resume(t.sequence, t.position)) return Reason::cannot_resume;
            next[t.sequence] = t.position + 1;
        }
        return std::nullopt;
    }

    // Forgets what neither the window nor a schedule keeps. `position`: of a token that need not be stored.
    void forget_old(int sequence, int position = -1) {
        const int last = std::max(newest(sequence), position);
        std::erase_if(of(sequence), [&](const auto& held) {
            bool kept = setup_.window.kept(last, held.first);
            for (const int p : scheduled(sequence))
                kept = kept || (held.first < p && setup_.window.kept(p - 1, held.first));
            return !kept;
        });
    }

    // After positions [begin, end) were removed. `last`: the newest token before that.
    void remove_schedules(int sequence, int begin, int end, int last) {
        std::set<int>& all = schedules(sequence);
        const bool none_left = tokens(sequence).empty() && (begin == 0 || begin <= last) && end > last;
        if (none_left) return all.clear();
        if (last < begin) return;
        const bool has_gap = end <= last;
        const bool ended = std::erase_if(all, [&](int p) { return p > begin && (has_gap || p <= last + 1); }) > 0;
        if (has_gap && ended) forget_old(sequence);
    }

    void alter(int sequence, int position) {
        int& altered = altered_.at(static_cast<std::size_t>(sequence));
        altered = std::min(altered, position);
    }
    // Once nothing is left from there on.
    void end_alteration(int sequence) {
        int& altered = altered_.at(static_cast<std::size_t>(sequence));
        if (altered >= next(sequence)) altered = INT_MAX;
    }
    // What another memory stores is not known here.
    void note_alterations(const Model& before, const std::vector<NewToken>& batch) {
        if (stored_in(batch) != static_cast<int>(batch.size())) return;
        for (const NewToken& t : batch)
            if (t.position <= before.newest(t.sequence) || !has_all_visible(tokens(t.sequence), t.position))
                alter(t.sequence, t.position);
    }

    std::set<int>& schedules(int sequence) { return schedules_.at(static_cast<std::size_t>(sequence)); }

    std::multimap<int, TokenRef>& of(int sequence) { return sequences_.at(static_cast<std::size_t>(sequence)); }

    Setup setup_;
    std::vector<std::multimap<int, TokenRef>> sequences_;
    std::vector<std::set<int>> schedules_; ///< of each sequence
    std::vector<int> cuts_;                ///< of each sequence: where it was cut off
    std::vector<int> altered_;             ///< of each sequence
    std::vector<Snapshot> snapshots_;
};

inline std::string to_string(Reason reason) {
    switch (reason) {
    case Reason::full:
        return "full";
    case Reason::batch_too_long:
        return "batch_too_long";
    case Reason::cannot_shift:
        return "cannot_shift";
    case Reason::not_next:
        return "not_next";
    case Reason::cannot_resume:
        return "cannot_resume";
    case Reason::cannot_split:
        return "cannot_split";
    case Reason::cannot_share:
        return "cannot_share";
    }
    return "unknown";
}

} // namespace naive
