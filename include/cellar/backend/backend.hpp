// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/list_entry.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/shift/shift.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace cellar {

namespace detail {

/// A host copy of `count` elements from `first` on must stay within a buffer of `size`.
inline void expect_within(std::int64_t size, std::int64_t first, std::int64_t count) {
    CELLAR_EXPECTS(first >= 0 && first <= size - count, "backend: a copy of elements [", first, ", ", first + count,
                   "), expected within the ", size, " of the buffer");
}

/// A mapping with nothing but what `LayoutMapping` asks for: a backend must accept every mapping, so the concept asks
/// it with this one.
class MappingArchetype {
public:
    static constexpr Segment segment = Segment::element;
    static constexpr std::int32_t segment_cells = 1;

    MappingArchetype(std::int64_t cells, int heads, int dim);

    CELLAR_FUNCTION std::int64_t cells() const;
    CELLAR_FUNCTION int heads() const;
    CELLAR_FUNCTION int dim() const;
    CELLAR_FUNCTION std::int64_t required_size() const;
    CELLAR_FUNCTION std::int64_t operator()(std::int64_t cell, std::int64_t head, std::int64_t d) const;
    template <class T>
    CELLAR_FUNCTION StridedView<T, 3> view(T* data, CellRange range) const;
};
static_assert(LayoutMapping<MappingArchetype>);

/// The work of attention over rows of any mapping.
using AttentionArchetype =
    AttentionWork<StoredRows<MappingArchetype, half>, StoredRows<MappingArchetype, bfloat16>, half, float>;

/// A shift policy with nothing but what `ShiftPolicy` asks for.
struct ShiftArchetype {
    static constexpr bool possible = true;
    struct Factor {};
    struct Rotation {
        CELLAR_FUNCTION int pairs() const;
        CELLAR_FUNCTION int first(int pair) const;
        CELLAR_FUNCTION int second(int pair) const;
        CELLAR_FUNCTION void rotate(float& a, float& b, Factor factor) const;
    };

    Rotation rotation(int layer) const;
    Factor factor(int layer, int pair, std::int32_t delta) const;
};
static_assert(ShiftPolicy<ShiftArchetype>);

// clang-format off
template <class B, class E>
concept has_buffer =
    std::movable<typename B::template Buffer<E>>
    && !std::copyable<typename B::template Buffer<E>>
    && requires(typename B::template Buffer<E>& buffer, const typename B::template Buffer<E>& constant) {
        { buffer.data() } -> std::same_as<E*>;
        { constant.data() } -> std::same_as<const E*>;
        { constant.size() } -> std::same_as<std::int64_t>;
    };
// clang-format on
template <class B, class E>
concept has_allocate = requires(B& b, std::int64_t n) {
    { b.template allocate<E>(n) } -> std::same_as<typename B::template Buffer<E>>;
};
template <class B, class E>
concept has_scatter = requires(B& b, const MappingArchetype& mapping, typename B::template Buffer<E>& buffer,
                               std::span<const Cell> cells, StridedView<const E, 3> rows,
                               StridedView<const float, 3> floats) {
    b.scatter(mapping, buffer, cells, rows);
    b.scatter(mapping, buffer, cells, floats);
};
template <class B, class E>
concept has_gather = requires(B& b, const MappingArchetype& mapping, const typename B::template Buffer<E>& buffer,
                              std::span<const Cell> cells, StridedView<E, 3> rows, StridedView<float, 3> floats) {
    b.gather(mapping, buffer, cells, rows);
    b.gather(mapping, buffer, cells, floats);
};
template <class B, class E>
concept has_move = requires(B& b, const MappingArchetype& mapping, typename B::template Buffer<E>& buffer,
                            std::span<const Move> moves) {
    b.move(mapping, buffer, moves);
};
template <class B, class E>
concept has_rotate = requires(B& b, const MappingArchetype& mapping, typename B::template Buffer<E>& buffer,
                              const ShiftArchetype& shift, int layer, std::span<const KeyRotation> rotations) {
    b.rotate(mapping, buffer, shift, layer, rotations);
};
template <class B, class E>
concept has_host_copies = requires(B& b, typename B::template Buffer<E>& buffer,
                                   const typename B::template Buffer<E>& constant, std::int64_t first, std::span<E> to,
                                   std::span<const E> from) {
    b.copy_to_host(constant, first, to);
    b.copy_from_host(from, buffer, first);
};
template <class B>
concept has_host_reaches = requires {
    { std::bool_constant<B::host_reaches>::value } -> std::convertible_to<bool>;
};
template <class B>
concept has_copy_slots = requires(B& b, std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) {
    b.copy_slots(tensors, copies);
};
template <class B>
concept has_fence = requires(B& b) {
    b.fence();
};

// clang-format off
template <class B, class E>
concept serves_element =
    has_buffer<B, E> && has_allocate<B, E>
    && has_scatter<B, E> && has_gather<B, E> && has_move<B, E> && has_rotate<B, E>
    && has_host_copies<B, E>;
// clang-format on

} // namespace detail

