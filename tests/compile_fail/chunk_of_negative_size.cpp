// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: ChunkedAttention: the size counts positions
#include <cellar/window/chunked_attention.hpp>

#ifdef CORRECTED
cellar::ChunkedAttention<1> window;
#else
cellar::ChunkedAttention<-1> window;
#endif
