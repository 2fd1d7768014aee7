// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: SlidingWindow: the width counts tokens
#include <cellar/window/sliding_window.hpp>

#ifdef CORRECTED
cellar::SlidingWindow<1> window;
#else
cellar::SlidingWindow<-1> window;
#endif
