// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar {

/// A batch with memory of its own:
/// `memory.begin(BatchBuilder{}.add(alice, memory.next(alice), 512).add(bob, memory.next(bob)))`.
class BatchBuilder {
public:
    BatchBuilder() = default;
    /// `count` tokens of s at positions first, first + 1, ...
    BatchBuilder(Sequence s, Position first, std::int32_t count = 1, Where where = Where::current()) {
        add(s, first, count, where);
    }

    /// `count` tokens of s at positions first, first + 1, ...
    BatchBuilder& add(Sequence s, Position first, std::int32_t count = 1, Where where = Where::current()) {
        return add(s, first, count, 1, no_group, where);
    }

    /// The same, for tokens that see one another, as those of an image do.
    BatchBuilder& add_group(Sequence s, Position first, std::int32_t count, Where where = Where::current()) {
        return add(s, first, count, 1, static_cast<std::int32_t>(positions_.size()), where);
    }

    /// `count` tokens of s at one position. They see one another.
    BatchBuilder& add_at(Sequence s, Position p, std::int32_t count, Where where = Where::current()) {
        return add(s, p, count, 0, no_group, where);
    }

    /// A token that follows the one with index `parent` in the batch, in its sequence and at the next position: for a
    /// tree of drafts (`Batch::parents`). Tokens that are added otherwise follow the token of their sequence before
    /// them.
    BatchBuilder& add_child(std::int32_t parent, Where where = Where::current()) {
        CELLAR_EXPECTS_AT(where, parent >= 0 && parent < size(), "BatchBuilder: a child of token ", parent,
                          ", expected 0 to ", size() - 1);
        const auto at = static_cast<std::size_t>(parent);
        parents_.grow(positions_.size() + 1);
        add(sequences_[at], positions_[at] + 1, 1, where);
        follow_those_before();
        parents_.back() = parent;
        return *this;
    }

    /// Removes all tokens and keeps the memory.
    void clear() {
        positions_.clear();
        sequences_.clear();
        groups_.clear();
        parents_.clear();
    }

    std::int32_t size() const { return static_cast<std::int32_t>(positions_.size()); }

    operator Batch() const {
        return {.positions = positions_, .sequences = sequences_, .groups = groups_, .parents = parents_};
    }

private:
    static constexpr std::int32_t no_group = -1;

    BatchBuilder& add(Sequence s, Position first, std::int32_t count, std::int32_t step, std::int32_t group,
                      Where where) {
        CELLAR_EXPECTS_AT(where, count >= 0, "BatchBuilder: ", count, " tokens, expected 0 or more");
        const std::int64_t end = std::int64_t{first.value} + std::int64_t{count} * step;
        CELLAR_EXPECTS_AT(where, end <= INT32_MAX, "BatchBuilder: ", count, " tokens from position ", first,
                          " on, expected all below ", INT32_MAX);
        // If a list cannot grow, nothing has changed.
        const bool has_groups = group != no_group || !groups_.empty();
        const std::size_t size = positions_.size() + static_cast<std::size_t>(count);
        positions_.grow(size);
        sequences_.grow(size);
        if (!parents_.empty()) parents_.grow(size);
        if (has_groups) {
            groups_.grow(size);
            groups_.resize(positions_.size(), no_group);
        }
        for (std::int32_t i = 0; i < count; ++i) {
            positions_.push_back(first + i * step);
            sequences_.push_back(s);
        }
        if (has_groups) groups_.resize(positions_.size(), group);
        if (!parents_.empty()) follow_those_before();
        return *this;
    }

    // Tokens that have no parent yet get the token of their sequence before them.
    void follow_those_before() {
        for (std::size_t i = parents_.size(); i < positions_.size(); ++i)
            parents_.push_back(detail::token_before(sequences_, i));
    }

    detail::TrivialList<Position> positions_;
    detail::TrivialList<Sequence> sequences_;
    detail::TrivialList<std::int32_t> groups_;  // empty while there is no group
    detail::TrivialList<std::int32_t> parents_; // empty while there is no child
};

namespace detail {

/// The next `count` tokens of s, in a builder that keeps its memory for the next call.
inline Batch next_tokens(BatchBuilder& builder, Sequence s, Position next, std::int32_t count) {
    CELLAR_EXPECTS(count >= 0, "begin: ", count, " tokens, expected 0 or more");
    builder.clear();
    builder.add(s, next, count);
    return builder;
}

} // namespace detail

} // namespace cellar
