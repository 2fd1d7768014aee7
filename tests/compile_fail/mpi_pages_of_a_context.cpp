// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of a rank has gaps, so it has no pages.
// error: which page tables cannot have, expected mpi::attend
#include <cellar/cellar.hpp>
#include <cellar/mpi/attend.hpp>
#include <cellar/mpi/context_parallel.hpp>

#include <vector>

void compute(cellar::mpi::ContextParallel<cellar::Cache<>>& memory, const std::vector<float>& q,
             std::vector<float>& out) {
    auto pass = memory.begin(cellar::Sequence{0}, 1).value();
#ifdef CORRECTED
    static_cast<void>(cellar::mpi::attend(pass, 0, q, out));
#else
    memory.form_pages(cellar::Sequence{0}, 16);
#endif
}
