// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "skip.hpp"
#include "texts.hpp"
#include "violations.hpp"
#include <cellar/base/plan.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/version.hpp>
#include <cellar/base/view.hpp>
#include <cellar/base/zeroed.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace test_base {

using namespace cellar;

TEST_CASE("positions are ordered and differ by numbers of tokens") {
    static_assert(Position{3} < Position{4});
    static_assert(Position{3} + 2 == Position{5});
    static_assert(Position{3} - 2 == Position{1});
    static_assert(Position{7} - Position{3} == 4);
    static_assert(Position{INT32_MAX - 1} < to_end);
    CHECK(CELLAR_VERSION == 100);
}

TEST_CASE("sequences and positions are keys of unordered containers") {
    std::unordered_map<Sequence, Position> users{{Sequence{3}, Position{30}}, {Sequence{4}, Position{40}}};
    CHECK(users.at(Sequence{4}) == Position{40});
    const std::unordered_set<Position> positions{Position{1}, Position{2}, Position{1}};
    CHECK(positions.size() == 2);
}

TEST_CASE("a result holds a value or a reason") {
    Result<std::unique_ptr<int>> value{std::make_unique<int>(3)};
    REQUIRE(value);
    CHECK(**value == 3);
    CHECK(violation_of([&] { (void)value.error(); }) == "error() was called on a result that has a value");

    const Result<int> refused{Reason::full};
    CHECK_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(violation_of([&] { (void)refused.value(); })
          == "a refused result has no value: full: fewer cells are free than the operation needs");

    CHECK(Result<void>{}.has_value());
    CHECK(violation_of([] { Result<void>{}.value(); }) == "none");
    CHECK(violation_of([] { Result<void>{Reason::cannot_shift}.value(); })
          == std::string{"a refused result has no value: "} + to_string(Reason::cannot_shift));
    CHECK(Result<void>{Reason::cannot_shift}.error() == Reason::cannot_shift);
    CHECK(violation_of([] { (void)Result<void>{}.error(); }) == "error() was called on a result that was not refused");
}

TEST_CASE("every reason has its own line for a person") {
    const Texts lines = texts_of_reasons<Reason>([](Reason reason) { return to_string(reason); });
    CHECK(lines.count == 19);
    CHECK(lines.distinct.size() == 19);
}

TEST_CASE("a temporary result gives its value away") {
    const auto made = [] { return Result<std::unique_ptr<int>>{std::make_unique<int>(3)}; };
    const auto value = made().value();
    CHECK(*value == 3);
    const std::unique_ptr<int> dereferenced = *made();
    CHECK(*dereferenced == 3);
    CHECK(violation_of([] { (void)Result<int>{Reason::full}.value(); }).find("has no value") != std::string::npos);
    CHECK(violation_of([] { (void)*Result<int>{Reason::full}; }).find("has no value") != std::string::npos);
}

TEST_CASE("a value leaves its result only where it is taken") {
    Result<std::unique_ptr<int>> result{std::make_unique<int>(3)};
    const auto refuses = [](std::unique_ptr<int>&&) { return Result<void>{Reason::full}; };
    CHECK(refuses(*std::move(result)).error() == Reason::full);
    REQUIRE(*result != nullptr);
    CHECK(refuses(std::move(result).value()).error() == Reason::full);
    REQUIRE(*result != nullptr);
    CHECK(**result == 3);
}

TEST_CASE("a result takes its value with one move, or with one copy of a constant") {
    struct Counted {
        Counted() = default;
        Counted(Counted&& other) noexcept : copies{other.copies}, moves{other.moves + 1} {}
        Counted(const Counted& other) : copies{other.copies + 1}, moves{other.moves} {}
        int copies = 0;
        int moves = 0;
    };
    const auto of_local = []() -> Result<Counted> {
        Counted counted;
        return counted;
    };
    const Result<Counted> moved = of_local();
    CHECK(moved->moves == 1);
    CHECK(moved->copies == 0);
    const Counted constant;
    const Result<Counted> copied{constant};
    CHECK(copied->moves == 0);
    CHECK(copied->copies == 1);
}

