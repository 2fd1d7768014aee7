// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace cellar::detail {

/// How often the first phases of operations had to allocate on this thread. It follows from the bookkeeping alone, so
/// memories on several ranks that did the same operations count the same. Snapshots, which always allocate, are not
/// counted.
inline thread_local constinit std::uint64_t growths = 0;

/// Precedes every allocation of a first phase that is not always made.
inline void note_growth() noexcept {
    ++growths;
}

} // namespace cellar::detail
