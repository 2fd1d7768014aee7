// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: attend: expected threads with the functions of CallingThread
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <vector>

void attend(cellar::Cache<>& cache, const std::vector<float>& q, std::vector<float>& out) {
    auto pass = cache.reserve(1);
#ifdef CORRECTED
    cellar::attend(pass, 0, q, out, {}, cellar::CallingThread{});
#else
    cellar::attend(pass, 0, q, out, {}, 8);
#endif
}
