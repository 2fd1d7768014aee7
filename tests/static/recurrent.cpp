// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <type_traits>
#include <utility>

using namespace cellar;

namespace {

struct Conv : StateTensor<2> {};
struct Ssm : StateTensor<3, bfloat16> {};
struct Nothing {};

using Mamba = RecurrentMemory<States<Conv, Ssm>>;
using MambaPass = decltype(std::declval<Mamba&>().reserve(1));

struct WithoutRemove : Mamba {
    void remove() const {}
};
struct WithoutResumablePrefix : Mamba {
    void resumable_prefix() const {}
};
struct CopyPrefixWithoutResult : Cache<> {
    void copy_prefix(Sequence, Sequence, Position) {}
};

} // namespace

static_assert(StateTag<Conv> && StateTag<Ssm> && !StateTag<Nothing> && !StateTag<int>);

// The memory has one owner.
static_assert(std::is_nothrow_move_constructible_v<Mamba> && std::is_nothrow_move_assignable_v<Mamba>);
static_assert(!std::is_copy_constructible_v<Mamba> && !std::is_copy_assignable_v<Mamba>);
static_assert(std::is_nothrow_move_constructible_v<MambaPass> && !std::is_copy_constructible_v<MambaPass>);

static_assert(std::is_same_v<Mamba, RecurrentMemory<States<Conv, Ssm>, HostBackend>>);

// Views have the tag's element. Those of a pass have one extent more than the tensor of one sequence.
using MicroBatchRef = const MicroBatch&;
static_assert(std::is_same_v<decltype(std::declval<MambaPass&>().get<Conv>(0, std::declval<MicroBatchRef>())),
                             StridedView<float, 3>>);
static_assert(std::is_same_v<decltype(std::declval<MambaPass&>().slots<Ssm>(0)), StridedView<bfloat16, 4>>);
static_assert(
    std::is_same_v<decltype(std::declval<const Mamba&>().view<Ssm>(0, StateHandle{})), StridedView<const bfloat16, 3>>);

// Sizes are known before a memory exists.
static_assert(Mamba::bytes_per_sequence(StateShape{2, {{3, 5}, {2, 2, 2}}}) == 2 * (64 + 16));

// All memories satisfy one concept.
static_assert(Memory<Cache<>> && Memory<Mamba> && Memory<RecurrentMemory<States<Conv>, EigenBackend>>);
static_assert(!Memory<int> && !Memory<WithoutRemove> && !Memory<WithoutResumablePrefix>);

static_assert(!Memory<CopyPrefixWithoutResult>);

// `copy_prefix` of every memory returns a result, even if it never refuses.
template <class M>
concept returns_result = requires(M& memory) {
    memory.copy_prefix(Sequence{0}, Sequence{1}, Position{1}) ? 0 : 1;
    memory.copy_prefix(Sequence{0}, Sequence{1}, Position{1}).has_value() ? 0 : 1;
};
static_assert(returns_result<Cache<>> && returns_result<Mamba> && returns_result<EncoderMemory<>>);
static_assert(returns_result<Hybrid<Repeat<Cache<>, Mamba>, Cache<>, Mamba>>);
