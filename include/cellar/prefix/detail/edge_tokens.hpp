// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/memory_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The tokens of an edge, in a buffer of its own. It uses at least half of the buffer; the rest is on both sides.
class EdgeTokens {
public:
    EdgeTokens() = default;
    explicit EdgeTokens(std::vector<std::int32_t> tokens) noexcept
        : buffer_{std::move(tokens)}, size_{buffer_.size()} {}

    std::size_t size() const { return size_; }
    std::int32_t front() const { return buffer_[begin_]; }
    const std::int32_t* begin() const { return buffer_.data() + begin_; }
    const std::int32_t* end() const { return begin() + size_; }

    /// How many tokens its memory has room for.
    std::size_t room() const { return buffer_.size(); }
    static constexpr std::int64_t most_bytes_for(std::int64_t tokens) { return bytes_of<std::int32_t>(2 * tokens); }
    std::int64_t bytes() const { return bytes_of<std::int32_t>(static_cast<std::int64_t>(buffer_.capacity())); }

    /// The parts of an edge that leave its buffer; what is empty stays.
    struct Parts {
        std::vector<std::int32_t> first;
        std::vector<std::int32_t> rest;
    };

    /// Prepares `divide`: copies the shorter part, and the longer one if the buffer is too large for it. O(tokens of
    /// the shorter part), amortised.
    Parts parts(std::size_t count) const {
        const std::size_t longer = std::max(count, size_ - count);
        const bool stays = 2 * longer >= room();
        Parts parts;
        if (!stays || count < longer) parts.first.assign(begin(), begin() + count);
        if (!stays || count == longer) parts.rest.assign(begin() + count, end());
        return parts;
    }
    /// Returns the first `count` tokens, and keeps the rest. `parts` are those that it prepared for `count`. O(1).
    EdgeTokens divide(Parts parts, std::size_t count) noexcept {
        if (parts.first.empty()) {
            size_ = count;
            return std::exchange(*this, EdgeTokens{std::move(parts.rest)});
        }
        if (parts.rest.empty()) {
            begin_ += count;
            size_ -= count;
        } else {
            *this = EdgeTokens{std::move(parts.rest)};
        }
        return EdgeTokens{std::move(parts.first)};
    }

    /// Puts the tokens of `upper` before its own, in whichever buffer is longer. Changes nothing if it throws
    /// `std::bad_alloc`. O(tokens of the shorter edge), amortised.
    void join(EdgeTokens& upper) {
        if (upper.size_ > size_) {
            upper.make_room(0, size_);
            std::copy(begin(), end(), upper.buffer_.data() + upper.begin_ + upper.size_);
            upper.size_ += size_;
            std::swap(*this, upper);
        } else {
            make_room(upper.size_, 0);
            begin_ -= upper.size_;
            size_ += upper.size_;
            std::copy(upper.begin(), upper.end(), buffer_.data() + begin_);
        }
    }

private:
    // At least as much, and for more to come on either side.
    void make_room(std::size_t before, std::size_t behind) {
        if (before <= begin_ && behind <= room() - begin_ - size_) return;
        const std::size_t needed = before + size_ + behind;
        const std::size_t spare = needed / 4;
        std::vector<std::int32_t> larger(needed + 2 * spare);
        std::copy(begin(), end(), larger.data() + spare + before);
        buffer_ = std::move(larger);
        begin_ = spare + before;
    }

    std::vector<std::int32_t> buffer_;
    std::size_t begin_ = 0;
    std::size_t size_ = 0;
};

} // namespace cellar::detail
