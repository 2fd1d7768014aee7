// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random requests in random memories: what holds in every step, and that every answer is the one that the request gets
// when it is alone.
#include "service.hpp"
#include <cellar/cache/audit.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <span>
#include <utility>

namespace test_random {

using namespace cellar;
using namespace serve_test;

namespace {

constexpr std::int32_t context = 30;

/// Any of the candidates: a policy that makes no sense.
struct Anyone {
    std::mt19937* random;

    std::size_t operator()(std::span<const Candidate> candidates, const Refusal& refusal) const {
        REQUIRE(refusal == Reason::full);
        REQUIRE(std::is_sorted(candidates.begin(), candidates.end(),
                               [](const Candidate& a, const Candidate& b) { return a.request < b.request; }));
        return std::uniform_int_distribution<std::size_t>{0, candidates.size() - 1}(*random);
    }
};

/// Requests that arrive at random, and what they must get.
template <class S, class M>
class Trial {
public:
    Trial(S& scheduler, M& memory, const SchedulerLimits& limits, std::mt19937& random)
        : scheduler_{scheduler}, memory_{memory}, limits_{limits}, random_{random} {}

    void run(int requests) {
        int longest = 0; // steps, if each computes one token of the oldest request and nothing else
        int steps = 0;
        while (requests > 0 || !scheduler_.empty()) {
            for (; requests > 0 && below(4) == 0; --requests) longest += submit();
            if (below(30) == 0) end_one();
            if (below(10) == 0) static_cast<void>(scheduler_.begin().has_value()); // is dropped
            if (take_step()) ++steps;
            REQUIRE(steps <= longest);
        }
        for (const auto& [id, text] : expected_) REQUIRE(answers_.texts.at(id) == text);
        if (limits_.admit == Admit::with_promise) CHECK(scheduler_.preemptions() == 0);
    }

private:
    int below(int n) { return std::uniform_int_distribution<int>{0, n - 1}(random_); }

    /// Returns how many tokens it is.
    int submit() {
        const int shared = 3 * below(4);
        const List prompt = counted(100 * below(2), shared) + counted(below(50), 1 + below(9));
        const int answer = 1 + below(context - static_cast<int>(prompt.size()) + 1); // the last one is not computed
        const List keep{shared, static_cast<int>(prompt.size())};
        const RequestId id = scheduler_.submit({.tokens = prompt, .answer = answer, .keep = keep}).value();
        expected_[id] = answered(prompt, answer);
        keep_[id] = keep;
        return static_cast<int>(expected_[id].size());
    }

    /// A user leaves.
    void end_one() {
        if (expected_.empty()) return;
        auto one = std::next(expected_.begin(), below(static_cast<int>(expected_.size())));
        if (!scheduler_.contains(one->first)) return;
        const List tokens = scheduler_.finish(one->first);
        REQUIRE(tokens == first(static_cast<int>(tokens.size()), one->second));
        expected_.erase(one);
    }

    bool take_step() {
        auto pass = scheduler_.begin();
        REQUIRE(pass.has_value()); // the memory holds each request alone
        const int tokens = check_step();
        REQUIRE(pass->tokens() == tokens);
        compute(scheduler_, memory_, *pass);
        draw(scheduler_, memory_, answers_);
        return tokens > 0;
    }

