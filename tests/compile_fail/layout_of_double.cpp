// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_unit
// error: double
#include <cellar/layout/layout.hpp>

#ifdef CORRECTED
cellar::StandardV<float> layout;
#else
cellar::StandardV<double> layout;
#endif
