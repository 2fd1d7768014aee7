// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The keys of a blocked layout have no strides. Those of one head in one block have.
// error: convertible_views
#include <cellar/cellar.hpp>

#include <vector>

void read(const cellar::CachePass<cellar::Cache<cellar::Blocked<cellar::half>>>& pass, std::vector<float>& floats) {
#ifdef CORRECTED
    convert(pass.keys(0).rows(0, 0), cellar::contiguous_view(floats.data(), 64, 128));
#else
    convert(pass.keys(0), cellar::contiguous_view(floats.data(), 64, 1, 128));
#endif
}