/// Where memory lies, and who works on it. Work is done in the order in which it was given.
///
/// - `host_reaches`: a static constant. True if the host reads and writes the memory of buffers, once no work in flight
///   uses it, and work reads and writes any memory of the host. If false, data passes between the two in `copy_to_host`
///   and `copy_from_host` alone.
/// - `Buffer<E>`: move-only memory, with `size()` and `data()`. The address never changes, not even when the buffer
///   moves. It is destroyed after the work that uses it, hence after a fence.
/// - `allocate<E>(n)`: n elements, all zero.
/// - `scatter(mapping, buffer, cells, rows)`: enqueues; writes row i of `rows` [tokens, heads, dim] to cells[i]. All
///   cells are different.
/// - `gather(mapping, buffer, cells, rows)`: enqueues; reads cells[i] into row i.
/// - `move(mapping, buffer, moves)`: enqueues; each move works like memmove. No move writes a cell that another one
///   reads.
/// - `rotate(mapping, buffer, shift, layer, rotations)`: enqueues; computes in float and rounds once. No cell is
///   rotated twice.
/// - `copy_slots(tensors, copies)`: enqueues; carries out every copy for each tensor, bytewise. No row is written
///   twice, and none is both read and written.
/// - `copy_to_host(buffer, first, to)`, `copy_from_host(from, buffer, first)`: block; copy as many elements as the span
///   has, from element `first` of the buffer on, in the order of memory. Leaving the buffer is a violation.
/// - `fence()`: blocks until all work is done.
///
/// Spans are host memory and may change once the call returned. `rows` lie where the backend's buffers do, have any
/// strides, hold the stored element or float, and must not change until the work is done.
///
/// Law: results equal those of the Eigen backend. Bit for bit where elements move or convert (a NaN stays a NaN). Where
/// keys are rotated, within 2^-22 of the length of the pair, plus the element's own rounding.
// clang-format off
template <class B>
concept BackendPolicy =
    std::movable<B> && detail::has_host_reaches<B>
    && detail::serves_element<B, float> && detail::serves_element<B, half> && detail::serves_element<B, bfloat16>
    && detail::has_copy_slots<B> && detail::has_fence<B>;
// clang-format on

/// One plane of keys or values, as a backend takes it: where its units lie, and their memory.
template <LayoutMapping Mapping, class Buffer>
struct Plane {
    const Mapping& mapping;
    Buffer& memory;
};

namespace detail {

template <class B, class F, class... Planes>
concept encodes_planes = requires(B& b, std::span<const Cell> cells, StridedView<const float, 3> values,
                                  StridedView<float, 3> out, const float* factors, const ShiftArchetype& shift,
                                  int layer, std::span<const KeyRotation> rotations, const Planes&... planes) {
    b.template encode<F>(cells, values, factors, planes...);
    b.template decode<F>(cells, out, factors, planes...);
    b.template rotate_encoded<F>(shift, layer, rotations, planes...);
};
template <class B, class U>
using PlaneArchetype = Plane<MappingArchetype, typename B::template Buffer<U>>;
template <class B, class F>
concept encodes_units = !has_second_plane<F> && requires {
    requires encodes_planes<B, F, PlaneArchetype<B, typename F::unit>>;
};
template <class B, class F>
concept encodes_scaled_units = requires {
    requires encodes_planes<B, F, PlaneArchetype<B, typename F::unit>, PlaneArchetype<B, typename F::scale>>;
};

} // namespace detail

