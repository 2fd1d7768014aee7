// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Prefix trees in files.
#include "hybrid/failing_allocations.hpp"
#include "made_files.hpp"
#include "prefix/reader.hpp"
#include "violations.hpp"
#include <cellar/files/prefix_file.hpp>
#include <cellar/files/sequence_file.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace test_prefixes {

namespace {

using namespace cellar;
using disk::Bytes;
using disk::Disk;
using disk::with;
using prefix_test::compute;
using prefix_test::counted;
using prefix_test::Counting;
using prefix_test::first;
using prefix_test::full;
using prefix_test::lacks;
using prefix_test::leave;
using prefix_test::List;
using prefix_test::recurrent;
using prefix_test::serve;
using prefix_test::sliding;
using prefix_test::operator+;

/// What a server was asked, in this order: a prompt, two questions after it, a chat that goes on, another salt.
struct Request {
    List tokens;
    std::uint64_t salt = 0;
};
const List prompt = counted(1, 6);
const std::vector<Request> requests{{prompt},
                                    {prompt + counted(20, 5)},
                                    {prompt + counted(40, 3)},
                                    {prompt + counted(40, 3) + counted(60, 9)},
                                    {counted(1, 4) + counted(80, 2)},
                                    {counted(1, 8), ~std::uint64_t{5}}};

template <class M>
void serve_all(PrefixTree<M>& tree) {
    for (const auto& [tokens, salt] : requests) {
        serve(tree, 0, tokens, salt);
        leave(tree, 0);
    }
}

template <class M>
Bytes saved(PrefixTree<M>& tree) {
    Disk disk;
    const auto done = save("f", tree, {.write = {.files = &disk}}); // doctest would catch what it throws
    REQUIRE(done);
    return disk.now.at("f")->now;
}
template <class M>
FileResult<void> load_into(PrefixTree<M>& tree, const Bytes& bytes, Sequence s = Sequence{3}) {
    Disk disk;
    disk.put("f", bytes);
    return load("f", tree, s, {.read = {.files = &disk}});
}

/// Both trees attach the same to the same requests.
template <class M, class N>
void check_equal(PrefixTree<M>& from, PrefixTree<N>& to) {
    CHECK(audit(to) == "");
    CHECK(to.statistics().tokens == from.statistics().tokens);
    CHECK(to.statistics().snapshots == from.statistics().snapshots);
    for (const auto& [tokens, salt] : requests) {
        CHECK(to.match(tokens, salt).length == from.match(tokens, salt).length);
        const PrefixMatch match = to.attach(Sequence{1}, tokens, salt).value();
        CHECK(match.length == from.match(tokens, salt).length);
        CHECK(lacks(to.memory(), 1, first(match.length, tokens)) == "");
        leave(to, 1);
    }
    CHECK(audit(to) == "");
}

} // namespace

TEST_CASE("a prefix tree of a cache is loaded with all prefixes, whose cells are stored once") {
    toy::Full from_memory = full(100);
    PrefixTree from{from_memory};
    serve_all(from);
    const std::string before = toy::member_portrait(from_memory);
    const Bytes file = saved(from);
    CHECK(toy::member_portrait(from_memory) == before);
    Cache<PermutedV<float>> memory{{.layers = 2, .kv_heads = 1, .head_dim = 1},
                                   {.sequences = 4, .cells = 60, .batch = 8}};
    PrefixTree to{memory};
    REQUIRE(load_into(to, file));
    CHECK(memory.next(Sequence{3}) == Position{0});
    CHECK(memory.cells() - memory.statistics().free == from_memory.cells() - from_memory.statistics().free);
    CHECK(memory.statistics().offloaded == 0);
    CHECK(to.statistics().hits + to.statistics().partial_hits + to.statistics().misses == 0);
    check_equal(from, to);
}

TEST_CASE("prefix trees of states, of windows and of hybrids are loaded") {
    const auto check = [](auto from_memory, auto memory) {
        PrefixTree from{from_memory};
        serve_all(from);
        PrefixTree to{memory};
        REQUIRE(load_into(to, saved(from)));
        check_equal(from, to);
    };
    check(recurrent(8), recurrent(9));
    check(sliding(), sliding());
    const auto hybrid = [] { return toy::Memory{toy::layers, sliding(), full(100), recurrent(8)}; };
    check(hybrid(), hybrid());
}

