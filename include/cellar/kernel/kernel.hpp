// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::kernel {

/// Both steps of a kernel at one place. A kernel is a trivially copyable value over raw pointers, of three indices:
///
/// - `read(i, head, d)` returns a `Value` and writes nothing;
/// - `write(i, head, d, value)` stores it.
///
/// Places are independent: none reads what another one writes, so they go in any order, and a thread may read at
/// several before it writes at the first.
template <class Kernel>
CELLAR_FUNCTION void apply(const Kernel& kernel, std::int64_t i, std::int64_t head, std::int64_t d) {
    kernel.write(i, head, d, kernel.read(i, head, d));
}

} // namespace cellar::kernel
