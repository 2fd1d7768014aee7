// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/element.hpp>

#include <Eigen/Core>

namespace cellar::detail {

/// Eigen's own type for an element. Its 16-bit types have the same bits as ours.
template <class E>
struct EigenScalar {
    using type = E;
};
template <>
struct EigenScalar<half> {
    using type = Eigen::half;
};
template <>
struct EigenScalar<bfloat16> {
    using type = Eigen::bfloat16;
};

} // namespace cellar::detail
