// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/layout/element.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace cellar {

namespace detail {

/// A host copy of `count` elements from `first` on stays inside of a buffer of `size`.
inline void expect_within(std::int64_t size, std::int64_t first, std::int64_t count) {
    CELLAR_EXPECTS(first >= 0 && first <= size - count, "backend: a copy of elements [", first, ", ", first + count,
                   "), expected within the ", size, " of the buffer");
}

} // namespace detail

// The requirements are asked with one mapping, one shift policy and one outside type as witnesses; a backend offers its
// verbs for all of them.

template <class B, class E>
concept has_buffer =
    std::movable<typename B::template Buffer<E>> && !std::copyable<typename B::template Buffer<
        E>> && requires(typename B::template Buffer<E> & buffer, const typename B::template Buffer<E>& constant) {
    { buffer.data() } -> std::same_as<E*>;
    { constant.data() } -> std::same_as<const E*>;
    { constant.size() } -> std::same_as<std::int64_t>;
};
template <class B, class E>
concept has_allocate = requires(B& b, std::int64_t n) {
    { b.template allocate<E>(n) } -> std::same_as<typename B::template Buffer<E>>;
};
template <class B, class E>
concept has_scatter = requires(B& b, const CellsHeadsDims& mapping, typename B::template Buffer<E>& buffer,
                               std::span<const Cell> cells, StridedView<const float, 3> rows) {
    b.scatter(mapping, buffer, cells, rows);
};
template <class B, class E>
concept has_gather = requires(B& b, const CellsHeadsDims& mapping, const typename B::template Buffer<E>& buffer,
                              std::span<const Cell> cells, StridedView<float, 3> rows) {
    b.gather(mapping, buffer, cells, rows);
};
template <class B, class E>
concept has_move = requires(B& b, const CellsHeadsDims& mapping, typename B::template Buffer<E>& buffer,
                            std::span<const Move> moves) {
    b.move(mapping, buffer, moves);
};
template <class B, class E>
concept has_turns = requires(B& b, const CellsHeadsDims& mapping, typename B::template Buffer<E>& buffer,
                             const RopeShift<>& shift, int layer, std::span<const Turn> turns) {
    b.turn(mapping, buffer, shift, layer, turns);
};
template <class B, class E>
concept has_host_copies = requires(B& b, typename B::template Buffer<E>& buffer,
                                   const typename B::template Buffer<E>& constant, std::int64_t first, std::span<E> to,
                                   std::span<const E> from) {
    b.copy_to_host(constant, first, to);
    b.copy_from_host(from, buffer, first);
};
template <class B>
concept has_copy_slots = requires(B& b, std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
    b.copy_slots(tensors, copies);
};
template <class B>
concept has_fence = requires(B& b) {
    b.fence();
};

template <class B, class E>
concept serves_element = has_buffer<B, E> && has_allocate<B, E> && has_scatter<B, E> && has_gather<B, E> && has_move<
    B, E> && has_turns<B, E> && has_host_copies<B, E>;

/// A backend that writes masks itself, into memory of its own: one whose memory the host cannot write, say. For others
/// the host writes them into memory of the process.
///
/// - `write_mask(bits, visible, hidden, mask)`: enqueues; spells out row r of `mask` [tokens, history], which lies in
///   one of the backend's buffers, densely packed. `bits` is host memory with (history + 63) / 64 words a row, cell c at
///   bit c % 64 of word c / 64; bits beyond the history mean nothing. T is float, half or bool.
/// - `reserve(tokens, cells)`: after it, passes of so many tokens with a history of so many cells make the backend
///   neither allocate nor change the address of anything that kernels read. May block.
template <class B>
concept writes_masks = requires(B& b, std::span<const std::uint64_t> bits, StridedView<float, 2> floats,
                                StridedView<half, 2> halves, StridedView<bool, 2> bools, std::int64_t n) {
    b.write_mask(bits, float{}, float{}, floats);
    b.write_mask(bits, half{}, half{}, halves);
    b.write_mask(bits, bool{}, bool{}, bools);
    b.reserve(n, n);
};

/// A backend whose kernels read lists of cells in memory of its own: `send_cells(cells)` enqueues the copy that the next
/// `scatter` to the same cells does not enqueue again, so that it can be captured in a graph.
template <class B>
concept sends_cells = requires(B& b, std::span<const Cell> cells) {
    b.send_cells(cells);
};

/// Where memory lies, and who works on it. A value; the work it is given is done in order.
///
/// - `Buffer<E>`: move-only; `data()`, which never changes, not even when the buffer is moved, and `size()`.
/// - `allocate<E>(n)`: n elements, all zero.
/// - `scatter(mapping, buffer, cells, rows)`: enqueues; row i of `rows` [tokens, heads, dim] goes to `cells[i]`. No
///   cell is named twice.
/// - `gather(mapping, buffer, cells, rows)`: enqueues; the row of `cells[i]` comes to row i.
/// - `move(mapping, buffer, moves)`: enqueues; each move as memmove does. No move writes a cell that another one reads.
/// - `turn(mapping, buffer, shift, layer, turns)`: enqueues; reckons in float and rounds once. No cell is turned twice.
/// - `copy_slots(tensors, copies)`: enqueues; every copy, for each tensor, byte by byte. No row is written twice, and
///   none is both written and read.
/// - `copy_to_host(buffer, first, to)`, `copy_from_host(from, buffer, first)`: blocks; elements [first, first + size of
///   the span), in the order of memory. Beyond the buffer: a violation.
/// - `fence()`: blocks until all work is done.
///
/// Spans are host memory, and may change once the verb returned. `rows` lie where the backend's buffers do, with any
/// strides, hold the stored element or float, and stay as they are until the work is done.
///
/// Law: equal to the Eigen backend, bit for bit where elements only move or convert (a NaN stays a NaN), and where keys
/// are turned to within 2^-22 of the length of the pair, and the element's own rounding.
template <class B>
concept backend = std::movable<B> && serves_element<B, float> && serves_element<B, half> && serves_element<
    B, bfloat16> && has_copy_slots<B> && has_fence<B>;

} // namespace cellar
