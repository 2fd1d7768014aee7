// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A width that is given at run time must be given.
// error: SlidingWindow
#include <cellar/window/sliding_window.hpp>

#ifdef CORRECTED
cellar::SlidingWindow<> window{4};
#else
cellar::SlidingWindow<> window;
#endif
