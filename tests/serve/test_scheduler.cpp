// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a scheduler plans, whom it admits, and whom it puts back.
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "service.hpp"
#include <cellar/cache/audit.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_scheduler {

using namespace cellar;
using namespace serve_test;

namespace {

/// Each part as "request: tokens from row", with "!" if it ends its request's tokens.
template <class S>
std::string parts(const S& scheduler) {
    std::string all;
    for (const Part& part : scheduler.parts())
        all += (all.empty() ? "" : ", ") + std::to_string(part.request.value) + ": "
               + std::to_string(part.tokens.size()) + " from " + std::to_string(part.row) + (part.at_end ? "!" : "");
    return all;
}

/// What can be observed of a scheduler and of its memory.
template <class S>
std::string portrait(const S& scheduler, toy::Full& memory) {
    std::string all = toy::member_portrait(memory) + "\n" + std::to_string(scheduler.running()) + " run, "
                      + std::to_string(scheduler.waiting()) + " wait, free " + std::to_string(memory.free_cells());
    for (std::int64_t id = 0; id < 10; ++id) {
        if (!scheduler.contains(RequestId{id})) continue;
        all += "\n" + std::to_string(id) + ":";
        for (const std::int32_t token : scheduler.tokens(RequestId{id})) all += " " + std::to_string(token);
    }
    return all;
}

/// Chooses the candidate that it is told to, and notes all.
struct Chosen {
    std::vector<std::string>* seen;
    std::size_t index;

    std::size_t operator()(std::span<const Candidate> candidates, const Refusal& refusal) const {
        std::string all = std::to_string(refusal.needed - refusal.available) + " lacking:";
        for (const Candidate& c : candidates)
            all += " " + std::to_string(c.request.value) + " has " + std::to_string(c.computed);
        seen->push_back(all);
        return index;
    }
};

} // namespace

TEST_CASE("a step has next tokens first, then pieces of prompts, in the order of submission") {
    toy::Full memory = full(100);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8}};
    CHECK(scheduler.empty());
    const List a = counted(10, 3);
    const List b = counted(20, 12);
    REQUIRE(scheduler.submit({.tokens = a, .answer = 2}).value() == RequestId{0});
    REQUIRE(scheduler.submit({.tokens = b, .answer = 2}).value() == RequestId{1});
    CHECK(scheduler.oldest() == RequestId{0});
    Answers answers;
    REQUIRE(step(scheduler, memory, answers));
    CHECK(parts(scheduler) == "0: 3 from 0!, 1: 5 from 3");
    CHECK(scheduler.running() == 2);
    REQUIRE(scheduler.submit({.tokens = counted(30, 2), .answer = 1}));
    REQUIRE(step(scheduler, memory, answers));
    CHECK(parts(scheduler) == "0: 1 from 0!, 1: 7 from 1!");
    CHECK_FALSE(scheduler.contains(RequestId{0}));
    CHECK(answers.texts[RequestId{0}] == answered(a, 2));
    REQUIRE(step(scheduler, memory, answers));
    CHECK(parts(scheduler) == "1: 1 from 0!, 2: 2 from 1!");
    CHECK(scheduler.empty());
    CHECK_FALSE(scheduler.oldest().has_value());
    CHECK(answers.texts[RequestId{1}] == answered(b, 2));
    CHECK(memory.free_cells() == 100);
}

TEST_CASE("no more requests run than a step has tokens") {
    toy::Full memory = full(100);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 2}};
    for (int i = 0; i < 4; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 3), .answer = 3}));
    REQUIRE(scheduler.begin());
    CHECK(parts(scheduler) == "0: 2 from 0");
    CHECK(scheduler.running() == 2);
    CHECK(serve_all(scheduler, memory).texts.size() == 4);
}

