// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/memory/two_phase.hpp>

namespace cellar_test {

/// The table behind a cache, an encoder memory or a recurrent memory.
template <class Memory>
const auto& table_of(const Memory& memory) {
    return cellar::MemoryAccess::state(memory).book.table();
}

} // namespace cellar_test
