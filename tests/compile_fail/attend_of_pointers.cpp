// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The heads follow from the extents or the size of the queries, which a pointer does not have.
// error: attend: expected queries and results as views with strides or as contiguous ranges
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

void attend(cellar::Cache<>& cache, const float* q, float* out) {
    auto pass = cache.reserve(1);
#ifdef CORRECTED
    cellar::attend(pass, 0, cellar::contiguous_view(q, 1, 1, 4), cellar::contiguous_view(out, 1, 1, 4));
#else
    cellar::attend(pass, 0, q, out);
#endif
}