TEST_CASE("a step ends where others go on, and they begin there") {
    toy::Recurrent memory = recurrent(8);
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 2, .batch = 8}};
    const List prompt = counted(10, 12);
    REQUIRE(scheduler.submit({.tokens = prompt + List{1}, .answer = 1, .keep = {12, 5}}));
    Answers answers;
    for (const char* step_of_prompt : {"0: 5 from 0", "0: 7 from 0", "0: 1 from 0!"}) {
        REQUIRE(step(scheduler, memory, answers));
        CHECK(parts(scheduler) == step_of_prompt);
    }
    CHECK(tree.match(first(11, prompt)).length == 5);
    CHECK(tree.match(prompt).length == 12);
    REQUIRE(scheduler.submit({.tokens = prompt + List{2}, .answer = 3}));
    REQUIRE(scheduler.submit({.tokens = prompt + List{2}, .answer = 3, .salt = 7}));
    REQUIRE(step(scheduler, memory, answers));
    CHECK(parts(scheduler) == "1: 1 from 0!, 2: 7 from 1");
    const Answers rest = serve_all(scheduler, memory);
    CHECK(rest.texts.at(RequestId{1}) == answered(prompt + List{2}, 3));
    CHECK(rest.texts.at(RequestId{2}) == answered(prompt + List{2}, 3));
    CHECK(tree.match(answered(prompt + List{2}, 3), 7).length == 15);
    CHECK(audit(tree) == "");
}

TEST_CASE("requests begin in the order of submission, and none overtakes one that waits for room") {
    toy::Full memory = full(40);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8, .context = 40, .spare = 2}};
    REQUIRE(scheduler.submit({.tokens = counted(0, 10), .answer = 4}));
    REQUIRE(scheduler.submit({.tokens = counted(100, 27), .answer = 2})); // 10 + 27 + 2 * 2 > 40
    REQUIRE(scheduler.submit({.tokens = counted(200, 2), .answer = 2}));
    Answers answers;
    REQUIRE(step(scheduler, memory, answers));
    CHECK(scheduler.running() == 1);
    CHECK(scheduler.waiting() == 2);
    while (scheduler.contains(RequestId{0})) REQUIRE(step(scheduler, memory, answers));
    REQUIRE(step(scheduler, memory, answers));
    CHECK(scheduler.running() == 2);
    CHECK(serve_all(scheduler, memory).texts.size() == 2);
    CHECK(scheduler.preemptions() == 0);
}

TEST_CASE("when the memory is full, the newest request is put back, and nothing that is parked is computed twice") {
    const List a = counted(0, 10);
    const List b = counted(100, 9);
    const auto serve_both = [&](toy::Full& memory, auto requests) {
        Scheduler scheduler{std::move(requests), {.sequences = 4, .batch = 8, .context = 24, .spare = 0}};
        REQUIRE(scheduler.submit({.tokens = a, .answer = 12}));
        REQUIRE(scheduler.submit({.tokens = b, .answer = 12}));
        const Answers answers = serve_all(scheduler, memory);
        CHECK(answers.texts.at(RequestId{0}) == answered(a, 12));
        CHECK(answers.texts.at(RequestId{1}) == answered(b, 12));
        CHECK(scheduler.preemptions() == 1);
        CHECK(audit(memory) == "");
        return answers.computed;
    };
    const int once = 21 + 20; // the last token of an answer is not computed
    toy::Full parks = full(24);
    CHECK(serve_both(parks, PlainMemory{parks}) == once);
    CHECK(parks.free_cells() == 24);
    CHECK(parks.statistics().offloaded == 0);
    toy::Full forgets = full(24);
    CHECK(serve_both(forgets, PlainMemory{forgets, PutBack::compute_again}) > once);
    toy::Full offloads = full(24);
    PrefixTree tree{offloads, {.offloaded_bytes = 1 << 20}};
    CHECK(serve_both(offloads, TreeMemory{tree}) == once);
    CHECK(offloads.free_cells() + tree.evictable() == 24);
    CHECK(audit(tree) == "");
}

TEST_CASE("with promises, nobody is put back") {
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 4, .batch = 8, .context = 40, .admit = Admit::with_promise}};
    for (int i = 0; i < 4; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 8), .answer = 9}));
    Answers answers;
    REQUIRE(step(scheduler, memory, answers));
    CHECK(scheduler.running() == 2); // each needs 16 cells
    CHECK(memory.promised(Sequence{0}) == 8);
    CHECK(memory.promised(Sequence{1}) == 16);
    CHECK(serve_all(scheduler, memory).texts.size() == 4);
    CHECK(scheduler.preemptions() == 0);
    CHECK(memory.free_cells() + tree.evictable() == 40);
}

TEST_CASE("a policy chooses among all but the oldest") {
    std::vector<std::string> seen;
    toy::Full memory = full(30);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8, .context = 30, .spare = 0}, Chosen{&seen, 0}};
    for (int i = 0; i < 3; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 8), .answer = 8}));
    Answers answers;
    while (seen.empty()) REQUIRE(step(scheduler, memory, answers));
    CHECK(seen.size() == 1);
    CHECK(seen[0] == "1 lacking: 1 has 9 2 has 8");
    CHECK(scheduler.running() == 2);
    CHECK(scheduler.tokens(RequestId{2}).size() == 10); // it went on in that step
    CHECK(serve_all(scheduler, memory).texts.size() == 3);
}

