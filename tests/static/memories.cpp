// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A memory that has what the concepts of memories name, and one without each of it. Also a source of test_memory,
// because scripts/mutate needs a program.
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace static_memories {

using namespace cellar;

struct Pass {
    Pass(Pass&&) noexcept;
    std::int32_t tokens() const;
    template <class F>
    void visit(int layer, F&& f);
    void commit();
    void drop();

    void expect_complete() const;
    void finish_commit() noexcept;
};

template <class P>
struct MemoryOf {
    MemoryOf(MemoryOf&&) noexcept;
    MemoryOf& operator=(MemoryOf&&) noexcept;
    Result<P> begin(const Batch&);
    P reserve(std::int32_t);
    Result<void> copy_prefix(Sequence, Sequence, std::int32_t);
    Result<void> remove(Sequence, Position, Position);
    Position next(Sequence) const;
    bool can_resume(Sequence, Position) const;
    Position resumable_prefix(Sequence, Position) const;
    void fence();
    std::int64_t bytes() const;
    int layers() const;
    std::int32_t sequences() const;

    // What the first phase of each operation returns.
    struct Begin {};
    struct Copy {};
    struct Removal {};
    Result<Begin> prepare_begin(const Batch&);
    Result<Copy> prepare_copy_prefix(Sequence, Sequence, std::int32_t);
    Result<Removal> prepare_remove(Sequence, Position, Position);
    P finish(Begin);
    void finish(Copy) noexcept;
    void finish(Removal) noexcept;

    struct Snapshot {};
    struct NewSnapshot {};
    struct Restoration {};
    struct PageOut {};
    struct PageIn {};
    Result<Snapshot> snapshot(Sequence, Position, Position);
    Result<NewSnapshot> prepare_snapshot(Sequence, Position, Position);
    Result<Restoration> prepare_restore(Sequence, const Snapshot&, Position);
    Result<Removal> prepare_rewind(Sequence, Position);
    PageOut prepare_page_out(Snapshot&, PageTo);
    Result<PageIn> prepare_page_in(Snapshot&);
    Snapshot finish(NewSnapshot) noexcept;
    void finish(Restoration) noexcept;
    void finish(PageOut) noexcept;
    void finish(PageIn) noexcept;
};
using Complete = MemoryOf<Pass>;

// `Base` without a member does not satisfy the concept.
#define CELLAR_WITHOUT(Base, member, Concept)                                                                          \
    struct Base##_without_##member : Base {                                                                            \
        void member() = delete;                                                                                        \
    };                                                                                                                 \
    static_assert(!Concept<Base##_without_##member>)

// The second phase of an operation must not fail.
#define CELLAR_THROWS(Operation, Result, Concept)                                                                      \
    struct Throws_##Operation : Complete {                                                                             \
        using Complete::finish;                                                                                        \
        Result finish(Operation);                                                                                      \
    };                                                                                                                 \
    static_assert(!Concept<Throws_##Operation>)

struct DerivedPass : Pass {};
struct CopiedPass : Pass {
    CopiedPass(const CopiedPass&);
    CopiedPass& operator=(const CopiedPass&);
};
struct FixedPass : Pass {
    FixedPass(FixedPass&&) = delete;
};
static_assert(MemoryPass<Pass> && MemoryPass<DerivedPass> && !MemoryPass<CopiedPass> && !MemoryPass<FixedPass>);
CELLAR_WITHOUT(Pass, tokens, MemoryPass);
CELLAR_WITHOUT(Pass, visit, MemoryPass);
CELLAR_WITHOUT(Pass, commit, MemoryPass);
CELLAR_WITHOUT(Pass, drop, MemoryPass);

struct Derived : Complete {};
struct Copied : Complete {
    Copied(const Copied&);
    Copied& operator=(const Copied&);
};
struct Fixed : Complete {
    Fixed(Fixed&&) = delete;
};
struct OtherReserve : Complete {
    DerivedPass reserve(std::int32_t);
};
static_assert(TwoPhaseSnapshots<Complete> && TwoPhaseSnapshots<Derived>);
static_assert(!Memory<Copied> && !Memory<Fixed> && !Memory<OtherReserve> && !Memory<MemoryOf<Pass_without_drop>>);
CELLAR_WITHOUT(Complete, begin, Memory);
CELLAR_WITHOUT(Complete, reserve, Memory);
CELLAR_WITHOUT(Complete, copy_prefix, Memory);
CELLAR_WITHOUT(Complete, remove, Memory);
CELLAR_WITHOUT(Complete, next, Memory);
CELLAR_WITHOUT(Complete, can_resume, Memory);
CELLAR_WITHOUT(Complete, resumable_prefix, Memory);
CELLAR_WITHOUT(Complete, fence, Memory);
CELLAR_WITHOUT(Complete, bytes, Memory);
CELLAR_WITHOUT(Complete, layers, Memory);
CELLAR_WITHOUT(Complete, sequences, Memory);

template <class P>
concept TwoPhasePass = TwoPhaseMemory<MemoryOf<P>>;
struct OtherPass : Complete {
    using Complete::finish;
    void finish(Begin);
};
static_assert(TwoPhasePass<DerivedPass> && Memory<OtherPass> && !TwoPhaseMemory<OtherPass>);
CELLAR_WITHOUT(Complete, prepare_begin, TwoPhaseMemory);
CELLAR_WITHOUT(Complete, prepare_copy_prefix, TwoPhaseMemory);
CELLAR_WITHOUT(Complete, prepare_remove, TwoPhaseMemory);
CELLAR_WITHOUT(Complete, finish, TwoPhaseMemory);
CELLAR_THROWS(Copy, void, TwoPhaseMemory);
CELLAR_THROWS(Removal, void, TwoPhaseMemory);
CELLAR_WITHOUT(Pass, expect_complete, TwoPhasePass);
CELLAR_WITHOUT(Pass, finish_commit, TwoPhasePass);

CELLAR_WITHOUT(Complete, snapshot, HasSnapshots);
CELLAR_WITHOUT(Complete, prepare_snapshot, TwoPhaseSnapshots);
CELLAR_WITHOUT(Complete, prepare_restore, TwoPhaseSnapshots);
CELLAR_WITHOUT(Complete, prepare_rewind, TwoPhaseSnapshots);
CELLAR_WITHOUT(Complete, prepare_page_out, TwoPhaseSnapshots);
CELLAR_WITHOUT(Complete, prepare_page_in, TwoPhaseSnapshots);
CELLAR_THROWS(NewSnapshot, Snapshot, TwoPhaseSnapshots);
CELLAR_THROWS(Restoration, void, TwoPhaseSnapshots);
CELLAR_THROWS(PageOut, void, TwoPhaseSnapshots);
CELLAR_THROWS(PageIn, void, TwoPhaseSnapshots);

// What files and transfers need beyond that.
struct Saved : Complete {
    struct Load {};
    void save(const Snapshot&, const std::string&, detail::StoredSnapshot&);
    void save_ahead(Sequence, Position, const std::string&, detail::StoredSnapshot&);
    detail::LoadResult<Load> prepare_load(detail::StoredSource&, const std::string&, std::vector<detail::StoredArray>&);
    using Complete::finish;
    Snapshot finish(Load) noexcept;
};
template <class M>
using Alone = Hybrid<Repeat<M>, M>;
static_assert(detail::SavesSnapshots<Saved> && detail::SavesSnapshots<Alone<Saved>>);
static_assert(HasSnapshots<Alone<Complete>> && !detail::SavesSnapshots<Alone<Complete>>);
CELLAR_WITHOUT(Saved, snapshot, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, save, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, save_ahead, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, prepare_load, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, finish, detail::SavesSnapshots);

} // namespace static_memories
