// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <type_traits>

using namespace cellar;

// The memory has one owner: moving cannot fail, and copying is not possible.
static_assert(std::is_nothrow_move_constructible_v<Cache<>>);
static_assert(std::is_nothrow_move_assignable_v<Cache<>>);
static_assert(!std::is_copy_constructible_v<Cache<>> && !std::is_copy_assignable_v<Cache<>>);

using PassOfCache = decltype(std::declval<Cache<>&>().reserve(1));
static_assert(std::is_nothrow_move_constructible_v<PassOfCache>);
static_assert(!std::is_copy_constructible_v<PassOfCache>);
static_assert(!std::is_default_constructible_v<PassOfCache>);

static_assert(std::is_same_v<Cache<>, Cache<StandardV<float>, FullCausal, DisabledShift, HostBackend>>);

// Policies without defaults must be given.
using Sliding = Cache<StandardV<half>, SlidingWindow<>, RopeShift<>, EigenBackend>;
static_assert(std::is_constructible_v<Cache<>, CacheShape, CacheLimits>);
static_assert(std::is_constructible_v<Sliding, CacheShape, CacheLimits, SlidingWindow<>, RopeShift<>>);

// Views have the stored elements.
static_assert(std::is_same_v<decltype(std::declval<PassOfCache&>().keys(0)), StridedView<const float, 3>>);
static_assert(std::is_same_v<decltype(std::declval<PassOfCache&>().mask<half>()), StridedView<const half, 2>>);
