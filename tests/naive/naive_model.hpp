// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <climits>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// What a cache has to do, said as plainly as possible: per sequence a map from position to token,
/// everything else by its definition and by search. It shares no code with the library, knows no
/// keys and no values, and is never fast.
namespace naive {

enum class Sees { everything, width, chunk };

/// What a token sees, and what is kept. `size` is the width or the length of a chunk; retention 0
/// stands for the default.
struct Window {
    Sees sees = Sees::everything;
    int size = 0;
    int retention = 0;
    int sinks = 0;

    int oldest_visible(int query) const {
        if (sees == Sees::width) return query - size + 1;
        if (sees == Sees::chunk) return query / size * size;
        return 0;
    }
    bool visible(int query, int position, bool bidirectional) const {
        if (position > query && !bidirectional) return false;
        return position < sinks || position >= oldest_visible(query);
    }
    bool kept(int newest, int position) const {
        if (sees == Sees::everything || position < sinks) return true;
        return position > newest - retention || position >= oldest_visible(newest);
    }
};

/// One token, held once however many sequences have it. It never changes: moving it makes another.
struct Token {
    int value = 0;   ///< unique: stands for the rows that were put
    int shifted = 0; ///< positions by which it was moved since, in total
    int shifts = 0;  ///< how many times: each may round
};
using TokenRef = std::shared_ptr<const Token>;

struct NewToken {
    int sequence = 0;
    int position = 0;
    bool bidirectional = false;
    int value = 0;
};

enum class No { full, batch_too_long, cannot_shift };

struct Setup {
    Window window{};
    int sequences = 1;
    int capacity = 1;
    int batch = 1;
    int padding = 1;
    bool can_shift = false;
    bool rotations = true;   ///< moved tokens become others, unless they carry no position
    bool is_encoder = false; ///< inputs: seen from their position on, moved as they are, and never missing
};

class Model {
public:
    explicit Model(Setup setup) : setup_{setup}, sequences_(static_cast<std::size_t>(setup.sequences)) {
        Window& w = setup_.window;
        if (w.retention == 0) w.retention = w.size + (setup.sequences > 1 ? 1 : 0);
        if (w.sinks + w.retention >= setup.capacity) w.retention = INT_MAX;
    }

    const Setup& setup() const { return setup_; }

    int cells() const {
        const Window& w = setup_.window;
        const bool everything = w.sees == Sees::everything || w.retention == INT_MAX;
        const int needed =
            everything ? setup_.sequences * setup_.capacity : setup_.sequences * (w.sinks + w.retention) + setup_.batch;
        return (needed + setup_.padding - 1) / setup_.padding * setup_.padding;
    }

    /// Cells in use: a token that several sequences have counts once.
    int used() const {
        std::set<TokenRef> distinct;
        for (const auto& tokens : sequences_)
            for (const auto& [position, token] : tokens) distinct.insert(token);
        return static_cast<int>(distinct.size());
    }

    const std::multimap<int, TokenRef>& tokens(int sequence) const {
        return sequences_.at(static_cast<std::size_t>(sequence));
    }
    int newest(int sequence) const { return tokens(sequence).empty() ? -1 : tokens(sequence).rbegin()->first; }

    std::optional<No> refuses(const std::vector<NewToken>& batch) const {
        const int n = static_cast<int>(batch.size());
        if (n > setup_.batch) return No::batch_too_long;
        if (used() + n > cells()) return No::full;
        return std::nullopt;
    }

    /// As it is while a pass over the batch is open.
    Model with(const std::vector<NewToken>& batch) const {
        Model open = *this;
        for (const NewToken& t : batch)
            open.of(t.sequence).emplace(t.position, std::make_shared<const Token>(Token{t.value}));
        return open;
    }

    /// As it is once that pass, which is open here, is committed: its sequences forget what they
    /// need not keep.
    Model committed(const std::vector<NewToken>& batch) const {
        Model done = *this;
        for (const NewToken& t : batch) {
            const int newest = done.newest(t.sequence);
            std::erase_if(done.of(t.sequence),
                          [&](const auto& held) { return !setup_.window.kept(newest, held.first); });
        }
        return done;
    }

    std::vector<TokenRef> visible(const NewToken& query) const {
        std::vector<TokenRef> seen;
        for (const auto& [position, token] : tokens(query.sequence))
            if (setup_.window.visible(query.position, position, query.bidirectional)) seen.push_back(token);
        return seen;
    }

    std::optional<No> remove(int sequence, int begin, int end) {
        if (begin == end) return std::nullopt;
        Model next = *this;
        next.of(sequence).clear();
        for (const auto& [position, token] : tokens(sequence)) {
            if (position < begin) next.of(sequence).emplace(position, token);
            if (position < end) continue;
            const int by = begin - end;
            if (setup_.is_encoder || (setup_.can_shift && !setup_.rotations)) {
                next.of(sequence).emplace(position + by, token);
                continue;
            }
            if (!setup_.can_shift) return No::cannot_shift;
            next.of(sequence).emplace(position + by, std::make_shared<const Token>(
                                                         Token{token->value, token->shifted + by, token->shifts + 1}));
        }
        if (next.used() > cells()) return No::full;
        *this = std::move(next);
        return std::nullopt;
    }

    void copy_prefix(int from, int to, int length) {
        if (from == to) return;
        of(to).clear();
        for (const auto& [position, token] : tokens(from))
            if (position < length) of(to).emplace(position, token);
    }

    bool can_resume(int sequence, int position) const {
        if (setup_.is_encoder) return true;
        for (int p = 0; p < position; ++p)
            if (setup_.window.visible(position, p, false) && !tokens(sequence).contains(p)) return false;
        return true;
    }

private:
    std::multimap<int, TokenRef>& of(int sequence) { return sequences_.at(static_cast<std::size_t>(sequence)); }

    Setup setup_;
    std::vector<std::multimap<int, TokenRef>> sequences_;
};

inline std::string to_string(No no) {
    if (no == No::full) return "full";
    return no == No::cannot_shift ? "cannot_shift" : "batch_too_long";
}

} // namespace naive
