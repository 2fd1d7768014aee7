// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cellar {

/// A batch with memory of its own:
/// `memory.begin(Tokens{}.add(alice, memory.next(alice), 512).add(bob, memory.next(bob)))`.
class Tokens {
public:
    Tokens() = default;
    /// `count` tokens of s at positions first, first + 1, ...
    Tokens(Sequence s, Position first, std::int32_t count = 1) { add(s, first, count); }

    /// `count` tokens of s at positions first, first + 1, ...
    Tokens& add(Sequence s, Position first, std::int32_t count = 1) { return add(s, first, count, 1, no_group); }

    /// The same, for tokens that see one another, as those of an image do.
    Tokens& add_group(Sequence s, Position first, std::int32_t count) {
        return add(s, first, count, 1, static_cast<std::int32_t>(positions_.size()));
    }

    /// `count` tokens of s at one position. They see one another.
    Tokens& add_at(Sequence s, Position p, std::int32_t count) { return add(s, p, count, 0, no_group); }

    /// Removes all tokens and keeps the memory.
    void clear() {
        positions_.clear();
        sequences_.clear();
        groups_.clear();
    }

    std::int32_t size() const { return static_cast<std::int32_t>(positions_.size()); }

    operator Batch() const { return {positions_, sequences_, groups_}; }

private:
    static constexpr std::int32_t no_group = -1;

    Tokens& add(Sequence s, Position first, std::int32_t count, std::int32_t step, std::int32_t group) {
        if (group != no_group || !groups_.empty()) groups_.resize(positions_.size(), no_group);
        for (std::int32_t i = 0; i < count; ++i) {
            positions_.push_back(first + i * step);
            sequences_.push_back(s);
        }
        if (group != no_group || !groups_.empty()) groups_.resize(positions_.size(), group);
        return *this;
    }

    detail::TrivialList<Position> positions_;
    detail::TrivialList<Sequence> sequences_;
    detail::TrivialList<std::int32_t> groups_; // empty while there is no group
};

} // namespace cellar
