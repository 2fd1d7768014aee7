// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A memory without two phases cannot wait for the other members of a hybrid.
// error: every member of a hybrid satisfies TwoPhaseMemory
// error: prepares<
// error: op::Begin>
#include <cellar/cellar.hpp>

/// A Memory that hides its cache, and with it the two phases.
class WithoutPhases {
public:
    using Pass = cellar::PassOf<cellar::Cache<>>;

    cellar::Result<Pass> begin(const cellar::Batch& batch) { return cache_.begin(batch); }
    Pass reserve(std::int32_t tokens) { return cache_.reserve(tokens); }
    cellar::Result<void> copy_prefix(cellar::Sequence from, cellar::Sequence to, cellar::Position end) {
        return cache_.copy_prefix(from, to, end);
    }
    cellar::Position next(cellar::Sequence s) const { return cache_.next(s); }
    bool can_resume(cellar::Sequence s, cellar::Position p) const { return cache_.can_resume(s, p); }
    cellar::Position resumable_prefix(cellar::Sequence s, cellar::Position p) const {
        return cache_.resumable_prefix(s, p);
    }
    cellar::Result<void> remove(cellar::Sequence s, cellar::Position begin, cellar::Position end) {
        return cache_.remove(s, begin, end);
    }
    void fence() { cache_.fence(); }
    std::int64_t bytes() const { return cache_.bytes(); }
    int layers() const { return cache_.layers(); }
    std::int32_t sequences() const { return cache_.sequences(); }

private:
    cellar::Cache<> cache_;
};
static_assert(cellar::Memory<WithoutPhases>);

#ifdef CORRECTED
using Member = cellar::Cache<>;
#else
using Member = WithoutPhases;
#endif
using Memory = cellar::Hybrid<cellar::Repeat<Member>, Member>;

static_assert(sizeof(Memory) > 0);