TEST_CASE("a result destroys what it holds once, also when another one is assigned to it") {
    struct Alive {
        explicit Alive(int* the_count) : count{the_count} { ++*count; }
        Alive(Alive&& other) noexcept : count{other.count} { ++*count; }
        Alive(const Alive&) = delete;
        ~Alive() { --*count; }
        int* count;
    };
    int alive = 0;
    {
        Result<Alive> result{Alive{&alive}};
        CHECK(alive == 1);
        result = Result<Alive>{Reason::full};
        CHECK(alive == 0);
        CHECK(result.error() == Reason::full);
        result = Result<Alive>{Reason::not_next};
        CHECK(result.error() == Reason::not_next);
        result = Result<Alive>{Alive{&alive}};
        CHECK(alive == 1);
        result = Result<Alive>{Alive{&alive}};
        CHECK(alive == 1);
        const Result<Alive> moved = std::move(result);
        CHECK(alive == 2);
        CHECK(moved.has_value());
    }
    CHECK(alive == 0);
}

TEST_CASE("a result is as copyable and movable as its value") {
    static_assert(std::copyable<Result<int>> && std::copyable<Result<void>>);
    static_assert(std::movable<Result<std::unique_ptr<int>>>);
    static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
    static_assert(std::is_copy_constructible_v<Result<const int>>);
    const Result<std::string> text{std::string{"a text that is too long to lie within a string"}};
    Result<std::string> result{Reason::full};
    result = text;
    CHECK(*result == *text);
    const Result<std::string>& same = result;
    result = same;
    CHECK(*result == *text);
    result = Result<std::string>{Reason::not_next};
    CHECK(result.error() == Reason::not_next);
}

TEST_CASE("the message of a violation is built only after a failure") {
    int built = 0;
    const auto part = [&] {
        ++built;
        return 7;
    };
    CELLAR_EXPECTS(true, "never ", part());
    CHECK(built == 0);
    const auto message = violation_of([&] { CELLAR_EXPECTS(false, "given ", part(), ", expected ", Position{3}); });
    CHECK(message == "given 7, expected 3");
    CHECK(built == 1);
}