TEST_CASE("a policy that names nobody is a violation") {
    std::vector<std::string> seen;
    toy::Full memory = full(12);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8, .spare = 0}, Chosen{&seen, 1}};
    for (int i = 0; i < 2; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 5), .answer = 5}));
    Answers answers;
    CHECK(violation_of([&] {
              while (seen.empty()) step(scheduler, memory, answers);
          })
          == "victims: index 1, expected 0 to 0");
    CHECK(scheduler.running() == 2);
}

TEST_CASE("the oldest request is refused if it finds no room alone, and others go on when it is ended") {
    for (const int length : {8, 20}) { // too long with its answer, and from the beginning
        CAPTURE(length);
        toy::Full memory = full(12);
        Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8}};
        REQUIRE(scheduler.submit({.tokens = counted(0, length), .answer = 10}));
        const List other = counted(50, 4);
        REQUIRE(scheduler.submit({.tokens = other, .answer = 2}));
        Answers answers;
        while (step(scheduler, memory, answers)) {}
        REQUIRE(scheduler.oldest() == RequestId{0});
        const std::string before = portrait(scheduler, memory);
        const Refusal refused = scheduler.begin().error();
        CHECK(refused == Reason::full);
        CHECK(refused.needed == refused.available + (length == 8 ? 1 : 8));
        CHECK(portrait(scheduler, memory) == before);
        CHECK(scheduler.finish(RequestId{0}).size() == (length == 8 ? 13U : 20U));
        CHECK(serve_all(scheduler, memory).texts.size() + answers.texts.size() == 1);
        CHECK(memory.free_cells() == 12);
    }
}

TEST_CASE("a request that is too long is refused, one without tokens is a violation, and it is as it was") {
    toy::Full memory = full(20);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 2, .batch = 8, .context = 10}};
    Request request{.tokens = counted(0, 11), .answer = 3, .keep = {5, 2}, .salt = 4};
    const auto submit = [&] { return scheduler.submit(std::move(request)); };
    const auto check_request = [&](int length) {
        CHECK(request.tokens == counted(0, length));
        CHECK(request.answer == 3);
        CHECK(request.keep == List{5, 2});
        CHECK(request.salt == 4);
        CHECK(scheduler.empty());
    };
    const Refusal refused = submit().error();
    CHECK(to_string(refused) == "request too long: it has more tokens than the scheduler's context; needs 11, has 10");
    CHECK(refused == Reason::request_too_long);
    check_request(11);
    request.tokens.clear();
    CHECK(violation_of([&] { static_cast<void>(submit().has_value()); })
          == "submit: a request of 0 tokens, expected at least 1");
    check_request(0);
    request.tokens = counted(0, 10);
    CHECK(failures_of([&] { static_cast<void>(submit().value()); }, [&] { check_request(10); }) > 0);
    CHECK(list(scheduler.tokens(RequestId{0})) == counted(0, 10));
}

TEST_CASE("limits beyond those of the memory are violations, and a batch that is not given is the memory's") {
    toy::Full memory = full(20); // 4 sequences, batches of 8
    PrefixTree tree{memory};
    const auto check = [](auto requests, int sequences, int batch) {
        const auto scheduler_of = [&](const SchedulerLimits& limits) { Scheduler{requests, limits}; };
        CHECK(violation_of([&] { scheduler_of({.sequences = sequences + 1}); })
              == "limits: " + std::to_string(sequences + 1) + " sequences, expected at most the "
                     + std::to_string(sequences) + " of the memory");
        CHECK(violation_of([&] { scheduler_of({.batch = batch + 1}); })
              == "limits: a batch of " + std::to_string(batch + 1) + ", expected at most the " + std::to_string(batch)
                     + " tokens of the memory's");
        CHECK(violation_of([&] { scheduler_of({.sequences = sequences, .batch = batch}); }) == "none");
        Scheduler scheduler{requests, {}};
        REQUIRE(scheduler.submit({.tokens = counted(0, batch + 1)}));
        CHECK(scheduler.begin().value().tokens() == batch);
    };
    check(PlainMemory{memory}, 4, 8);
    check(TreeMemory{tree}, 4, 8);
    toy::Full small{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .cells = 20, .batch = 5}};
    using Both = Hybrid<Repeat<Times<2, toy::Full>, toy::Recurrent>, toy::Full, toy::Recurrent>;
    Both both{3, std::move(small), recurrent(3)}; // takes what both members take
    check(PlainMemory{both}, 4, 5);
}

