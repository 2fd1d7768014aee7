// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>

#include <vector>

void f(cellar::CachePass<cellar::Cache<cellar::StandardV<float>>>& pass, const std::vector<float>& q) {
#ifdef CORRECTED
    std::vector<float> out(q.size());
    cellar::attend(pass, 0, q, out);
#else
    cellar::attend(pass, 0, q, std::vector<float>(q.size())); // error: the results go to a temporary container
#endif
}
