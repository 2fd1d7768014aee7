// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../model/naive_model.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace naive {

/// What a recurrent memory has to do, said as plainly as possible: the state is the list of all words so far, and every
/// sequence keeps some of those, by position. No checkpoints.
class States {
public:
    using State = std::shared_ptr<const std::vector<int>>;

    States(int sequences, int rollback) : rollback_{rollback}, kept_(static_cast<std::size_t>(sequences)) {}

    const std::map<int, State>& kept(int sequence) const { return kept_.at(static_cast<std::size_t>(sequence)); }
    int next(int sequence) const { return kept(sequence).empty() ? 0 : kept(sequence).rbegin()->first; }

    bool follows(const std::vector<NewToken>& batch) const {
        std::map<int, int> next_of;
        for (const NewToken& t : batch)
            if (next_of.try_emplace(t.sequence, next(t.sequence)).first->second++ != t.position) return false;
        return true;
    }

    void commit(const std::vector<NewToken>& batch) {
        for (const NewToken& t : batch) {
            auto& own = kept_.at(static_cast<std::size_t>(t.sequence));
            std::vector<int> words = own.empty() ? std::vector<int>{} : *own.rbegin()->second;
            words.push_back(t.value);
            own[t.position + 1] = std::make_shared<const std::vector<int>>(std::move(words));
            std::erase_if(own, [&](const auto& state) { return state.first < t.position + 1 - rollback_; });
        }
    }

    bool can_resume(int sequence, int p) const { return p == 0 || kept(sequence).contains(p); }

    enum class Answer { yes, cannot_rewind, cannot_cut };

    Answer admits_remove(int sequence, int begin, int end) const {
        if (begin == end || next(sequence) <= begin) return Answer::yes;
        if (end < next(sequence)) return Answer::cannot_cut;
        return can_resume(sequence, begin) ? Answer::yes : Answer::cannot_rewind;
    }
    void remove(int sequence, int begin, int end) {
        if (begin != end)
            std::erase_if(kept_.at(static_cast<std::size_t>(sequence)),
                          [&](const auto& state) { return state.first > begin || begin == 0; });
    }

    bool admits_copy(int from, int to, int length) const {
        return from == to || next(from) <= length || can_resume(from, length);
    }
    void copy_prefix(int from, int to, int length) {
        if (from == to) return;
        auto& own = kept_.at(static_cast<std::size_t>(to));
        own = kept(from);
        std::erase_if(own, [&](const auto& state) { return state.first > length; });
    }

    /// Slots in use: a state that several sequences keep counts once.
    int used() const {
        std::set<State> distinct;
        for (const auto& own : kept_)
            for (const auto& [position, state] : own) distinct.insert(state);
        return static_cast<int>(distinct.size());
    }

private:
    int rollback_;
    std::vector<std::map<int, State>> kept_;
};

} // namespace naive