TEST_CASE("prefixes that do not fit are offloaded to the host, or refused together") {
    toy::Full from_memory = full(100);
    PrefixTree from{from_memory};
    serve_all(from);
    const Bytes file = saved(from);
    toy::Full small = full(24);
    PrefixTree<toy::Full> none{small};
    const auto refused = load_into(none, file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(none.statistics().nodes == 0);
    CHECK(small.statistics().free == 24);
    CHECK(small.statistics().offloaded == 0);
    PrefixTree<toy::Full> some{small, {.offloaded_bytes = 1000}};
    REQUIRE(load_into(some, file));
    CHECK(some.statistics().offloaded > 0);
    CHECK(some.statistics().evictions == 0);
    check_equal(from, some);
    toy::Full large = full(100);
    PrefixTree<toy::Full> again{large};
    REQUIRE(load_into(again, saved(some))); // from prefixes that are offloaded
    check_equal(some, again);
}

TEST_CASE("the prefix that was not used for the longest time is given up first after loading, too") {
    toy::Full from_memory = full(100);
    PrefixTree from{from_memory};
    for (const int word : {100, 200, 300}) {
        serve(from, 0, counted(word, 4));
        leave(from, 0);
    }
    CHECK(from.attach(Sequence{0}, counted(100, 4)).value().length == 4);
    leave(from, 0);
    toy::Full memory = full(100);
    PrefixTree to{memory};
    REQUIRE(load_into(to, saved(from)));
    for (const int word : {200, 300, 100}) {
        CHECK(to.match(counted(word, 4)).length == 4);
        CHECK(to.evict());
        CHECK(to.match(counted(word, 4)).length == 0);
    }
}

TEST_CASE("each prefix of a chat is restored once while it is loaded") {
    Counting memory{full(60)};
    PrefixTree tree{memory};
    List chat;
    for (int turn = 0; turn < 20; ++turn) {
        chat = chat + counted(10 * turn, 2);
        REQUIRE(compute(memory, 0, chat));
        REQUIRE(tree.insert(Sequence{0}, chat));
    }
    leave(tree, 0);
    serve(tree, 1, first(10, chat) + List{500});
    leave(tree, 1);
    const Bytes file = saved(tree);
    tree.clear();
    memory.restored = 0;
    REQUIRE(load_into(tree, file));
    CHECK(memory.restored == 20 + 5 + 1); // the last one leaves the chat after five turns
    CHECK(memory.next(Sequence{3}) == Position{0});
    CHECK(tree.statistics().snapshots == 21);
    CHECK(audit(tree) == "");
    CHECK(tree.attach(Sequence{1}, chat).value().length == 40);
    CHECK(lacks(memory, 1, chat) == "");
}

TEST_CASE("a prefix is loaded behind its own first part, where another one of that length comes before it") {
    const List left = prompt + counted(20, 5);
    const List right = prompt + counted(40, 5);
    toy::Full memory = full(60);
    PrefixTree tree{memory};
    for (const List& list : {prompt, left, left + List{1}, right, left + List{2}}) {
        serve(tree, 0, list);
        leave(tree, 0);
    }
    const Bytes file = saved(tree);
    tree.clear();
    REQUIRE(load_into(tree, file));
    for (const List& list : {left + List{1}, right, left + List{2}}) {
        CHECK(tree.attach(Sequence{1}, list).value().length == static_cast<std::int32_t>(list.size()));
        CHECK(lacks(memory, 1, list) == "");
        leave(tree, 1);
    }
    CHECK(tree.statistics().tokens == 6 + 5 + 5 + 1 + 1);
}

TEST_CASE("an empty tree is saved and loaded") {
    toy::Full memory = full(20);
    PrefixTree tree{memory};
    REQUIRE(load_into(tree, saved(tree)));
    CHECK(tree.statistics().nodes == 0);
}

TEST_CASE("a file of prefixes that contradict each other is unsuitable, and the tree stays empty") {
    toy::Full from_memory = full(100);
    PrefixTree from{from_memory};
    serve_all(from);
    const Bytes file = saved(from);
    toy::Full memory = full(100);
    PrefixTree to{memory};
    const auto refusal = [&](const Bytes& bytes) {
        const auto refused = load_into(to, bytes);
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == FileReason::unsuitable);
        CHECK(to.statistics().nodes == 0);
        CHECK(memory.statistics().free == 100);
        CHECK(memory.statistics().offloaded == 0);
        return refused.error().message;
    };
    REQUIRE(load_into(to, with(file, {})));
    to.clear();
    CHECK(refusal(with(file, {{"prefixes", "-1"}})) == "f: it has no prefixes");
    CHECK(refusal(with(file, {{"prefixes", "9000000000000"}})).ends_with("has no valid salt and tokens"));
    CHECK(refusal(with(file, {{"parts.0.salt", "x"}})) == "f: its part 0 has no valid salt and tokens");
    CHECK(refusal(with(file, {{"parts.0.before", "0"}})) == "f: its part 0 has no valid place");
    CHECK(refusal(with(file, {{"parts.1.salt", "7"}})) == "f: its part 1 does not follow the one before");
    CHECK(refusal(with(file, {{"parts.1.before", "-1"}})) == "f: its part 1 does not follow the one before");
    Disk disk;
    REQUIRE(save("g", memory, all_sequences, {.write = {.files = &disk}}));
    CHECK(refusal(disk.now.at("g")->now) == "f: it has no prefixes");
    disk.put("f", file);
    CHECK(load("f", memory, all_sequences, {.read = {.files = &disk}}).error().message == "f: it has no sequences");
    toy::Full other{{.layers = 3, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .cells = 100, .batch = 8}};
    PrefixTree tree{other};
    CHECK(load_into(tree, file).error().message == "f: part 0: it has 2 layers, expected 3");
}

