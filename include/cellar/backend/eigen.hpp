// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/element/eigen_scalar.hpp>

#include <Eigen/Core>

#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

namespace cellar {

/// The reference that other backends are checked against: host memory, and every operation as Eigen expressions over
/// the mapping's offsets. It shares neither kernels nor element conversions with the other backends. Clear rather than
/// fast: every operation allocates, and throws half-way if there is no memory. Nothing is enqueued.
class EigenBackend {
public:
    /// Whatever is computed from its memory is computed plainly, in double.
    static constexpr bool is_reference = true;
    static constexpr bool host_reaches = true;

    template <Element E>
    using Buffer = ZeroedArray<E>;

    template <Element E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{n};
    }

    /// See `BorrowsMemory`.
    template <Element E>
    Buffer<E> borrow(E* data, std::int64_t n) const {
        return Buffer<E>::borrow(data, n);
    }

    template <LayoutMapping Mapping, Element E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const Cell> cells,
                 StridedView<const T, 3> rows) const {
        for (Eigen::Index i = 0; i < std::ssize(cells); ++i) {
            const List<Stored<T>> row = plane(rows, i).template reshaped<Eigen::RowMajor>();
            memory(buffer)(offsets(mapping, cells[static_cast<std::size_t>(i)])) = convert<T, E>(row);
        }
    }

    template <LayoutMapping Mapping, Element E, class T>
    void gather(const Mapping& mapping, const Buffer<E>& buffer, std::span<const Cell> cells,
                StridedView<T, 3> rows) const {
        for (Eigen::Index i = 0; i < std::ssize(cells); ++i) {
            const List<Stored<E>> row = memory(buffer)(offsets(mapping, cells[static_cast<std::size_t>(i)]));
            plane(rows, i).template reshaped<Eigen::RowMajor>() = convert<E, T>(row);
        }
    }

    /// All cells of a run are read before the first is written.
    template <LayoutMapping Mapping, Element E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const Move> moves) const {
        for (const Move& run : moves) {
            const List<Stored<E>> rows = memory(buffer)(offsets(mapping, run.from, run.count));
            memory(buffer)(offsets(mapping, run.to, run.count)) = rows;
        }
    }

    template <LayoutMapping Mapping, Element E, ShiftPolicy Shift>
    void rotate(const Mapping& mapping, Buffer<E>& buffer, const Shift& shift, int layer,
                std::span<const KeyRotation> rotations) const {
        const auto rotation = shift.rotation(layer);
        for (const KeyRotation& run : rotations) {
            for (int pair = 0; pair < rotation.pairs(); ++pair) {
                const auto factor = shift.factor(layer, pair, run.delta);
                const Offsets first = offsets(mapping, run, rotation.first(pair));
                const Offsets second = offsets(mapping, run, rotation.second(pair));
                List<float> a = convert<E, float>(memory(buffer)(first));
                List<float> b = convert<E, float>(memory(buffer)(second));
                for (Eigen::Index i = 0; i < a.size(); ++i) rotation.rotate(a[i], b[i], factor);
                memory(buffer)(first) = convert<float, E>(a);
                memory(buffer)(second) = convert<float, E>(b);
            }
        }
    }

    void copy_slots(std::span<const SlotRows> tensors, std::span<const SlotCopy> copies) const {
        for (const SlotRows& rows : tensors) {
            for (const SlotCopy& copy : copies) {
                Eigen::Map<Bytes> to{reinterpret_cast<unsigned char*>(rows.to + copy.to * rows.to_stride), rows.bytes};
                to.setZero();
                if (copy.from == zero_slot) continue;
                const std::byte* const from = rows.from + copy.from * rows.from_stride;
                to = Eigen::Map<const Bytes>{reinterpret_cast<const unsigned char*>(from), rows.bytes};
            }
        }
    }

    template <Element E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) const {
        detail::expect_within(buffer.size(), first, std::ssize(to));
        flat(to.data(), std::ssize(to)) = memory(buffer).segment(first, std::ssize(to));
    }

    template <Element E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) const {
        detail::expect_within(buffer.size(), first, std::ssize(from));
        memory(buffer).segment(first, std::ssize(from)) = flat(from.data(), std::ssize(from));
    }

    void fence() const {}

private:
    // The type in memory, and the scalar type that Eigen computes with.
    template <class T>
    using Stored = std::conditional_t<std::is_same_v<T, float>, float, std::uint16_t>;
    template <class T>
    using Scalar = typename detail::EigenScalar<T>::type;
    template <class S>
    using List = Eigen::Array<S, Eigen::Dynamic, 1>;
    template <class S>
    using Plane = Eigen::Array<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using Offsets = List<Eigen::Index>;
    using Bytes = List<unsigned char>;
    using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

    template <class E>
    static Eigen::Map<List<Stored<E>>> flat(E* data, std::int64_t n) {
        return {reinterpret_cast<Stored<E>*>(data), n};
    }
    template <class E>
    static Eigen::Map<const List<Stored<E>>> flat(const E* data, std::int64_t n) {
        return {reinterpret_cast<const Stored<E>*>(data), n};
    }
    static auto memory(auto& buffer) { return flat(buffer.data(), buffer.size()); }

    /// Row i of the view as [heads, dim].
    template <class T>
    static auto plane(const StridedView<T, 3>& rows, Eigen::Index i) {
        using S = Stored<std::remove_const_t<T>>;
        using Pointer = std::conditional_t<std::is_const_v<T>, const S*, S*>;
        using Values = std::conditional_t<std::is_const_v<T>, const Plane<S>, Plane<S>>;
        return Eigen::Map<Values, Eigen::Unaligned, Strides>{
            reinterpret_cast<Pointer>(rows.pointer + i * rows.stride(0)), rows.extent(1), rows.extent(2),
            Strides{rows.stride(1), rows.stride(2)}};
    }

    /// The offsets of the rows of `count` cells: cell after cell, head after head.
    template <class Mapping>
    static Offsets offsets(const Mapping& mapping, Cell first, std::int64_t count = 1) {
        const Eigen::Index heads = mapping.heads();
        const Eigen::Index dim = mapping.dim();
        return Offsets::NullaryExpr(count * heads * dim, [=](Eigen::Index i) {
            return Eigen::Index{mapping(first + i / dim / heads, i / dim % heads, i % dim)};
        });
    }

    /// The offsets of element d of every head, for all cells of a run.
    template <class Mapping>
    static Offsets offsets(const Mapping& mapping, const KeyRotation& run, int d) {
        const Eigen::Index heads = mapping.heads();
        return Offsets::NullaryExpr(run.count * heads, [=](Eigen::Index i) {
            return Eigen::Index{mapping(run.first + i / heads, i % heads, d)};
        });
    }

    template <class From, class To>
    static List<Stored<To>> convert(const List<Stored<From>>& list) {
        if constexpr (std::is_same_v<From, To>) {
            return list;
        } else if constexpr (std::is_same_v<From, float>) {
            return list.template cast<Scalar<To>>().unaryExpr(
                [](Scalar<To> value) { return Eigen::numext::bit_cast<std::uint16_t>(value); });
        } else {
            return list.unaryExpr([](std::uint16_t bits) { return Eigen::numext::bit_cast<Scalar<From>>(bits); })
                .template cast<float>();
        }
    }
};

} // namespace cellar
