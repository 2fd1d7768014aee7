// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of kept positions, against a set of positions and the definitions.
#include <cellar/mpi/detail/kept_positions.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/resume.hpp>
#include <cellar/window/sliding_window.hpp>

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace test_context_positions {

using namespace cellar;

namespace {

/// A sequence as the set of its positions, and the next one, wherever the sequence was cut.
struct Plain {
    std::set<int> positions;
    int end = 0;

    template <class Window>
    bool can_resume(const Window& window, int p) const {
        for (int q = 0; q < p; ++q)
            if ((q < window.sinks() || q >= window.oldest_visible(Position{p}).value) && !positions.contains(q))
                return false;
        return true;
    }
    template <class Window>
    void append(const Window& window, int n) {
        for (int i = 0; i < n; ++i) positions.insert(end++);
        std::erase_if(positions,
                      [&](int p) { return p >= window.sinks() && p < window.oldest_kept(Position{end - 1}).value; });
    }
    void remove(int begin, int behind) {
        std::set<int> left;
        for (const int p : positions)
            if (p < begin || p >= behind) left.insert(p < begin ? p : p - (behind - begin));
        positions = left;
        end = end <= begin ? end : end <= behind ? begin : end - (behind - begin);
    }
};

template <class Window>
void compare(const Window& given, unsigned seed) {
    const Window window = given.resolved(2, 1000);
    std::mt19937 random{seed};
    const auto draw = [&](int from, int to) { return std::uniform_int_distribution{from, to}(random); };
    detail::KeptPositions kept;
    Plain plain;
    int passes = 0;
    for (int step = 0; step < 3000; ++step) {
        const int kind = draw(0, 5);
        const int end = plain.end;
        if (kind < 3 && plain.can_resume(window, end)) {
            const int n = draw(1, 9);
            plain.append(window, n);
            kept.extend(Position{end + n});
            kept.forget(Position{window.sinks()}, window.oldest_kept(Position{end + n - 1}));
            ++passes;
        } else if (kind < 5) {
            const int begin = draw(0, 3) == 0 ? draw(0, 4) : draw(0, end + 2);
            const int behind = kind == 3 ? INT32_MAX : begin + draw(0, 12);
            plain.remove(begin, behind);
            kept.remove(Position{begin}, Position{behind});
        } else if (end > 60) {
            plain.remove(0, end);
            kept.remove(Position{0}, to_end);
        }
        REQUIRE(kept.end().value == plain.end);
        int nearest = 0;
        for (int p = 0; p <= plain.end + 3; ++p) {
            const bool can = plain.can_resume(window, p);
            nearest = can ? p : nearest;
            REQUIRE(detail::can_resume_with(window, kept, Position{p}) == can);
            REQUIRE(detail::resumable_prefix_with(window, kept, Position{p}).value == nearest);
        }
    }
    CHECK(passes > 200);
}

} // namespace

TEST_CASE("the table of positions agrees with a set of positions") {
    compare(FullCausal{}, 1);
    compare(SlidingWindow<>{7, {.sinks = 3}}, 2);
    compare(SlidingWindow<>{5, {.retention = 11, .sinks = 1}}, 3);
    compare(SlidingWindow<>{1}, 4);
    compare(ChunkedAttention<>{6, {.sinks = 2}}, 5);
    compare(ChunkedAttention<>{4}, 6);
}

} // namespace test_context_positions
