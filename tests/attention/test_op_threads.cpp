// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Threads that come late, or never, and OpenMP-like engines that call an operation on all their threads.
#include "../violations.hpp"
#include "attended.hpp"
#include <cellar/attention/op_threads.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace test_op_threads {

using namespace cellar;
using namespace std::chrono_literals;
using attention_test::Floats;
using attention_test::wave;

namespace {

constexpr int heads = 4, kv_heads = 2, dim = 16;

/// 700 tokens of one sequence, and a pass of some more: several parts, whose results are joined.
struct Attended {
    Cache<StandardV<half>> cache{{.layers = 1, .kv_heads = kv_heads, .head_dim = dim},
                                 {.capacity = 1000, .batch = 700}};

    explicit Attended(int tokens) : q{wave(tokens * heads * dim, 3)} {
        for (const int n : {700, tokens}) {
            pass.reset();
            pass = std::make_unique<PassOf<decltype(cache)>>(
                cache.begin(BatchBuilder{Sequence{0}, cache.next(Sequence{0}), n}).value());
            pass->put(0, wave(n * kv_heads * dim, n), wave(n * kv_heads * dim, n + 1));
            if (n == 700) pass->commit();
        }
    }
    template <class Threads>
    Floats operator()(const Threads& threads) const {
        Floats out(q.size());
        attend(*pass, 0, q, out, {}, threads);
        return out;
    }

    Floats q;
    std::unique_ptr<PassOf<decltype(cache)>> pass;
};

/// Calls some of f(0) to f(3), in that order.
struct Calls {
    std::vector<int> order;
    static int count() { return 4; }
    template <class F>
    void run(F&& f) const {
        for (const int i : order) f(i);
    }
};

/// f(1) begins when f(0) has done all the work, on a thread.
struct LateThread {
    static int count() { return 2; }
    template <class F>
    void run(F&& f) const {
        std::latch done{1};
        const std::jthread late{[&] {
            done.wait();
            f(1);
        }};
        f(0);
        done.count_down();
    }
};

/// An engine: calls op(ith) on each of its threads, and returns when all have. Thread i sleeps for delays[i] before,
/// and does not come at all if that is negative.
void on_all_threads(const std::vector<std::chrono::microseconds>& delays, const std::function<void(int)>& op) {
    std::vector<std::jthread> threads;
    const auto come = [&](std::size_t i) {
        if (delays[i] < 0us) return;
        std::this_thread::sleep_for(delays[i]);
        op(static_cast<int>(i));
    };
    for (std::size_t i = 1; i < delays.size(); ++i) threads.emplace_back(come, i);
    come(0);
}
void on_all_threads(int n, const std::function<void(int)>& op) {
    on_all_threads(std::vector<std::chrono::microseconds>(static_cast<std::size_t>(n)), op);
}

} // namespace

TEST_CASE("attend has the same bits whichever calls its threads make, and however late") {
    for (const int tokens : {1, 40}) {
        const Attended attended{tokens};
        const Floats expected = attended(CallingThread{});
        CHECK(attended(Calls{{0}}) == expected);
        CHECK(attended(Calls{{0, 1, 2, 3}}) == expected);
        CHECK(attended(Calls{{3, 1, 0}}) == expected);
        CHECK(attended(Calls{{2, 0}}) == expected);
        CHECK(attended(LateThread{}) == expected);
    }
}

TEST_CASE("attend has the same bits on the threads of an operation: 1 to 5, some of which sleep or never come") {
    OpThreads team;
    for (const int tokens : {1, 40}) {
        const Attended attended{tokens};
        const Floats expected = attended(CallingThread{});
        using Delays = std::vector<std::chrono::microseconds>;
        for (const Delays& delays :
             {Delays{0us}, Delays{0us, 0us}, Delays{0us, 0us, 0us, 0us, 0us}, Delays{2ms, 0us, 0us}, Delays{0us, 2ms},
              Delays{0us, 100us, 0us, 300us}, Delays{0us, -1us, 0us}, Delays{0us, -1us, -1us, -1us}}) {
            Floats found;
            on_all_threads(delays, [&](int ith) {
                team.op(ith, static_cast<int>(delays.size()), [&](const OpThreads& threads) {
                    CHECK(threads.count() == static_cast<int>(delays.size()));
                    found = attended(threads);
                });
            });
            team.reset();
            CHECK(found == expected);
        }
    }
}