/// A backend that stores rows in a format. All store float, half and bfloat16. For any other format F, buffers hold its
/// units and scales, which `scatter`, `gather` and `move` treat as elements that are never converted; and, with the one
/// or two planes (`Plane`) that the rows have:
///
/// - `encode<F>(cells, values, factors, planes...)`: enqueues; encodes row i of `values` [tokens, heads, dim] into
///   cells[i], divided by `factors` [heads, dim] in a buffer of the backend. Null: by nothing.
/// - `decode<F>(cells, values, factors, planes...)`: enqueues; decodes cells[i] into row i, multiplied by `factors`.
/// - `rotate_encoded<F>(shift, layer, rotations, planes...)`: enqueues; decodes each head, rotates it in float, and
///   encodes it again.
template <class B, class F>
concept StoresFormat = Element<F> || detail::encodes_units<B, F> || detail::encodes_scaled_units<B, F>;

/// A backend that writes masks itself, in memory of its own. For other backends the host writes masks in host memory.
///
/// - `write_mask(bits, visible, hidden, mask)`: enqueues; expands row r of `mask` [tokens, history], which is densely
///   packed in a buffer of the backend. `bits` is host memory of (history + 63) / 64 words per row, with cell c at bit
///   c % 64 of word c / 64; bits beyond the history mean nothing. The mask is of float, half or bool.
template <class B>
concept WritesMasks = requires(B& b, std::span<const std::uint64_t> bits, StridedView<float, 2> floats,
                               StridedView<half, 2> halves, StridedView<bool, 2> bools) {
    b.write_mask(bits, float{}, float{}, floats);
    b.write_mask(bits, half{}, half{}, halves);
    b.write_mask(bits, bool{}, bool{}, bools);
};

/// A backend that needs memory of its own for passes. After `reserve(tokens, cells)`, which may block, passes of at
/// most that many tokens and a history of at most that many cells make the backend neither allocate nor change an
/// address that kernels read.
template <class B>
concept ReservesPasses = requires(B& b, std::int64_t tokens, std::int64_t cells) {
    b.reserve(tokens, cells);
};

/// A backend that does not reach any memory of the host, but what is allocated for that (pinned memory).
///
/// - `PinnedBuffer<E>`: like `Buffer`. The host may use it, too, once no work in flight does. The rows of `gather`,
///   `scatter` and `copy_slots` may lie there.
/// - `allocate_pinned<E>(n)`: n elements, all zero. May block.
template <class B>
concept PinsHostMemory = requires(B& b, std::int64_t n) {
    { b.template allocate_pinned<float>(n) } -> std::same_as<typename B::template PinnedBuffer<float>>;
    { b.template allocate_pinned<half>(n) } -> std::same_as<typename B::template PinnedBuffer<half>>;
    { b.template allocate_pinned<bfloat16>(n) } -> std::same_as<typename B::template PinnedBuffer<bfloat16>>;
};

/// A backend that works in memory of a program's own, too. `borrow(data, n)`: a buffer of n elements from `data` on,
/// which it sets to zeros and never frees.
template <class B>
concept BorrowsMemory = requires(B& b, float* floats, half* halves, bfloat16* others, std::int64_t n) {
    { b.borrow(floats, n) } -> std::same_as<typename B::template Buffer<float>>;
    { b.borrow(halves, n) } -> std::same_as<typename B::template Buffer<half>>;
    { b.borrow(others, n) } -> std::same_as<typename B::template Buffer<bfloat16>>;
};

/// A backend with `holds_data = false`, as `NoData`: keys and values are in memory that the program works on itself. A
/// cache then does the bookkeeping, and `Cache::take_plans` returns what the program has to copy and to rotate. Buffers
/// have no elements, and work on them is none.
template <class B>
concept HoldsNoData = requires {
    requires !B::holds_data;
};

