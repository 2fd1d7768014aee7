// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "layout/archetypes.hpp"
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/view.hpp>
#include <cellar/layout/layout.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace cellar_test {

/// True if the elements are bitwise equal.
template <class E>
bool same(const E& a, const E& b) {
    return std::memcmp(&a, &b, sizeof(E)) == 0;
}

template <class E>
bool same(const std::vector<E>& a, const std::vector<E>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0);
}

/// Random elements. Floats among them are not exact in a 16-bit type.
template <class T>
std::vector<T> random_elements(std::mt19937& random, std::int64_t n) {
    std::normal_distribution<float> normal{0.0f, 3.0f};
    std::vector<T> elements;
    for (std::int64_t i = 0; i < n; ++i) elements.push_back(static_cast<T>(normal(random)));
    return elements;
}

/// Cells 0 to n - 1.
inline std::vector<cellar::Cell> first_cells(int n) {
    std::vector<cellar::Cell> cells(static_cast<std::size_t>(n));
    std::iota(cells.begin(), cells.end(), 0);
    return cells;
}

/// How rows [tokens, heads, dim] lie in memory: their order, and whether there are gaps.
enum class Order { dense, padded_tokens, heads_first, dims_first, padded_dims };
inline constexpr Order all_orders[] = {Order::dense, Order::padded_tokens, Order::heads_first, Order::dims_first,
                                       Order::padded_dims};

template <class T>
cellar::StridedView<T, 3> view_of(T* data, Order order, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    switch (order) {
    case Order::dense:
        break;
    case Order::padded_tokens: // as in the output of one product for queries, keys and values
        return {data, {tokens, heads, dim}, {2 * heads * dim + 3, dim, 1}};
    case Order::heads_first:
        return {data, {tokens, heads, dim}, {dim, tokens * dim, 1}};
    case Order::dims_first:
        return {data, {tokens, heads, dim}, {1, tokens, heads * tokens}};
    case Order::padded_dims:
        return {data, {tokens, heads, dim}, {heads * dim * 2, dim * 2, 2}};
    }
    return cellar::contiguous_view(data, tokens, heads, dim);
}

/// The number of elements that rows of any order span at most.
inline std::int64_t span_of(std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
    return tokens * (2 * heads * dim + 3);
}

/// Rows [tokens, heads, dim] in a backend's memory.
template <class Backend, class T>
class Rows {
public:
    Rows(Backend& backend, Order order, std::int64_t tokens, const cellar::LayoutMapping auto& mapping)
        : size_{span_of(tokens, mapping.heads(), mapping.dim())},
          buffer_{backend.template allocate<T>(size_)},
          view_{view_of(buffer_.data(), order, tokens, mapping.heads(), mapping.dim())} {}

    cellar::StridedView<T, 3> view() const { return view_; }
    cellar::StridedView<const T, 3> constant() const { return view_; }

    /// `elements`: [tokens, heads, dim], dense.
    void write(Backend& backend, const std::vector<T>& elements) {
        std::vector<T> image(static_cast<std::size_t>(size_), T{});
        std::size_t next = 0;
        visit([&](std::size_t at) { image[at] = elements[next++]; });
        backend.copy_from_host(std::span<const T>{image}, buffer_, 0);
    }

    std::vector<T> read(Backend& backend) const {
        std::vector<T> image(static_cast<std::size_t>(size_));
        backend.copy_to_host(buffer_, 0, std::span<T>{image});
        std::vector<T> elements;
        visit([&](std::size_t at) { elements.push_back(image[at]); });
        return elements;
    }

private:
    template <class Visitor>
    void visit(Visitor visitor) const {
        for (std::int64_t i = 0; i < view_.extent(0); ++i)
            for (std::int64_t head = 0; head < view_.extent(1); ++head)
                for (std::int64_t d = 0; d < view_.extent(2); ++d)
                    visitor(
                        static_cast<std::size_t>(i * view_.stride(0) + head * view_.stride(1) + d * view_.stride(2)));
    }

    std::int64_t size_;
    typename Backend::template Buffer<T> buffer_;
    cellar::StridedView<T, 3> view_;
};

