// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cellar::detail {

/// Neighbouring positions in neighbouring cells.
struct PositionRun {
    std::int32_t position;
    Cell cell;
    std::int32_t count;
    std::int32_t covered_from; ///< from here to the run's end, no position is missing

    std::int32_t last() const { return position + count - 1; }
    PositionRun tail(std::int32_t n) const { return {position + count - n, cell + count - n, n, covered_from}; }
};

/// Runs in an array that can shrink at both ends without moving the rest. Only `reserve` allocates; members that make
/// the list longer need room that was reserved.
class RunList {
public:
    using Run = PositionRun;

    /// Room for `runs` runs, appended and removed any number of times without allocating.
    explicit RunList(std::int64_t runs) { reallocate(2 * runs); }

    /// How many runs there is planned room for.
    std::int64_t planned() const { return (limit_ - storage_.get()) / 2; }

    bool empty() const { return begin_ == end_; }
    std::int64_t size() const { return end_ - begin_; }
    Run* begin() { return begin_; }
    const Run* begin() const { return begin_; }
    Run& operator[](std::int64_t i) { return begin_[i]; }
    const Run& operator[](std::int64_t i) const { return begin_[i]; }
    Run& back() { return end_[-1]; }
    const Run& back() const { return end_[-1]; }

    void push_back(const Run& run) { *end_++ = run; }

    /// True if `more` runs can be added.
    bool has_room(std::int64_t more) const { return more <= limit_ - end_; }

    /// Makes room for `more` runs. Allocates only if that is more than was planned for, and then returns true.
    bool reserve(std::int64_t more) {
        if (has_room(more)) return false;
        const bool allocates = size() + more > planned();
        if (allocates) {
            reallocate(2 * (size() + more));
        } else {
            std::copy(begin_, end_, storage_.get());
            stand_at(storage_.get(), size());
        }
        return allocates;
    }

    /// The first run for which `before` is false. Passes look near the ends: there the search touches one cache line,
    /// where a binary search would touch one per step.
    template <class Before>
    std::int64_t first_not(Before before) const {
        const Run* const all = begin_;
        const std::int64_t n = size();
        if (n == 0 || before(all[n - 1])) return n;
        if (n == 1 || before(all[n - 2])) return n - 1;
        if (!before(all[0])) return 0;
        if (!before(all[1])) return 1;
        return search(before);
    }

    /// Inserts n runs of unspecified value before run `at`.
    void open(std::int64_t at, std::int64_t n) {
        std::copy_backward(begin_ + at, end_, end_ + n);
        end_ += n;
    }

    /// Removes runs [from, to), moving the shorter side. Forgetting the oldest positions is O(runs of sinks).
    [[gnu::noinline]] void close(std::int64_t from, std::int64_t to) {
        if (from < size() - to) {
            std::copy_backward(begin_, begin_ + from, begin_ + to);
            begin_ += to - from;
        } else {
            end_ = std::copy(begin_ + to, end_, begin_ + from);
        }
        if (empty()) stand_at(storage_.get(), 0);
    }

    /// Becomes a copy of the first n runs of `other`. Needs room for them.
    void assign(const RunList& other, std::int64_t n) {
        std::copy(other.begin_, other.begin_ + n, storage_.get());
        stand_at(storage_.get(), n);
    }

private:
    template <class Before>
    [[gnu::noinline]] std::int64_t search(Before before) const {
        return std::partition_point(begin_ + 2, end_ - 2, before) - begin_;
    }

    [[gnu::noinline]] void reallocate(std::int64_t room) {
        // Not initialised, so that memory is committed only for sequences in use.
        std::unique_ptr<Run[]> larger{new Run[static_cast<std::size_t>(room)]};
        if (!empty()) std::copy(begin_, end_, larger.get());
        stand_at(larger.get(), size());
        limit_ = larger.get() + room;
        storage_ = std::move(larger);
    }

    void stand_at(Run* begin, std::int64_t size) {
        begin_ = begin;
        end_ = begin + size;
    }

    std::unique_ptr<Run[]> storage_;
    Run* limit_ = nullptr; // the end of storage_
    Run* begin_ = nullptr;
    Run* end_ = nullptr;
};

} // namespace cellar::detail