/// A backend that needs memory of its own to carry out plans. A cache reserves it while an operation may still refuse.
///
/// - `reserve_moves(cells)`, `reserve_rotations(shift, layer, cells)`: may block, and may throw with nothing changed.
///   Afterwards, `move` of at most that many cells, in moves that do not overlap themselves, and `rotate` of at most
///   that many cells by one delta do not allocate.
template <class B>
concept ReservesPlans = requires(B& b, const detail::ShiftArchetype& shift, int layer, std::int64_t cells) {
    b.reserve_moves(cells);
    b.reserve_rotations(shift, layer, cells);
};

/// A backend that needs memory of its own for `copy_slots`. After `reserve_slots(copies)`, which may block and throw,
/// `copy_slots` of at most that many copies does not allocate.
template <class B>
concept ReservesSlots = requires(B& b, std::int64_t copies) {
    b.reserve_slots(copies);
};

/// A backend whose kernels read lists of cells in memory of its own. `upload_cells(cells)` enqueues the upload of a
/// list ahead of time; the next `scatter` to the same cells does not repeat it, so a graph can capture that `scatter`.
template <class B>
concept UploadsCells = requires(B& b, std::span<const Cell> cells) {
    b.upload_cells(cells);
};

/// A backend that writes lists of indices in memory of its own. For other backends the host writes them in host memory.
///
/// - `IndexBuffer`, `allocate_indices(n)`: like `Buffer` and `allocate`, of `int32_t`.
/// - `reserve_entries(n)`: may block, and may throw with nothing changed. Afterwards, `write_entries` of at most that
///   many entries does not allocate.
/// - `write_entries(entries, list)`: enqueues; list[entry.place] = entry.value for all entries, whose places are
///   different.
/// - `compress_rows(copy, entries)`: enqueues; copies rows with `entries` entries in all; source and result do not
///   overlap.
template <class B>
concept WritesLists = requires(B& b, std::span<const ListEntry> entries, std::int32_t* list, const ListRowsCopy& copy,
                               std::int64_t n) {
    { b.allocate_indices(n) } -> std::same_as<typename B::IndexBuffer>;
    b.reserve_entries(n);
    b.write_entries(entries, list);
    b.compress_rows(copy, n);
};

/// A backend that computes attention itself, as one must whose memory the host cannot read.
///
/// - `begin_attention(lists)`: what the tokens of a pass see, before its first `attend`. The lists are host memory, and
///   stay as they are until the pass ends.
/// - `attend(work)`: enqueues; writes the results of one layer. See `AttentionWork`, whose types may be any that
///   `attend` takes: rows of every mapping and element, queries and results of float, half or bfloat16. It multiplies
///   queries and results by `work.factors`.
///
/// Both may block and allocate. Law: see `attend`; results equal those of the Eigen backend up to rounding in float.
template <class B>
concept ComputesAttention = requires(B& b, const AttentionLists& lists, const detail::AttentionArchetype& work) {
    b.begin_attention(lists);
    b.attend(work);
};

/// A backend that computes attention over the cells of two memories, one after the other, for `attend_residual`:
/// `attend` merges `work.prior` into its results.
///
/// - `shares_order(other)`: true if work that is given to this backend and to `other` is done in the order in which it
///   was given.
/// - `prior_results(n)`: memory for n floats, which `other` writes and `attend` then reads as `work.prior`. Valid until
///   the next `prior_results`. May block and allocate, if it is more than ever before.
template <class B>
concept MergesAttention = ComputesAttention<B> && requires(B& b, const B& other, std::int64_t n) {
    { b.shares_order(other) } -> std::same_as<bool>;
    { b.prior_results(n) } -> std::same_as<float*>;
};

/// A backend with `is_reference`: `attend` computes every element by itself, in double, for others to be compared with.
template <class B>
concept IsReference = requires {
    requires B::is_reference;
};

/// A backend that computes checksums of its memory. `crc32(bytes, n)` blocks until all work is done, and returns the
/// CRC-32 (that of zlib) of n bytes in one of its buffers, at a multiple of 4 bytes from its beginning.
template <class B>
concept ComputesChecksums = requires(B& b, const std::byte* bytes, std::int64_t n) {
    { b.crc32(bytes, n) } -> std::same_as<std::uint32_t>;
};

} // namespace cellar