    /// Returns how many tokens are computed.
    int check_step() {
        REQUIRE(scheduler_.running() <= limits_.sequences);
        int tokens = 0;
        bool has_oldest = false;
        bool has_prompt = false;
        bool all_go_on = true; // no part is shorter for want of tokens in the batch
        for (const Part& part : scheduler_.parts()) {
            const int size = static_cast<int>(part.tokens.size());
            REQUIRE(size > 0);
            REQUIRE(part.row == tokens);
            tokens += size;
            has_oldest = has_oldest || part.request == scheduler_.oldest();
            const bool is_prompt = size > 1 || !part.at_end;
            REQUIRE((is_prompt || !has_prompt)); // next tokens come first
            has_prompt = is_prompt;
            const auto all = scheduler_.tokens(part.request);
            const auto end = static_cast<std::int32_t>(part.tokens.data() - all.data()) + size;
            REQUIRE(part.at_end == (end == std::ssize(all)));
            const List& keep = keep_.at(part.request);
            all_go_on = all_go_on && (part.at_end || std::find(keep.begin(), keep.end(), end) != keep.end());
        }
        REQUIRE(tokens <= limits_.batch);
        REQUIRE(has_oldest == !scheduler_.empty());
        if (tokens < limits_.batch) {
            REQUIRE(all_go_on);
            REQUIRE(static_cast<std::int32_t>(scheduler_.parts().size()) == scheduler_.running());
        }
        return tokens;
    }
    S& scheduler_;
    M& memory_;
    SchedulerLimits limits_;
    std::mt19937& random_;
    std::map<RequestId, List> expected_ = {};
    std::map<RequestId, List> keep_ = {};
    Answers answers_ = {};
};

/// Serves requests in `memory`, as `requests` presents it.
template <class M, class Requests>
void serve_in(M& memory, Requests requests, Admit admit, std::mt19937& random) {
    const SchedulerLimits limits{.sequences = 4, .batch = 8, .context = context, .admit = admit, .spare = 1};
    Scheduler scheduler{std::move(requests), limits, Anyone{&random}};
    Trial{scheduler, memory, limits, random}.run(25);
    for (std::int32_t s = 0; s < memory.sequences(); ++s) CHECK(memory.next(Sequence{s}) == Position{0});
}

template <class M>
void check_empty(const M& memory, std::int32_t cells) {
    CHECK(memory.free_cells() == cells);
    CHECK(audit(memory) == "");
}

/// A cache, and one that has the newest four tokens of each sequence, too.
using WithNewest = Hybrid<WithResidual, toy::Full, toy::Sliding>;

WithNewest with_newest(std::int32_t cells) {
    return WithNewest{2, full(cells),
                      toy::Sliding{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                                   {.sequences = 4, .capacity = 100, .cells = 100, .batch = 8},
                                   SlidingWindow<4>{{.retention = 6}}}};
}

constexpr Admit every_admit[] = {Admit::when_it_fits, Admit::with_promise};

/// In a hybrid, with a tree.
template <class M>
void serve_with_tree(M memory, std::int32_t cells, Admit admit, std::mt19937& random) {
    PrefixTree tree{memory, {.offloaded_bytes = 1 << 20}};
    serve_in(memory, TreeMemory{tree}, admit, random);
    CHECK(audit(tree) == "");
    CHECK(tree.statistics().tokens_attached > 0);
    tree.clear();
    check_empty(memory.template member<toy::Full>(), cells);
    check_empty(memory.template member<toy::Sliding>(), memory.template member<toy::Sliding>().cells());
}

} // namespace

TEST_CASE("at random, without a tree: every request gets the answer that it gets alone") {
    for (unsigned seed = 0; seed < 12; ++seed)
        for (const Admit admit : every_admit)
            for (const PutBack put_back : {PutBack::park, PutBack::compute_again}) {
                CAPTURE(seed);
                std::mt19937 random{seed};
                const auto cells = context + static_cast<std::int32_t>(random() % 50);
                toy::Full memory = full(cells);
                serve_in(memory, PlainMemory{memory, put_back}, admit, random);
                check_empty(memory, cells);
            }
}

TEST_CASE("at random, with a tree: every request gets the answer that it gets alone") {
    for (unsigned seed = 0; seed < 12; ++seed)
        for (const Admit admit : every_admit)
            for (const std::int64_t bytes : {0, 400, 1 << 20}) {
                CAPTURE(seed);
                CAPTURE(bytes);
                std::mt19937 random{seed};
                const auto cells = context + static_cast<std::int32_t>(random() % 50);
                toy::Full memory = full(cells);
                PrefixTree tree{memory, {.offloaded_bytes = bytes}};
                serve_in(memory, TreeMemory{tree}, admit, random);
                CHECK(audit(tree) == "");
                CHECK(tree.statistics().tokens_attached > 0);
                tree.clear();
                check_empty(memory, cells);
            }
}

TEST_CASE("at random, in a hybrid of a window, all tokens and a state") {
    for (unsigned seed = 0; seed < 12; ++seed)
        for (const Admit admit : every_admit) {
            CAPTURE(seed);
            std::mt19937 random{seed};
            const auto cells = context + static_cast<std::int32_t>(random() % 50);
            toy::Memory plain = hybrid(4, cells);
            serve_in(plain, PlainMemory{plain}, admit, random);
            check_empty(plain.member<toy::Full>(), cells);
            serve_with_tree(hybrid(6, cells), cells, admit, random);
        }
}

TEST_CASE("at random, in a cache and its residual") {
    for (unsigned seed = 0; seed < 12; ++seed)
        for (const Admit admit : every_admit) {
            CAPTURE(seed);
            std::mt19937 random{seed};
            const auto cells = context + static_cast<std::int32_t>(random() % 50);
            WithNewest plain = with_newest(cells);
            for (const PutBack put_back : {PutBack::park, PutBack::compute_again})
                serve_in(plain, PlainMemory{plain, put_back}, admit, random);
            check_empty(plain.member<toy::Full>(), cells);
            check_empty(plain.member<toy::Sliding>(), plain.member<toy::Sliding>().cells());
            serve_with_tree(with_newest(cells), cells, admit, random);
        }
}

TEST_CASE("at random, in states alone") {
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        std::mt19937 random{seed};
        toy::Recurrent memory = recurrent(3);
        PrefixTree tree{memory};
        serve_in(memory, TreeMemory{tree}, Admit::when_it_fits, random);
        CHECK(audit(tree) == "");
    }
}

} // namespace test_random
