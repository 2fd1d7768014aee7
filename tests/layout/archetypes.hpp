// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/layout/layout.hpp>

#include <cstdint>

namespace cellar_test {

/// A view without strides: it asks the mapping for every offset.
template <class T, class Mapping>
struct OffsetView {
    T* data;
    Mapping mapping;
    cellar::CellRange range;

    CELLAR_FUNCTION T& operator()(std::int64_t i, std::int64_t head, std::int64_t d) const {
        return data[mapping(range.first + i, head, d)];
    }
};

/// A user-defined mapping, as different from those of cellar as the concept allows: [dim, cells, heads] from the end of
/// the memory backwards, a gap of one element between any two, and its own type of view.
class Backwards {
public:
    static constexpr cellar::Segment segment = cellar::Segment::element;
    static constexpr std::int32_t segment_cells = 1;

    CELLAR_FUNCTION constexpr Backwards(std::int64_t cells, int heads, int dim)
        : cells_{cells}, heads_{heads}, dim_{dim} {}

    CELLAR_FUNCTION constexpr std::int64_t cells() const { return cells_; }
    CELLAR_FUNCTION constexpr int heads() const { return heads_; }
    CELLAR_FUNCTION constexpr int dim() const { return dim_; }
    CELLAR_FUNCTION constexpr std::int64_t required_size() const { return 2 * cells_ * heads_ * dim_; }
    CELLAR_FUNCTION constexpr std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        return required_size() - 1 - 2 * ((d * cells_ + cell) * heads_ + head);
    }

    template <class T>
    CELLAR_FUNCTION constexpr OffsetView<T, Backwards> view(T* data, cellar::CellRange range) const {
        return {data, *this, range};
    }

private:
    std::int64_t cells_;
    int heads_;
    int dim_;
};

/// A user-defined layout.
template <class Key, class Value = Key>
struct BackwardsLayout {
    using key_format = Key;
    using value_format = Value;
    using key_mapping = Backwards;
    using value_mapping = Backwards;
};

} // namespace cellar_test
