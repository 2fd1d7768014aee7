// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/book/audit.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/encoder_memory.hpp>
#include <cellar/memory/two_phase.hpp>

#include <string>

namespace cellar {

/// Recounts a cache's bookkeeping from its sequences and snapshots. Returns the first contradiction, or an empty
/// string. For tests and debugging. O(cells + tokens of all sequences and snapshots).
template <class Layout, class Window, class Shift, class Backend>
std::string audit(const Cache<Layout, Window, Shift, Backend>& cache, Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::audit(MemoryAccess::state(cache).book.table());
}
template <class Layout, class Backend>
std::string audit(const EncoderMemory<Layout, Backend>& memory, Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::audit(MemoryAccess::state(memory).book.table());
}

} // namespace cellar
