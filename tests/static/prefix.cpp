// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>

#include <type_traits>

using namespace cellar;

namespace {

struct Sum : StateTensor<1> {};
using Recurrent = RecurrentMemory<States<Sum>>;
using Both = Hybrid<Repeat<Cache<>, Recurrent>, Cache<>, Recurrent>;

struct WithoutSnapshot : Cache<> {
    void snapshot() const {}
};
struct WithoutRestore : Cache<> {
    void restore() const {}
};

} // namespace

static_assert(PrefixTreeMemory<Cache<>> && PrefixTreeMemory<Cache<StandardV<half>, SlidingWindow<8>>>);
static_assert(PrefixTreeMemory<Recurrent> && PrefixTreeMemory<Both>);
static_assert(!PrefixTreeMemory<int> && !PrefixTreeMemory<WithoutSnapshot> && !PrefixTreeMemory<WithoutRestore>);

using Tree = PrefixTree<Cache<>>;
static_assert(std::is_nothrow_move_constructible_v<Tree> && std::is_nothrow_move_assignable_v<Tree>);
static_assert(!std::is_copy_constructible_v<Tree> && !std::is_copy_assignable_v<Tree>);
static_assert(std::is_nothrow_move_constructible_v<PrefixPin> && std::is_nothrow_move_assignable_v<PrefixPin>);
static_assert(!std::is_copy_constructible_v<PrefixPin> && !std::is_copy_assignable_v<PrefixPin>);
