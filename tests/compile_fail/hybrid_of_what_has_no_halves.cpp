// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A memory that does a verb at once cannot wait for the other members.
// error: a member of a hybrid is a Memory: a Cache, a RecurrentState,
#include <cellar/cellar.hpp>

/// A Memory by all that it has, which hides a cache.
class Own {
public:
    using Pass = cellar::PassOf<cellar::Cache<>>;

    cellar::Result<Pass> begin(const cellar::Batch& batch) { return cache_.begin(batch); }
    Pass reserve(std::int32_t tokens) { return cache_.reserve(tokens); }
    cellar::Done copy_prefix(cellar::Sequence from, cellar::Sequence to, std::int32_t n) {
        return cache_.copy_prefix(from, to, n);
    }
    bool can_resume(cellar::Sequence s, cellar::Position p) const { return cache_.can_resume(s, p); }
    cellar::Position resumable_prefix(cellar::Sequence s, cellar::Position p) const {
        return cache_.resumable_prefix(s, p);
    }
    cellar::Result<void> remove(cellar::Sequence s, cellar::Position begin, cellar::Position end) {
        return cache_.remove(s, begin, end);
    }
    void fence() { cache_.fence(); }
    std::int64_t bytes() const { return cache_.bytes(); }
    const cellar::Shape& shape() const { return cache_.shape(); }
    const cellar::Limits& limits() const { return cache_.limits(); }

private:
    cellar::Cache<> cache_;
};
static_assert(cellar::Memory<Own>);

#ifdef CORRECTED
using Member = cellar::Cache<>;
#else
using Member = Own;
#endif
using Memory = cellar::Hybrid<cellar::Repeat<Member>, Member>;

static_assert(sizeof(Memory) > 0);
