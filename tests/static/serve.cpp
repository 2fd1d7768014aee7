// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>
#include <cellar/serve/plain_memory.hpp>
#include <cellar/serve/scheduler.hpp>
#include <cellar/serve/tree_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

using namespace cellar;
using namespace cellar::serve;

namespace {

struct Sum : StateTensor<1> {};
using Recurrent = RecurrentMemory<States<Sum>>;
using Both = Hybrid<Repeat<Cache<>, Recurrent>, Cache<>, Recurrent>;
using Bookkeeping = Cache<StandardV<float>, FullCausal, DisabledShift, NoData>;

/// The least that a scheduler needs.
struct Least {
    struct kept_type {};
    Result<void> enter(const Admission&, kept_type&) { return {}; }
    Position next(Sequence) const { return Position{0}; }
    void keep(Sequence, std::span<const std::int32_t>, std::uint64_t) {}
    kept_type put_back(Sequence, std::span<const std::int32_t>, std::uint64_t) { return {}; }
    void clear(Sequence) {}
    Result<void> remove(Sequence, Position, Position) { return {}; }
};
struct WithoutEnter : Least {
    void enter() const {}
};
struct WithoutNext : Least {
    void next() const {}
};
struct WithoutKeep : Least {
    void keep() const {}
};
struct KeepsOther : Least {
    int put_back(Sequence, std::span<const std::int32_t>, std::uint64_t) { return 0; }
};
struct WithoutClear : Least {
    void clear() const {}
};
struct WithoutRemove : Least {
    void remove() const {}
};

struct NamesNobody {
    void operator()(std::span<const Candidate>, const Refusal&) const {}
};

} // namespace

static_assert(RequestMemory<PlainMemory<Cache<>>> && RequestMemory<PlainMemory<Recurrent>>);
static_assert(RequestMemory<PlainMemory<Both>> && RequestMemory<PlainMemory<Bookkeeping>>);
static_assert(RequestMemory<TreeMemory<Cache<>>> && RequestMemory<TreeMemory<Recurrent>>);
static_assert(RequestMemory<TreeMemory<Both>> && RequestMemory<TreeMemory<Bookkeeping>>);
static_assert(RequestMemory<Least>);
static_assert(!RequestMemory<int> && !RequestMemory<Cache<>> && !RequestMemory<WithoutEnter>);
static_assert(!RequestMemory<WithoutNext> && !RequestMemory<WithoutKeep> && !RequestMemory<KeepsOther>);
static_assert(!RequestMemory<WithoutClear> && !RequestMemory<WithoutRemove>);

static_assert(VictimPolicy<NewestFirst> && !VictimPolicy<NamesNobody> && !VictimPolicy<int>);

using Plain = Scheduler<PlainMemory<Cache<>>>;
using WithTree = Scheduler<TreeMemory<Cache<>>>;
static_assert(std::is_move_constructible_v<Plain> && std::is_move_assignable_v<Plain>);
static_assert(!std::is_copy_constructible_v<Plain> && !std::is_copy_assignable_v<Plain>);
static_assert(std::is_move_constructible_v<WithTree> && !std::is_copy_constructible_v<WithTree>);
