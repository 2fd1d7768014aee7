// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Unnamed options of a window could be swapped: 10 tokens kept and 2 sinks, or 2 kept and 10 sinks?
// error: WindowOptions
#include <cellar/window/sliding_window.hpp>

#ifdef CORRECTED
cellar::SlidingWindow<> window{3, {.retention = 10, .sinks = 2}};
#else
cellar::SlidingWindow<> window{3, {10, 2}};
#endif
