// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <concepts>

namespace cellar {

/// A type that keys, values and states can be stored as. Each converts to and from float by `static_cast`.
template <class E>
concept Element = std::same_as<E, float> || std::same_as<E, half> || std::same_as<E, bfloat16>;

} // namespace cellar
