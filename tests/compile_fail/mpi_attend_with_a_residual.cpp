// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: a hybrid has several, also where they are a cache and its residual
#include <cellar/cellar.hpp>
#include <cellar/mpi/attend.hpp>
#include <cellar/mpi/context_parallel.hpp>

#include <vector>

using Coarse = cellar::Cache<cellar::StandardV<cellar::bf16>>;
#ifdef CORRECTED
using Memory = Coarse;
#else
using Memory =
    cellar::Hybrid<cellar::WithResidual, Coarse, cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<>>>;
#endif

void compute(cellar::mpi::ContextParallel<Memory>& memory, const std::vector<float>& q, std::vector<float>& out) {
    auto pass = memory.begin(cellar::Sequence{0}, 1).value();
    static_cast<void>(cellar::mpi::attend(pass, 0, q, out));
}
