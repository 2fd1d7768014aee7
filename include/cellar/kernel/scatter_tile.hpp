// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Scatter into memory whose cells lie side by side, of rows whose dims do: a square tile is read along the dims and
/// written along the cells, so that neighbouring threads are neighbours in memory on both sides. All of a tile is read
/// before any is written. Tiles are independent: any order.
template <class Mapping, class Element, class T>
struct ScatterTile {
    static constexpr int side = 32;
    static constexpr int pitch = side + 1; // else a column would lie in one bank of the memory that a team shares
    static constexpr int elements = side * side;
    static constexpr int bytes = side * pitch * static_cast<int>(sizeof(Element));

    Mapping mapping;
    Element* memory;
    const Cell* cells;
    StridedView<const T, 3> rows; ///< [tokens, heads, dim]

    CELLAR_FUNCTION static std::int64_t across(std::int64_t n) { return (n + side - 1) / side; }
    CELLAR_FUNCTION std::int64_t tiles() const {
        return across(rows.extent(0)) * across(rows.extent(2)) * rows.extent(1);
    }

    /// Element `index` of a tile from its row to `shared`, memory for one tile.
    CELLAR_FUNCTION void read(std::int64_t tile, int index, Element* shared) const {
        const int i = index / side;
        const int k = index % side;
        const std::int64_t token = first_token(tile) + i;
        const std::int64_t d = first_dim(tile) + k;
        if (token < rows.extent(0) && d < rows.extent(2))
            shared[i * pitch + k] = static_cast<Element>(rows(token, head(tile), d));
    }

    /// Element `index`, counted the other way, from there to its cell.
    CELLAR_FUNCTION void write(std::int64_t tile, int index, const Element* shared) const {
        const int i = index % side;
        const int k = index / side;
        const std::int64_t token = first_token(tile) + i;
        const std::int64_t d = first_dim(tile) + k;
        if (token < rows.extent(0) && d < rows.extent(2))
            memory[mapping(cells[token], head(tile), d)] = shared[i * pitch + k];
    }

private:
    CELLAR_FUNCTION std::int64_t first_token(std::int64_t tile) const { return tile % across(rows.extent(0)) * side; }
    CELLAR_FUNCTION std::int64_t first_dim(std::int64_t tile) const {
        return tile / across(rows.extent(0)) % across(rows.extent(2)) * side;
    }
    CELLAR_FUNCTION std::int64_t head(std::int64_t tile) const {
        return tile / across(rows.extent(0)) / across(rows.extent(2));
    }
};

} // namespace cellar::kernel
