// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/base/ids.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/version.hpp>
#include <cellar/base/view.hpp>

#include <memory>
#include <type_traits>
#include <utility>

using namespace cellar;

static_assert(CELLAR_VERSION == CELLAR_VERSION_MAJOR * 10000 + CELLAR_VERSION_MINOR * 100 + CELLAR_VERSION_PATCH);

// Positions and sequences do not convert to each other, and numbers do not convert to them.
static_assert(!std::is_convertible_v<Position, Sequence>);
static_assert(!std::is_convertible_v<Sequence, Position>);
static_assert(!std::is_convertible_v<int, Position>);
static_assert(!std::is_convertible_v<int, Sequence>);
static_assert(Position{3} < Position{4} && Position{3} + 1 == Position{4});
static_assert(Position{7} - Position{3} == 4);

// Plans and views can be copied to devices bytewise.
static_assert(std::is_trivially_copyable_v<Move> && std::is_standard_layout_v<Move>);
static_assert(std::is_trivially_copyable_v<KeyRotation> && std::is_standard_layout_v<KeyRotation>);
static_assert(std::is_trivially_copyable_v<StridedView<float, 3>>);
static_assert(std::is_standard_layout_v<StridedView<float, 3>>);

// A view converts to a constant view, but not back.
static_assert(std::is_convertible_v<StridedView<float, 2>, StridedView<const float, 2>>);
static_assert(!std::is_convertible_v<StridedView<const float, 2>, StridedView<float, 2>>);
static_assert(!std::is_convertible_v<StridedView<float, 2>, StridedView<float, 3>>);
static_assert(contiguous_view(static_cast<float*>(nullptr), 2, 3, 4).stride(0) == 12);
static_assert(contiguous_view(static_cast<float*>(nullptr), 2, 3, 4).is_contiguous());

// A result may hold a move-only type, and does not convert to bool implicitly.
static_assert(std::is_move_constructible_v<Result<std::unique_ptr<int>>>);
static_assert(!std::is_convertible_v<Result<int>, bool>);
static_assert(!std::is_convertible_v<Result<void>, bool>);
static_assert(std::is_convertible_v<Refusal, Result<int>>);
static_assert(std::is_convertible_v<Refusal, Result<void>>);
static_assert(std::is_same_v<Result<int>::value_type, int> && std::is_same_v<Result<int>::error_type, Refusal>);
static_assert(std::is_void_v<Result<void>::value_type> && std::is_same_v<Result<void, int>::error_type, int>);

// The value has the constness of its result, and can be moved out of a temporary one.
static_assert(std::is_same_v<decltype(std::declval<Result<int>&>().value()), int&>);
static_assert(std::is_same_v<decltype(*std::declval<const Result<int>&>()), const int&>);
static_assert(std::is_same_v<decltype(std::declval<Result<int>>().value()), int&&>);
static_assert(std::is_same_v<decltype(*std::declval<Result<int>>()), int&&>);
