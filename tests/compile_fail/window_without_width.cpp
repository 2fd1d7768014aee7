// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A window without a width in its type needs one at run time.
// error: give the width: SlidingWindow<>{4096}
#include <cellar/window/sliding_window.hpp>

#ifdef CORRECTED
cellar::SlidingWindow<> window{4};
#else
cellar::SlidingWindow<> window;
#endif