TEST_CASE("a violation aborts if there is no handler") {
    const pid_t child = ::fork();
    if (child == 0) {
        for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL); // not reported as a crash of the test
        set_violation_handler(nullptr);
        CELLAR_EXPECTS(false, "this message is not read");
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("the strides of a view count elements, contiguous or not") {
    std::vector<int> data(24);
    std::iota(data.begin(), data.end(), 0);
    const auto dense = contiguous_view(data.data(), 2, 3, 4);
    CHECK(dense.is_contiguous());
    CHECK(dense.size() == 24);
    CHECK(dense(1, 2, 3) == 23);
    CHECK(&dense(1, 0, 0) - dense.data_handle() == dense.stride(0));

    const StridedView<int, 2> column{data.data() + 1, {6, 2}, {4, 1}};
    CHECK_FALSE(column.is_contiguous());
    CHECK(column(5, 1) == 22);

    const StridedView<const int, 2> constant = column;
    CHECK(constant(5, 1) == 22);
    CHECK(constant.extent(0) == 6);
    static_assert(decltype(constant)::rank() == 2);
    static_assert(std::is_trivially_copyable_v<StridedView<float, 3>>);

    // Where the extent is one, the stride does not matter.
    const StridedView<int, 2> row{data.data(), {1, 4}, {99, 1}};
    CHECK(row.is_contiguous());
}

TEST_CASE("a zeroed array is zero and aligned, keeps its address, and throws if memory is short") {
    ZeroedArray<std::int32_t> array{1000};
    for (std::int64_t i = 0; i < array.size(); ++i) REQUIRE(array[i] == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
    array[999] = 5;
    const auto* const address = array.data();
    ZeroedArray<std::int32_t> other{std::move(array)};
    CHECK(other.data() == address);
    CHECK(array.size() == 0);
    CHECK(array.data() == nullptr);
    ZeroedArray<std::int32_t> assigned;
    assigned = std::move(other);
    CHECK(assigned.data() == address);
    CHECK(assigned[999] == 5);
    CHECK(ZeroedArray<char>{0}.size() == 0);
    CHECK_THROWS_AS(ZeroedArray<std::int64_t>{INT64_MAX / 4}, std::bad_alloc);
}

TEST_CASE("what a zeroed array holds stays when it is populated") {
    for (const std::int64_t size : {0, 1, 63, 1024, 1025, 5000}) {
        ZeroedArray<std::int32_t> array{size};
        for (std::int64_t i = 0; i < size; ++i) array[i] = static_cast<std::int32_t>(i);
        array.populate();
        bool is_same = true;
        for (std::int64_t i = 0; i < size; ++i) is_same = is_same && array[i] == i;
        CHECK(is_same);
    }
}

TEST_CASE("a zeroed array of a huge page or more begins at one, where there are any, and is zero after another") {
    constexpr auto page = static_cast<std::int64_t>(detail::huge_page);
    for (const std::int64_t size : {page - 1, page, page + 1, 3 * page - 1, 16 * page + 1}) {
        CAPTURE(size);
        ZeroedArray<char> array{size};
        const auto address = reinterpret_cast<std::uintptr_t>(array.data());
        CHECK(address % 64 == 0);
        if (void* const mapped = detail::map_zeros(static_cast<std::size_t>(size))) {
            CHECK(address % detail::huge_page == 0);
            detail::unmap(mapped, static_cast<std::size_t>(size));
        }
        for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
            CHECK(array[at] == 0);
            array[at] = 1;
        }
        array = ZeroedArray<char>{}; // so that its memory may be that of the next one
        array = ZeroedArray<char>{size};
        CHECK(array[0] == 0);
        CHECK(array[size - 1] == 0);
    }
    CHECK(detail::map_zeros(detail::huge_page - 1) == nullptr);
}

TEST_CASE("zeroed arrays of a huge page or more give all of their memory back") {
    const auto mapped_kilobytes = [] {
        std::ifstream status{"/proc/self/status"};
        std::int64_t kilobytes = 0;
        for (std::string word; status >> word;)
            if (word == "VmSize:") status >> kilobytes;
        return kilobytes;
    };
    constexpr auto page = static_cast<std::int64_t>(detail::huge_page);
    void* const mapped = detail::map_zeros(detail::huge_page);
    if (mapped == nullptr) CELLAR_SKIP("memory comes from the allocator here, which may keep it");
    detail::unmap(mapped, detail::huge_page);
    (void)ZeroedArray<char>{page + 70'000};
    const std::int64_t before = mapped_kilobytes();
    for (int i = 0; i < 100; ++i) (void)ZeroedArray<char>{page + 70'000};
    CHECK(mapped_kilobytes() - before < 8 * 1024);
}

TEST_CASE("a reserved list keeps its elements in place and destroys those that it loses") {
    const auto counted = std::make_shared<int>(7);
    {
        detail::ReservedList<std::shared_ptr<int>> list{4};
        CHECK(list.empty());
        list.push_back(counted);
        const auto* const first = list.data();
        list.emplace_back(counted);
        list.resize(4);
        CHECK(list.size() == 4);
        CHECK(list.data() == first);
        CHECK(list[1] == counted);
        CHECK(list.back() == nullptr);
        CHECK(counted.use_count() == 3);
        list.resize(1);
        CHECK(counted.use_count() == 2);
        list.assign(std::vector{counted, counted, counted});
        CHECK(counted.use_count() == 4);
        list.pop_back();
        CHECK(counted.use_count() == 3);
    }
    CHECK(counted.use_count() == 1);
}

TEST_CASE("a message has every text and number in full") {
    CHECK(detail::composed({}).empty());
    CHECK(detail::composed({INT64_MIN, " to ", UINT64_MAX, std::string{"; "}, Position{-1}, "", Sequence{0}})
          == "-9223372036854775808 to 18446744073709551615; -10");
}

} // namespace test_base
