// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: the results go to a temporary container
#include <cellar/cellar.hpp>
#include <cellar/mpi/attend.hpp>

#include <vector>

bool attended(cellar::mpi::ContextPass<cellar::Cache<cellar::StandardV<float>>>& pass, const std::vector<float>& q) {
#ifdef CORRECTED
    std::vector<float> out(q.size());
    return cellar::mpi::attend(pass, 0, q, out).has_value();
#else
    return cellar::mpi::attend(pass, 0, q, std::vector<float>(q.size())).has_value();
#endif
}
