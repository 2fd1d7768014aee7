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
struct WithoutAnswerToCopyPrefix : Cache<> {
    void copy_prefix(Sequence, Sequence, std::int32_t) {}
};

} // namespace

static_assert(StateTag<Conv> && StateTag<Ssm> && !StateTag<Nothing> && !StateTag<int>);

// One owner of the memory.
static_assert(std::is_nothrow_move_constructible_v<Mamba> && std::is_nothrow_move_assignable_v<Mamba>);
static_assert(!std::is_copy_constructible_v<Mamba> && !std::is_copy_assignable_v<Mamba>);
static_assert(std::is_nothrow_move_constructible_v<MambaPass> && !std::is_copy_constructible_v<MambaPass>);

static_assert(std::is_same_v<Mamba, RecurrentMemory<States<Conv, Ssm>, HostBackend>>);

// The views have the tag's element, and one extent more than one sequence's tensor.
using Given = const MicroBatch&;
static_assert(
    std::is_same_v<decltype(std::declval<MambaPass&>().get<Conv>(0, std::declval<Given>())), StridedView<float, 3>>);
static_assert(std::is_same_v<decltype(std::declval<MambaPass&>().slots<Ssm>(0)), StridedView<bfloat16, 4>>);
static_assert(
    std::is_same_v<decltype(std::declval<const Mamba&>().view<Ssm>(0, StateHandle{})), StridedView<const bfloat16, 3>>);

// Sizes are known before there is a memory.
static_assert(Mamba::bytes_per_sequence(StateShape{2, {{3, 5}, {2, 2, 2}}}) == 2 * (64 + 16));

// One concept for all memories.
static_assert(Memory<Cache<>> && Memory<Mamba> && Memory<RecurrentMemory<States<Conv>, EigenBackend>>);
static_assert(!Memory<int> && !Memory<WithoutRemove> && !Memory<WithoutResumablePrefix>);

static_assert(!Memory<WithoutAnswerToCopyPrefix>);

// All of them answer when they share a prefix, also those that never refuse to.
template <class M>
concept answers = requires(M& memory) {
    memory.copy_prefix({0}, {1}, 1) ? 0 : 1;
    memory.copy_prefix({0}, {1}, 1).has_value() ? 0 : 1;
};
static_assert(answers<Cache<>> && answers<Mamba> && answers<EncoderMemory<>>);
static_assert(answers<Hybrid<Repeat<Cache<>, Mamba>, Cache<>, Mamba>>);