TEST_CASE("tokens of 0 bytes each take no memory, however many a file has") {
    Disk disk;
    const FilePlan plan{{{"parts.0.tokens", Dtype::u8, {1 << 30, 0}}},
                        {{"snapshot.prefixes", "1"},
                         {"snapshot.parts.0.before", "-1"},
                         {"snapshot.parts.0.salt", "0"},
                         {"formats.parts.0.tokens", "I32"}}};
    auto writer = FileWriter::create("f", plan, {.files = &disk}).value();
    REQUIRE(writer.finish());
    toy::Full memory = full(20);
    PrefixTree tree{memory};
    const std::int64_t before = FailingAllocations::bytes();
    CHECK(load_into(tree, disk.now.at("f")->now).error().message == "f: its part 0 has no valid salt and tokens");
    CHECK(FailingAllocations::bytes() - before < 1 << 20);
}

TEST_CASE("a file of prefixes with a byte changed, or cut off, is refused, and the tree stays empty") {
    toy::Full from_memory = full(100);
    PrefixTree from{from_memory};
    serve_all(from);
    const Bytes whole = saved(from);
    toy::Full memory = full(100);
    PrefixTree to{memory};
    const std::string before = toy::member_portrait(memory);
    for (std::size_t at = 0; at < whole.size(); at += 11) {
        Bytes bytes = whole;
        bytes[at] ^= std::byte{0x02};
        CAPTURE(at);
        CHECK_FALSE(load_into(to, bytes));
        CHECK_FALSE(load_into(to, Bytes{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}));
    }
    CHECK(to.statistics().nodes == 0);
    CHECK(toy::member_portrait(memory) == before);
}

TEST_CASE("a sequence that is not empty is refused, and a tree with prefixes is a violation") {
    toy::Full memory = full(100);
    PrefixTree tree{memory};
    serve(tree, 0, prompt);
    CHECK(violation_of([&] { static_cast<void>(load("f", tree, Sequence{1})); })
          == "load: the tree has 1 nodes, expected an empty one");
    tree.clear();
    CHECK(load("f", tree, Sequence{0}).error() == Reason::not_empty);
    CHECK(memory.tokens(Sequence{0}) == 6);
}

TEST_CASE("a lack of memory while a tree is saved or loaded leaves it as it was, or empty") {
    toy::Memory from_memory{toy::layers, sliding(), full(100), recurrent(8)};
    PrefixTree from{from_memory};
    for (const int word : {100, 200}) {
        serve(from, 0, counted(word, 4));
        leave(from, 0);
    }
    const Bytes file = saved(from);
    Bytes again;
    CHECK(failures_of([&] { again = saved(from); }, [&] { CHECK(audit(from) == ""); }) > 20);
    CHECK(again == file);
    toy::Memory memory{toy::layers, sliding(), full(100), recurrent(8)};
    PrefixTree to{memory};
    const auto load_it = [&] {
        const auto done = load_into(to, file);
        if (!done && done.error() == Reason::full) throw std::bad_alloc{}; // the tree attaches less for want of memory
        REQUIRE(done);
    };
    const auto check = [&] {
        CHECK(to.statistics().nodes == 0);
        CHECK(memory.member<toy::Full>().statistics().free == 100);
        CHECK(memory.member<toy::Full>().statistics().offloaded == 0);
        CHECK(memory.member<toy::Recurrent>().statistics().used == 0);
    };
    CHECK(failures_of(load_it, check) > 20);
    check_equal(from, to);
}

} // namespace test_prefixes
