// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memories that were moved from, and memories that are destroyed before their pass.
#include "violations.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace test_lifetimes {

using namespace cellar;

namespace {

struct Sum : StateTensor<1> {};

using Recurrent = RecurrentMemory<States<Sum>>;
using Both = Hybrid<Repeat<Cache<>, Recurrent>, Cache<>, Recurrent>;
using AtRunTime = Hybrid<RunTimePattern, Cache<>, Recurrent>;

Cache<> cache() {
    return {{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 8, .batch = 4}};
}
Recurrent recurrent() {
    return {StateShape{1, {{1}}}, {.sequences = 2, .batch = 4, .checkpoints = 1}};
}

/// Checks all operations of a memory that was moved from.
template <Memory M>
void check_moved_from(M memory, const std::string& message) {
    M moved = std::move(memory);
    const auto check = [&](auto operation) { CHECK(violation_of(operation) == message); };
    check([&] { (void)memory.begin(BatchBuilder{Sequence{0}, Position{0}}); });
    check([&] { memory.reserve(1).drop(); });
    check([&] { (void)memory.copy_prefix(Sequence{0}, Sequence{1}, Position{1}); });
    check([&] { (void)memory.remove(Sequence{0}, Position{0}, to_end); });
    check([&] { (void)memory.next(Sequence{0}); });
    check([&] { (void)memory.can_resume(Sequence{0}, Position{0}); });
    check([&] { (void)memory.resumable_prefix(Sequence{0}, Position{0}); });
    check([&] { memory.fence(); });
    check([&] { (void)memory.bytes(); });
    memory = std::move(moved); // assigning to it is allowed
    CHECK(memory.next(Sequence{0}) == Position{0});
    CHECK(memory.layers() >= 1);
}

/// The output of a child process in which `mistake` must abort.
std::string output_of(const std::function<void()>& mistake) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL); // not reported as a crash of the test
        ::dup2(pipe[1], STDERR_FILENO);
        mistake();
        ::_exit(0);
    }
    ::close(pipe[1]);
    std::string words;
    for (char c = 0; ::read(pipe[0], &c, 1) == 1;) words += c;
    ::close(pipe[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    return words;
}

} // namespace

TEST_CASE("every operation on a memory that was moved from is a violation") {
    check_moved_from(cache(), "the cache was moved from, expected one that was not");
    check_moved_from(
        EncoderMemory<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 8, .batch = 4}},
        "the cache was moved from, expected one that was not");
    check_moved_from(recurrent(), "the memory was moved from, expected one that was not");
    check_moved_from(Both{2, cache(), recurrent()}, "the cache was moved from, expected one that was not");
    check_moved_from(AtRunTime{{0, 1}, cache(), recurrent()}, "the cache was moved from, expected one that was not");
}

TEST_CASE("operations of single kinds of memories that were moved from are violations, too") {
    Recurrent states = recurrent();
    const Recurrent moved = std::move(states);
    const std::string message = "the memory was moved from, expected one that was not";
    CHECK(violation_of([&] { (void)states.checkpoint(Sequence{0}); }) == message);
    CHECK(violation_of([&] { (void)states.schedule(Sequence{0}, Position{1}); }) == message);
    CHECK(violation_of([&] { (void)states.kept(Sequence{0}); }) == message);
    CHECK(violation_of([&] { (void)states.statistics(); }) == message);
    CHECK(violation_of([&] { states.unschedule(Sequence{0}, Position{1}); }) == message);
    Cache<> cells = cache();
    const Cache<> moved_cells = std::move(cells);
    const std::string of_cache = "the cache was moved from, expected one that was not";
    CHECK(violation_of([&] { (void)cells.schedule(Sequence{0}, Position{1}); }) == of_cache);
    CHECK(violation_of([&] { cells.unschedule(Sequence{0}, Position{1}); }) == of_cache);
    AtRunTime hybrid{{0, 1}, cache(), recurrent()};
    const AtRunTime other = std::move(hybrid);
    CHECK(violation_of([&] { (void)hybrid.layers(); }) == "the hybrid was moved from, expected one that was not");
}

TEST_CASE("a pass that was moved from is over") {
    Cache<> memory = cache();
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    auto other = std::move(pass);
    const std::string message = "the pass is over, expected one that was not committed, dropped or moved from";
    CHECK(violation_of([&] { pass.mark_put(0); }) == message);
    CHECK(violation_of([&] { pass.commit(); }) == message);
    other.mark_put(0);
    other.commit();
    CHECK(memory.next(Sequence{0}) == Position{1});
}

TEST_CASE("a memory that is destroyed while its pass is open aborts with a message") {
    const auto begin = [](auto& memory) { return memory->begin(BatchBuilder{Sequence{0}, Position{0}}).value(); };
    CHECK(output_of([&] {
              std::optional<Cache<>> memory = cache();
              auto pass = begin(memory);
              memory.reset();
              pass.drop();
          }).find("a cache is destroyed while a pass is open")
          != std::string::npos);
    CHECK(output_of([&] {
              std::optional<Cache<>> memory = cache();
              auto pass = begin(memory);
              *memory = cache(); // destroys the old cache
              pass.drop();
          }).find("a cache is destroyed while a pass is open")
          != std::string::npos);
    CHECK(output_of([&] {
              std::optional<Recurrent> memory = recurrent();
              auto pass = begin(memory);
              memory.reset();
              pass.drop();
          }).find("a recurrent memory is destroyed while a pass is open")
          != std::string::npos);
    CHECK(output_of([&] {
              std::optional<Both> memory{std::in_place, 2, cache(), recurrent()};
              auto pass = begin(memory);
              memory.reset();
              pass.drop();
          }).find("is destroyed while a pass is open")
          != std::string::npos);
}

TEST_CASE("the printed message names the caller's line") {
    int line = 0;
    const std::string words = output_of([&] {
        Cache<> memory = cache();
        line = __LINE__ + 1;
        (void)memory.next(Sequence{7});
    });
    CHECK(words.find("test_lifetimes.cpp:") != std::string::npos);
    CHECK(words.find(": cellar: sequence 7, expected 0 to 1\n") != std::string::npos);
}

} // namespace test_lifetimes
