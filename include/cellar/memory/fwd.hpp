// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// Reaches what memories and passes do not offer in public: the two phases of their operations. A memory or pass whose
/// phases are private declares `friend struct MemoryAccess;`.
struct MemoryAccess;

} // namespace cellar
