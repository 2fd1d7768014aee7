// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: attend: expected the pass of a Cache or an EncoderMemory
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <vector>

void attend(cellar::Cache<>& cache, const std::vector<float>& q, std::vector<float>& out) {
    auto pass = cache.begin(cellar::BatchBuilder{cellar::Sequence{0}, cellar::Position{0}});
#ifdef CORRECTED
    cellar::attend(*pass, 0, q, out);
#else
    cellar::attend(pass, 0, q, out);
#endif
}
