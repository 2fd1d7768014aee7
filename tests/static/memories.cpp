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
    Result<void> copy_prefix(Sequence, Sequence, Position);
    Result<void> remove(Sequence, Position, Position);
    Position next(Sequence) const;
    bool can_resume(Sequence, Position) const;
    Position resumable_prefix(Sequence, Position) const;
    void fence();
    std::int64_t bytes() const;
    int layers() const;
    std::int32_t sequences() const;

    // The first phase of each operation returns the operation itself, wrapped.
    template <class Operation>
    struct Prepared {};
    Result<Prepared<op::Begin>> prepare(op::Begin);
    Result<Prepared<op::CopyPrefix>> prepare(op::CopyPrefix);
    Result<Prepared<op::Remove>> prepare(op::Remove);
    P finish(Prepared<op::Begin>);
    void finish(Prepared<op::CopyPrefix>) noexcept;
    void finish(Prepared<op::Remove>) noexcept;

    struct Snapshot {};
    using Restore = op::Restore<Snapshot>;
    using Offload = op::Offload<Snapshot>;
    using Reload = op::Reload<Snapshot>;
    Result<Snapshot> snapshot(Sequence, Position, Position);
    Result<Prepared<op::Snapshot>> prepare(op::Snapshot);
    Result<Prepared<Restore>> prepare(Restore);
    Result<Prepared<op::Remove>> prepare(op::Rewind);
    Result<Prepared<Offload>> prepare(Offload);
    Result<Prepared<Reload>> prepare(Reload);
    Snapshot finish(Prepared<op::Snapshot>) noexcept;
    void finish(Prepared<Restore>) noexcept;
    void finish(Prepared<Offload>) noexcept;
    void finish(Prepared<Reload>) noexcept;
};
using Complete = MemoryOf<Pass>;

// `Base` without a member does not satisfy the concept.
#define CELLAR_WITHOUT(Base, member, Concept)                                                                          \
    struct Base##_without_##member : Base {                                                                            \
        void member() = delete;                                                                                        \
    };                                                                                                                 \
    static_assert(!Concept<Base##_without_##member>)

// Without the first phase of an operation, or with one that is no `Result`; with a second phase that may fail.
template <class Operation>
struct Unprepared : Complete {
    using Complete::prepare;
    void prepare(Operation) = delete;
};
template <class Operation>
struct Unrefused : Complete {
    using Complete::prepare;
    Prepared<Operation> prepare(Operation);
};
template <class Operation, class Result>
struct Throwing : Complete {
    using Complete::finish;
    Result finish(Prepared<Operation>);
};

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
    void finish(Prepared<op::Begin>);
};
static_assert(TwoPhasePass<DerivedPass> && Memory<OtherPass> && !TwoPhaseMemory<OtherPass>);
static_assert(!TwoPhaseMemory<Unprepared<op::Begin>> && !TwoPhaseMemory<Unrefused<op::Begin>>);
static_assert(!TwoPhaseMemory<Unprepared<op::CopyPrefix>> && !TwoPhaseMemory<Unrefused<op::CopyPrefix>>);
static_assert(!TwoPhaseMemory<Unprepared<op::Remove>> && !TwoPhaseMemory<Unrefused<op::Remove>>);
static_assert(TwoPhaseMemory<Throwing<op::Begin, Pass>> && !TwoPhaseMemory<Throwing<op::CopyPrefix, void>>);
static_assert(!TwoPhaseMemory<Throwing<op::Remove, void>>);
CELLAR_WITHOUT(Complete, prepare, TwoPhaseMemory);
CELLAR_WITHOUT(Complete, finish, TwoPhaseMemory);
CELLAR_WITHOUT(Pass, expect_complete, TwoPhasePass);
CELLAR_WITHOUT(Pass, finish_commit, TwoPhasePass);

CELLAR_WITHOUT(Complete, snapshot, HasSnapshots);
static_assert(!TwoPhaseSnapshots<Unprepared<op::Snapshot>> && !TwoPhaseSnapshots<Unprepared<op::Rewind>>);
static_assert(!TwoPhaseSnapshots<Unprepared<Complete::Restore>> && !TwoPhaseSnapshots<Unprepared<Complete::Offload>>);
static_assert(!TwoPhaseSnapshots<Unprepared<Complete::Reload>> && !TwoPhaseSnapshots<Unrefused<Complete::Offload>>);
static_assert(!TwoPhaseSnapshots<Throwing<op::Snapshot, Complete::Snapshot>>);
static_assert(!TwoPhaseSnapshots<Throwing<Complete::Restore, void>>);
static_assert(!TwoPhaseSnapshots<Throwing<Complete::Offload, void>>);
static_assert(!TwoPhaseSnapshots<Throwing<Complete::Reload, void>>);
struct OtherSnapshot : Complete {
    using Complete::finish;
    void finish(Prepared<op::Snapshot>) noexcept;
};
static_assert(HasSnapshots<OtherSnapshot> && !TwoPhaseSnapshots<OtherSnapshot>);

// What files and transfers need beyond that.
struct Saved : Complete {
    struct Loaded {};
    void save(const Snapshot&, const std::string&, detail::StoredSnapshot&);
    void save_ahead(Sequence, Position, const std::string&, detail::StoredSnapshot&);
    using Complete::prepare;
    detail::Checked<Loaded> prepare(detail::Load);
    using Complete::finish;
    Snapshot finish(Loaded) noexcept;
};
template <class M>
using Alone = Hybrid<Repeat<M>, M>;
static_assert(detail::SavesSnapshots<Saved> && detail::SavesSnapshots<Alone<Saved>>);
static_assert(HasSnapshots<Alone<Complete>> && !detail::SavesSnapshots<Alone<Complete>>);
CELLAR_WITHOUT(Saved, snapshot, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, save, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, save_ahead, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, prepare, detail::SavesSnapshots);
CELLAR_WITHOUT(Saved, finish, detail::SavesSnapshots);

} // namespace static_memories
