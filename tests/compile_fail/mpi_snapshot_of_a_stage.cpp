// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The other stages of a pipeline have no place for a snapshot.
// error: snapshots are not sent down the line
#include <cellar/cellar.hpp>
#include <cellar/mpi/pipeline_stage.hpp>

void keep(cellar::mpi::PipelineStage<cellar::Cache<>>& stage) {
#ifdef CORRECTED
    static_cast<void>(stage.memory().snapshot(cellar::Sequence{0}));
#else
    static_cast<void>(stage.snapshot(cellar::Sequence{0}));
#endif
}
