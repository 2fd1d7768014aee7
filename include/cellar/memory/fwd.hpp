// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// For cellar itself: reaches what memories and passes do not offer to programs, their state above all.
struct MemoryAccess;

} // namespace cellar
