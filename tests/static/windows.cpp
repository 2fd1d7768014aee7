// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>

#include <type_traits>

using namespace cellar;

static_assert(WindowPolicy<FullCausal>);
static_assert(WindowPolicy<SlidingWindow<4096>>);
static_assert(WindowPolicy<SlidingWindow<>>);
static_assert(WindowPolicy<ChunkedAttention<8192>>);
static_assert(WindowPolicy<ChunkedAttention<>>);

// Windows can be copied to devices bytewise.
static_assert(std::is_trivially_copyable_v<FullCausal>);
static_assert(std::is_trivially_copyable_v<SlidingWindow<>>);
static_assert(std::is_trivially_copyable_v<ChunkedAttention<>>);

// A width is given either at compile time or at run time, and a number never converts to a window implicitly.
static_assert(std::is_default_constructible_v<SlidingWindow<8>>);
static_assert(!std::is_default_constructible_v<SlidingWindow<>>);
static_assert(!std::is_constructible_v<SlidingWindow<8>, int>);
static_assert(std::is_constructible_v<SlidingWindow<>, int>);
static_assert(!std::is_convertible_v<int, SlidingWindow<>>);
static_assert(!std::is_default_constructible_v<ChunkedAttention<>>);
static_assert(!std::is_convertible_v<int, ChunkedAttention<>>);

// The laws hold at compile time.
static_assert(SlidingWindow<4>{}.oldest_visible(Position{9}) == Position{6});
static_assert(SlidingWindow<4>{}.oldest_visible(Position{2}) == Position{0});
static_assert(ChunkedAttention<4>{}.oldest_visible(Position{9}) == Position{8});
static_assert(FullCausal{}.oldest_kept(Position{9}) == Position{0});

namespace {

// A user-defined window, and the same with one part wrong or missing.
struct UserDefined {
    Position oldest_visible(Position p) const { return p; }
    Position oldest_kept(Position p) const { return p; }
    std::int32_t sinks() const { return 0; }
    UserDefined resolved(std::int32_t, std::int32_t) const { return *this; }
    std::int64_t cells(std::int32_t, std::int32_t, std::int32_t) const { return 0; }
};
struct NumberForPosition : UserDefined {
    std::int32_t oldest_visible(Position p) const { return p.value; }
};
struct ChangesItself : UserDefined {
    Position oldest_kept(Position p) { return p; }
};
struct WithoutSinks : UserDefined {
    std::int32_t sinks() const = delete;
};
struct ResolvedToAnotherType : UserDefined {};
struct NotCopyable : UserDefined {
    NotCopyable(NotCopyable&&) = default;
    NotCopyable resolved(std::int32_t, std::int32_t) const;
};

} // namespace

static_assert(WindowPolicy<UserDefined>);
static_assert(!WindowPolicy<NumberForPosition>);
static_assert(!WindowPolicy<ChangesItself>);
static_assert(!WindowPolicy<WithoutSinks>);
static_assert(!WindowPolicy<ResolvedToAnotherType>);
static_assert(!WindowPolicy<NotCopyable>);
static_assert(!WindowPolicy<int>);