TEST_CASE("an answer ends with the context, and a prompt without one is computed") {
    toy::Full memory = full(20);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 2, .batch = 8, .context = 10}};
    REQUIRE(scheduler.submit({.tokens = counted(0, 8)}));
    CHECK(serve_all(scheduler, memory).texts.at(RequestId{0}) == answered(counted(0, 8), 3));
    REQUIRE(scheduler.submit({.tokens = counted(0, 8), .answer = 0}));
    compute(scheduler, memory, *scheduler.begin());
    CHECK(parts(scheduler) == "1: 8 from 0!");
    CHECK(scheduler.append(RequestId{1}, 7));
    CHECK(list(scheduler.tokens(RequestId{1})) == counted(0, 8));
    CHECK(scheduler.begin().value().tokens() == 0);
    CHECK(scheduler.finish(RequestId{1}) == counted(0, 8));
    REQUIRE(scheduler.submit({.tokens = counted(0, 9), .answer = 0}));
    CHECK(serve_all(scheduler, memory).texts.at(RequestId{2}) == counted(0, 9));
}

TEST_CASE("an empty scheduler opens an empty pass") {
    toy::Full memory = full(20);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 2, .batch = 8}};
    CHECK(scheduler.begin().value().tokens() == 0);
    CHECK(scheduler.parts().empty());
}

TEST_CASE("a pass that is not committed is planned again, and a refusal other than full is passed on") {
    toy::Full memory = full(20);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 2, .batch = 8}};
    REQUIRE(scheduler.submit({.tokens = counted(0, 12), .answer = 2}));
    REQUIRE(scheduler.begin());
    CHECK(parts(scheduler) == "0: 8 from 0");
    const auto refuse = [](const Batch&) -> Result<int> { return Reason::unequal_batch; };
    CHECK(scheduler.begin(refuse).error() == Reason::unequal_batch);
    REQUIRE(scheduler.begin());
    CHECK(parts(scheduler) == "0: 8 from 0");
    CHECK(scheduler.begin([](const Batch& batch) { return Result<int>{batch.tokens()}; }).value() == 8);
    CHECK(serve_all(scheduler, memory).texts.at(RequestId{0}) == answered(counted(0, 12), 2));
}

TEST_CASE("requests that wait, run or are parked can be ended") {
    toy::Full memory = full(24);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8, .context = 24, .spare = 0}};
    for (int i = 0; i < 3; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 9), .answer = 12}));
    Answers answers;
    while (scheduler.preemptions() == 0) REQUIRE(step(scheduler, memory, answers));
    CHECK(scheduler.running() == 1);
    CHECK(memory.statistics().offloaded == 1);
    CHECK(scheduler.finish(RequestId{2}) == counted(20, 9));
    CHECK(scheduler.finish(RequestId{1}).size() > 9);
    CHECK(memory.statistics().offloaded == 0);
    CHECK(scheduler.finish(RequestId{0}).size() > 9);
    CHECK(scheduler.empty());
    CHECK(memory.free_cells() == 24);
}

TEST_CASE("a request that waits for room makes the tree give up nothing in vain") {
    toy::Full memory = full(60);
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 4, .batch = 8, .context = 60}};
    for (int i = 0; i < 3; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 9), .answer = 2}));
    serve_all(scheduler, memory);
    CHECK(memory.free_cells() == 30);
    REQUIRE(scheduler.submit({.tokens = counted(100, 20), .answer = 6}));
    REQUIRE(scheduler.submit({.tokens = counted(200, 50), .answer = 1}));
    Answers answers;
    while (scheduler.waiting() > 0 && scheduler.contains(RequestId{3})) {
        REQUIRE(step(scheduler, memory, answers));
        CHECK(tree.statistics().evictions == 0);
    }
    CHECK(serve_all(scheduler, memory).texts.at(RequestId{4}) == answered(counted(200, 50), 1));
    CHECK(tree.statistics().evictions > 0);
}

