// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: Times: the number of layers is at least 1
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
using Window = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>>;
#ifdef CORRECTED
constexpr int windows = 1;
#else
constexpr int windows = 0;
#endif

using Memory = cellar::Hybrid<cellar::Repeat<cellar::Times<windows, Window>, Full>, Window, Full>;
static_assert(Memory::place(1).layer >= 0);
