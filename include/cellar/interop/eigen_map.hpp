// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/eigen_scalar.hpp>

#include <Eigen/Core>

#include <cstdint>
#include <type_traits>

namespace cellar {

/// The same memory as an Eigen matrix, [rows, columns], without a copy; for example of a mask. Host memory only.
template <class T>
auto eigen_map(const StridedView<T, 2>& view) {
    using Scalar = typename detail::EigenScalar<std::remove_const_t<T>>::type;
    using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
    using Constness = std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>;
    using Pointer = std::conditional_t<std::is_const_v<T>, const Scalar*, Scalar*>;
    return Eigen::Map<Constness, Eigen::Unaligned, Strides>{reinterpret_cast<Pointer>(view.pointer), view.extent(0),
                                                            view.extent(1), Strides{view.stride(0), view.stride(1)}};
}

/// The matrix that remains of three extents with one index fixed: `eigen_map(pass->keys(layer), 1, head)` is the
/// [history, key_dim] of one head.
template <class T>
auto eigen_map(const StridedView<T, 3>& view, int axis, std::int64_t index, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, axis >= 0 && axis < 3, "eigen_map: axis ", axis, ", expected 0 to 2");
    CELLAR_EXPECTS_AT(where, index >= 0 && index < view.extent(axis), "eigen_map: index ", index, " of axis ", axis,
                      ", expected 0 to ", view.extent(axis) - 1);
    const int rows = axis == 0 ? 1 : 0;
    const int columns = axis == 2 ? 1 : 2;
    return eigen_map(StridedView<T, 2>{view.pointer + index * view.stride(axis),
                                       {view.extent(rows), view.extent(columns)},
                                       {view.stride(rows), view.stride(columns)}});
}

} // namespace cellar