TEST_CASE("a request that waits runs once there is room, also if it was made outside of the scheduler") {
    const auto check = [](toy::Full& memory, auto requests) {
        const Sequence outside{3};
        for (int i = 0; i < 3; ++i) {
            auto pass = memory.begin(outside, 8).value();
            for (const int layer : {0, 1}) pass.mark_put(layer);
            pass.commit();
        }
        Scheduler scheduler{requests, {.sequences = 2, .batch = 8, .context = 40}};
        for (const int first : {0, 100}) REQUIRE(scheduler.submit({.tokens = counted(first, 12), .answer = 9}));
        Answers answers;
        for (int i = 0; i < 4; ++i) REQUIRE(step(scheduler, memory, answers));
        CHECK(scheduler.running() == 1);
        REQUIRE(memory.remove(outside, Position{0}, to_end));
        REQUIRE(step(scheduler, memory, answers));
        CHECK(scheduler.running() == 2);
        CHECK(serve_all(scheduler, memory).texts.size() == 2);
    };
    toy::Full plain = full(40);
    check(plain, PlainMemory{plain});
    toy::Full with_tree = full(40);
    PrefixTree tree{with_tree};
    check(with_tree, TreeMemory{tree});
}

TEST_CASE("room is what members have together, free or in prefixes that nobody uses") {
    using Both = Hybrid<Repeat<Times<2, toy::Full>, toy::Recurrent>, toy::Full, toy::Recurrent>;
    Both both{3, full(20), recurrent(8)};
    CHECK(PlainMemory{both}.room() == 20);
    toy::Full memory = full(40);
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 2, .batch = 8}};
    REQUIRE(scheduler.submit({.tokens = counted(0, 8), .answer = 2}));
    serve_all(scheduler, memory);
    CHECK(memory.free_cells() < 40);
    CHECK(TreeMemory{tree}.room() == 40);
}

TEST_CASE("a conversation goes on without its older tokens when the context is full") {
    using Shifting = Cache<StandardV<float>, FullCausal, UnrotatedShift>;
    Shifting memory{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .cells = 40, .batch = 8}};
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 4, .batch = 8, .context = 12}};
    const RequestId id = scheduler.submit({.tokens = counted(0, 10), .answer = 7, .keep = {2, 6}}).value();
    List expected = counted(0, 10);
    for (int left = 7; left > 0; --left) {
        expected.push_back(next_token(expected));
        if (expected.size() == 13) expected.erase(expected.begin() + 2, expected.begin() + 7);
    }
    Answers answers;
    while (scheduler.contains(id)) {
        auto pass = scheduler.begin().value();
        compute(scheduler, memory, pass);
        if (!scheduler.parts().front().at_end) continue;
        const List tokens = list(scheduler.tokens(id));
        REQUIRE(lacks(memory, 0, tokens) == "");
        if (!scheduler.append(id, next_token(tokens))) continue;
        if (scheduler.tokens(id).size() == 13)
            REQUIRE(scheduler.forget(id, Position{2}, Position{7}));
        else
            CHECK(scheduler.finish(id) == expected);
    }
    CHECK(tree.match(counted(0, 10)).length == 6); // what came after the gap is kept for nobody
    CHECK(audit(tree) == "");
}

TEST_CASE("a request that waits forgets at once, and a memory that cannot shift refuses") {
    toy::Full memory = full(24);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8, .context = 24, .spare = 0}};
    for (int i = 0; i < 2; ++i) REQUIRE(scheduler.submit({.tokens = counted(10 * i, 9), .answer = 12}));
    Answers answers;
    while (scheduler.preemptions() == 0) REQUIRE(step(scheduler, memory, answers));
    const std::string before = portrait(scheduler, memory);
    CHECK(scheduler.forget(RequestId{0}, Position{2}, Position{5}).error() == Reason::cannot_shift);
    CHECK(portrait(scheduler, memory) == before);
    const List parked = list(scheduler.tokens(RequestId{1}));
    REQUIRE(scheduler.forget(RequestId{1}, Position{2}, Position{5}));
    List rest = parked;
    rest.erase(rest.begin() + 2, rest.begin() + 5);
    CHECK(list(scheduler.tokens(RequestId{1})) == rest);
    const int left = 12 - static_cast<int>(parked.size()) + 9;
    CHECK(serve_all(scheduler, memory).texts.at(RequestId{1}) == answered(rest, left));
}