TEST_CASE("every item of every job is done once, with threads that change in number from operation to operation") {
    OpThreads team;
    for (int round = 0; round < 200; ++round) {
        const int n = 1 + round % 5;
        std::vector<int> done(97);
        on_all_threads(n, [&](int ith) {
            team.op(ith, n, [&](const OpThreads& threads) {
                for (int job = 0; job < 3; ++job) {
                    std::atomic<std::size_t> next{0};
                    threads.run([&](int) {
                        for (std::size_t i = next++; i < done.size(); i = next++) ++done[i];
                    });
                }
            });
        });
        team.reset();
        REQUIRE(done == std::vector<int>(done.size(), 3));
    }
}

TEST_CASE("the leader does not wait for a thread that has not come, and which then returns at once") {
    OpThreads team;
    std::latch over{1};
    std::atomic<int> calls_of_1{0};
    on_all_threads(2, [&](int ith) {
        if (ith == 1) over.wait();
        team.op(ith, 2, [&](const OpThreads& threads) { threads.run([&](int thread) { calls_of_1 += thread; }); });
        if (ith == 0) over.count_down();
    });
    CHECK(calls_of_1 == 0);
}

TEST_CASE("a thread that comes while the leader works helps, and run waits until it has finished") {
    OpThreads team;
    std::latch came{1};
    bool finished = false; // without a race, because run waits
    on_all_threads(3, [&](int ith) {
        if (ith == 2) return;
        team.op(ith, 3, [&](const OpThreads& threads) {
            threads.run([&](int thread) {
                if (thread == 0) return came.wait();
                came.count_down();
                std::this_thread::sleep_for(5ms);
                finished = true;
            });
            CHECK(finished);
        });
    });
}

TEST_CASE("what the lead throws leaves op on thread 0, and the others return") {
    OpThreads team;
    std::string caught;
    on_all_threads(3, [&](int ith) {
        const auto lead = [](const OpThreads& threads) {
            threads.run([](int) {});
            throw std::runtime_error{"no memory"};
        };
        try {
            team.op(ith, 3, lead);
        } catch (const std::runtime_error& error) {
            caught = error.what() + std::to_string(ith); // on one thread alone
        }
    });
    CHECK(caught == "no memory0");
}

TEST_CASE("what a call throws on any thread, run throws on the leader's, once all have left") {
    for (const int throws : {0, 1, 2}) {
        OpThreads team;
        std::atomic<int> inside{0};
        std::atomic<int> jobs{0};
        std::string caught;
        on_all_threads(3, [&](int ith) {
            team.op(ith, 3, [&](const OpThreads& threads) {
                std::latch all{3};
                const auto job = [&](int thread) {
                    ++inside;
                    all.arrive_and_wait();
                    if (thread == throws) {
                        --inside;
                        throw std::runtime_error{"of a call"};
                    }
                    std::this_thread::sleep_for(1ms);
                    --inside;
                };
                try {
                    threads.run(job);
                } catch (const std::runtime_error& error) {
                    CHECK(inside == 0);
                    caught = error.what();
                }
                threads.run([&](int) { ++jobs; }); // the next job has nothing of it
            });
        });
        CHECK(caught == "of a call");
        CHECK(jobs >= 1);
    }
}

TEST_CASE("threads that have nothing to do sleep") {
    OpThreads team;
    std::latch all{3};
    on_all_threads(3, [&](int ith) {
        all.arrive_and_wait();
        team.op(ith, 3, [](const OpThreads& threads) {
            const std::clock_t begin = std::clock(); // of the whole process
            std::this_thread::sleep_for(300ms);
            threads.run([](int) {});
            CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.1); // two that spin take 0.6
        });
    });
}

TEST_CASE("a thread that is none of the operation's is a violation") {
    OpThreads team;
    const auto of = [&](int ith, int nth) { return violation_of([&] { team.op(ith, nth, [](const OpThreads&) {}); }); };
    CHECK(of(2, 2) == "op: thread 2 of 2, expected 0 to 1");
    CHECK(of(-1, 2) == "op: thread -1 of 2, expected 0 to 1");
}

} // namespace test_op_threads