/// A backend, one of its buffers under a mapping, and an image of the elements that the buffer should hold.
template <class Backend, class Mapping, class E>
class Memory {
public:
    Memory(std::int64_t cells, int heads, int dim)
        : mapping{cells, heads, dim},
          buffer{backend.template allocate<E>(mapping.required_size())},
          image(static_cast<std::size_t>(mapping.required_size()), E{}) {}

    std::int64_t row() const { return std::int64_t{mapping.heads()} * mapping.dim(); }

    E& expected(std::int64_t cell, std::int64_t head, std::int64_t d) {
        return image[static_cast<std::size_t>(mapping(cell, head, d))];
    }
    /// `elements`: the row of the cell, [heads, dim].
    void expect_row(std::int64_t cell, const E* elements) {
        for (int head = 0; head < mapping.heads(); ++head)
            for (int d = 0; d < mapping.dim(); ++d) expected(cell, head, d) = elements[head * mapping.dim() + d];
    }
    std::vector<E> expected_row(std::int64_t cell) {
        std::vector<E> elements;
        for (int head = 0; head < mapping.heads(); ++head)
            for (int d = 0; d < mapping.dim(); ++d) elements.push_back(expected(cell, head, d));
        return elements;
    }

    /// Fills the whole buffer with random elements, without `scatter`.
    void fill(std::mt19937& random) {
        image = random_elements<E>(random, mapping.required_size());
        backend.copy_from_host(std::span<const E>{image}, buffer, 0);
    }

    std::vector<E> read() {
        std::vector<E> all(image.size());
        backend.copy_to_host(buffer, 0, std::span<E>{all});
        return all;
    }
    bool is_as_expected() { return same(read(), image); }

    template <class T>
    void scatter(const std::vector<cellar::Cell>& cells, const std::vector<T>& elements, Order order = Order::dense) {
        Rows<Backend, T> rows{backend, order, std::ssize(cells), mapping};
        rows.write(backend, elements);
        backend.scatter(mapping, buffer, std::span<const cellar::Cell>{cells}, rows.constant());
        backend.fence();
    }

    template <class T = E>
    std::vector<T> gather(const std::vector<cellar::Cell>& cells, Order order = Order::dense) {
        Rows<Backend, T> rows{backend, order, std::ssize(cells), mapping};
        const auto& constant = buffer;
        backend.gather(mapping, constant, std::span<const cellar::Cell>{cells}, rows.view());
        return rows.read(backend);
    }

    void move(const std::vector<cellar::Move>& moves) { backend.move(mapping, buffer, std::span{moves}); }

    template <class Shift>
    void rotate(const Shift& shift, int layer, const std::vector<cellar::KeyRotation>& rotations) {
        backend.rotate(mapping, buffer, shift, layer, std::span{rotations});
    }

    Backend backend;
    Mapping mapping;
    typename Backend::template Buffer<E> buffer;
    std::vector<E> image;
};

/// A mapping and an element, for generic lambdas to name.
template <class M, class E>
struct Kind {
    using Mapping = M;
    using Element = E;
};

/// Calls `body(Kind<Mapping, Element>{})` for every mapping and element, and for a user-defined mapping.
template <class Body>
void for_all_kinds(Body body) {
    const auto call = [&]<class Mapping, class E>(const char* name, Kind<Mapping, E> kind) {
        INFO(name);
        body(kind);
    };
    call("CellsHeadsDims of float", Kind<cellar::CellsHeadsDims, float>{});
    call("CellsHeadsDims of half", Kind<cellar::CellsHeadsDims, cellar::half>{});
    call("CellsHeadsDims of bfloat16", Kind<cellar::CellsHeadsDims, cellar::bfloat16>{});
    call("HeadsDimsCells of float", Kind<cellar::HeadsDimsCells, float>{});
    call("HeadsDimsCells of half", Kind<cellar::HeadsDimsCells, cellar::half>{});
    call("HeadsDimsCells of bfloat16", Kind<cellar::HeadsDimsCells, cellar::bfloat16>{});
    call("BlocksHeadsCellsDims of float", Kind<cellar::BlocksHeadsCellsDims<4>, float>{});
    call("BlocksHeadsCellsDims of half", Kind<cellar::BlocksHeadsCellsDims<16>, cellar::half>{});
    call("a user-defined mapping of half", Kind<Backwards, cellar::half>{});
}

} // namespace cellar_test
