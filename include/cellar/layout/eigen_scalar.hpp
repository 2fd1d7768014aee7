// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/layout/element.hpp>

#include <Eigen/Core>

namespace cellar::detail {

/// What Eigen takes an element for: its own types of 16 bits have the same bits.
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