TEST_CASE("a complete request that forgot all computed tokens is put back, and runs again") {
    toy::Full memory = full(24);
    PrefixTree tree{memory};
    Scheduler scheduler{TreeMemory{tree}, {.sequences = 4, .batch = 8, .context = 24}};
    REQUIRE(scheduler.submit({.tokens = {7, 8}, .answer = 1})); // so the tree knows the token that is left
    serve_all(scheduler, memory);
    for (const int answer : {5, 1}) REQUIRE(scheduler.submit({.tokens = counted(10 * answer, 3), .answer = answer}));
    compute(scheduler, memory, *scheduler.begin());
    CHECK(scheduler.append(RequestId{2}, 7));
    REQUIRE(scheduler.forget(RequestId{2}, Position{0}, Position{3}));
    int refusals = 1;
    const auto refuse_once = [&](const Batch& batch) -> Result<int> {
        if (refusals-- > 0) return Reason::full;
        return batch.tokens();
    };
    CHECK(scheduler.begin(refuse_once).value() == 0);
    CHECK(scheduler.preemptions() == 1);
    CHECK(scheduler.waiting() == 1);
    CHECK(scheduler.begin().value().tokens() == 0);
    CHECK(scheduler.running() == 2);
    CHECK(scheduler.finish(RequestId{2}) == List{7});
    scheduler.finish(RequestId{1});
    CHECK(audit(tree) == "");
}

TEST_CASE("mistakes of the program are violations, and change nothing") {
    toy::Full memory = full(24);
    Scheduler scheduler{PlainMemory{memory}, {.sequences = 4, .batch = 8}};
    const RequestId id = scheduler.submit({.tokens = counted(0, 9), .answer = 1}).value();
    const std::string before = portrait(scheduler, memory);
    const std::string too_early =
        "append: the request has 9 tokens, of which 0 are computed, and 1 more are asked for, expected all computed";
    CHECK(violation_of([&] { scheduler.append(id, 1); }) == too_early);
    CHECK(violation_of([&] { scheduler.append(RequestId{7}, 1); })
          == "request 7 neither runs nor waits, expected one that does");
    CHECK(violation_of([&] { scheduler.finish(RequestId{-1}); })
          == "request -1 neither runs nor waits, expected one that does");
    CHECK(violation_of([&] { static_cast<void>(scheduler.forget(id, Position{3}, Position{9}).has_value()); })
          == "forget: tokens [3, 9), expected a range within the 9 of the request that leaves its last one");
    CHECK(portrait(scheduler, memory) == before);
    compute(scheduler, memory, *scheduler.begin());
    CHECK(violation_of([&] { scheduler.append(id, 1); }).starts_with("append: the request has 9 tokens, of which 8"));
    compute(scheduler, memory, *scheduler.begin());
    CHECK(scheduler.append(id, 1));
    CHECK(violation_of([&] { scheduler.append(id, 1); }).starts_with("append: the request has 10 tokens, of which 9"));
    CHECK(violation_of([&] { Scheduler{PlainMemory{memory}, {.batch = -1}}; }).starts_with("limits: 1 sequences, a "));
}

TEST_CASE("without memory, a call throws, and everything goes on afterwards") {
    const auto serve_four = [](auto& memory, auto requests) {
        Scheduler scheduler{std::move(requests), {.sequences = 3, .batch = 8, .context = 24, .spare = 0}};
        Answers answers;
        int failures = 0;
        for (int i = 0; i < 4; ++i) {
            Request request{.tokens = counted(0, 6) + counted(10 * i, 5), .answer = 9, .keep = {6}};
            failures += failures_of([&] { static_cast<void>(scheduler.submit(std::move(request)).value()); },
                                    [&] { CHECK(scheduler.waiting() == i); });
        }
        while (!scheduler.empty()) {
            std::optional<Result<PassOf<std::remove_reference_t<decltype(memory)>>>> pass;
            failures += failures_of([&] { pass.emplace(scheduler.begin()); }, [&] { CHECK(audit(memory) == ""); });
            REQUIRE(*pass);
            compute(scheduler, memory, **pass);
            pass.reset();
            draw(scheduler, memory, answers);
        }
        CHECK(failures > 4); // each request takes memory, and so do steps
        for (int i = 0; i < 4; ++i)
            CHECK(answers.texts.at(RequestId{i}) == answered(counted(0, 6) + counted(10 * i, 5), 9));
        CHECK(scheduler.preemptions() > 0);
    };
    toy::Full plain = full(30);
    serve_four(plain, PlainMemory{plain});
    toy::Full shared = full(30);
    PrefixTree tree{shared, {.offloaded_bytes = 1 << 20}};
    serve_four(shared, TreeMemory{tree});
    CHECK(audit(tree) == "");
}

} // namespace test_scheduler
