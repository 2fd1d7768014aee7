// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contiguous_data.hpp>
#include <cellar/base/contract.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace cellar {

/// A read-only list of ids that it does not own: an array of `Position` or `Sequence`, or of plain `int32_t`.
template <class Id>
class IdSpan {
    static_assert(sizeof(Id) == sizeof(std::int32_t) && std::is_trivially_copyable_v<Id>);

    template <class T>
    static constexpr bool is_id = std::is_same_v<T, Id> || std::is_same_v<T, std::int32_t>;

public:
    using value_type = Id;

    IdSpan() = default;

    template <class T>
        requires(is_id<T>)
    IdSpan(const T* ids, std::size_t size) : ids_{ids}, size_{size} {}

    /// From a vector, an array, a span, ...
    template <class Range>
        requires(!std::is_same_v<Range, IdSpan> && requires(const Range& range) {
            requires is_id<std::remove_cvref_t<decltype(*std::data(range))>>;
            std::size(range);
        })
    IdSpan(const Range& range) : IdSpan{std::data(range), static_cast<std::size_t>(std::size(range))} {
        CELLAR_EXPECTS(detail::has_neighbours(range),
                       "Batch: the elements of a list of ids lie apart, expected neighbours");
    }

    /// The number of ids.
    std::size_t size() const { return size_; }
    /// True if it has no ids.
    bool empty() const { return size_ == 0; }

    Id operator[](std::size_t i) const { return read(ids_, static_cast<std::ptrdiff_t>(i)); }

    /// Random access; reads an id by value.
    class iterator {
    public:
        using iterator_category = std::random_access_iterator_tag;
        using value_type = Id;
        using difference_type = std::ptrdiff_t;
        using pointer = const Id*;
        using reference = Id;

        iterator() = default;
        iterator(const void* ids, std::ptrdiff_t i) : ids_{ids}, i_{i} {}

        Id operator*() const { return read(ids_, i_); }
        Id operator[](std::ptrdiff_t n) const { return *(*this + n); }
        iterator& operator+=(std::ptrdiff_t n) {
            i_ += n;
            return *this;
        }
        iterator& operator-=(std::ptrdiff_t n) { return *this += -n; }
        iterator& operator++() { return *this += 1; }
        iterator& operator--() { return *this -= 1; }
        iterator operator++(int) {
            const iterator before = *this;
            ++*this;
            return before;
        }
        iterator operator--(int) {
            const iterator before = *this;
            --*this;
            return before;
        }
        friend iterator operator+(iterator it, std::ptrdiff_t n) { return it += n; }
        friend iterator operator+(std::ptrdiff_t n, iterator it) { return it += n; }
        friend iterator operator-(iterator it, std::ptrdiff_t n) { return it -= n; }
        friend std::ptrdiff_t operator-(const iterator& a, const iterator& b) { return a.i_ - b.i_; }
        friend bool operator==(const iterator& a, const iterator& b) { return a.i_ == b.i_; }
        friend auto operator<=>(const iterator& a, const iterator& b) { return a.i_ <=> b.i_; }

    private:
        const void* ids_ = nullptr;
        std::ptrdiff_t i_ = 0;
    };

    /// An iterator to the first id.
    iterator begin() const { return {ids_, 0}; }
    /// An iterator behind the last id.
    iterator end() const { return {ids_, static_cast<std::ptrdiff_t>(size_)}; }

private:
    // Bytewise, because the array may hold either type.
    static Id read(const void* ids, std::ptrdiff_t i) {
        Id id;
        std::memcpy(&id, static_cast<const std::byte*>(ids) + i * static_cast<std::ptrdiff_t>(sizeof(Id)), sizeof(Id));
        return id;
    }

    const void* ids_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace cellar
