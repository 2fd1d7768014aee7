// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/host/encoded.hpp>
#include <cellar/backend/host/lines.hpp>
#include <cellar/backend/host/rotate.hpp>
#include <cellar/backend/host/rows.hpp>
#include <cellar/backend/host/runs.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/shift/shift.hpp>

#include <cstdint>
#include <iterator>
#include <span>

namespace cellar {

/// Host memory and the calling thread; needs nothing but the standard library. Nothing is enqueued: every operation is
/// done when it returns.
class HostBackend {
public:
    static constexpr bool host_reaches = true;

    /// Zeros that the operating system commits when they are first touched.
    template <StorageUnit E>
    using Buffer = ZeroedArray<E>;

    template <StorageUnit E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{n};
    }

    /// See `BorrowsMemory`.
    template <StorageUnit E>
    Buffer<E> borrow(E* data, std::int64_t n) const {
        return Buffer<E>::borrow(data, n);
    }

    /// With contiguous rows, a run of neighbouring cells is one copy or one conversion.
    template <LayoutMapping Mapping, StorageUnit E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) const {
        detail::scatter_rows(mapping, buffer.data(), cells, rows);
    }

    template <LayoutMapping Mapping, StorageUnit E, class T>
    void gather(const Mapping& mapping, const Buffer<E>& buffer, std::span<const Cell> cells,
                StridedView<T, 3> rows) const {
        detail::gather_rows(mapping, buffer.data(), cells, rows, 0, detail::gather_parts(mapping, cells));
    }

    template <LayoutMapping Mapping, StorageUnit E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const Move> moves) const {
        detail::move_runs(mapping, buffer.data(), moves, 0, detail::move_parts(mapping, moves));
    }

    template <LayoutMapping Mapping, StorageUnit E, ShiftPolicy Shift>
    void rotate(const Mapping& mapping, Buffer<E>& buffer, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) const {
        detail::rotate_runs(mapping, buffer.data(), shift, layer, rotations);
    }

    /// See `StoresFormat`.
    template <StorageFormat F, class... Planes>
    void encode(std::span<const Cell> cells, StridedView<const float, 3> values, const float* factors,
                const Planes&... planes) const {
        detail::encode_rows<F>(cells, values, factors, planes...);
    }
    template <StorageFormat F, class... Planes>
    void decode(std::span<const Cell> cells, StridedView<float, 3> values, const float* factors,
                const Planes&... planes) const {
        detail::decode_rows<F>(cells, values, factors, planes...);
    }
    template <StorageFormat F, ShiftPolicy Shift, class... Planes>
    void rotate_encoded(const Shift& shift, int layer, std::span<const KeyRotation> rotations,
                        const Planes&... planes) const {
        detail::rotate_encoded<F>(shift, layer, rotations, 0, INT64_MAX, planes...);
    }

    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) const {
        for (const SlotRows& rows : tensors)
            for (const SlotCopy& copy : copies) detail::copy_row(rows, copy, 0, rows.bytes);
    }

    template <StorageUnit E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) const {
        detail::expect_within(buffer.size(), first, std::ssize(to));
        detail::convert_run(buffer.data() + first, to.data(), std::ssize(to));
    }

    template <StorageUnit E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) const {
        detail::expect_within(buffer.size(), first, std::ssize(from));
        detail::convert_run(from.data(), buffer.data() + first, std::ssize(from));
    }

    void fence() const {}
};

} // namespace cellar
