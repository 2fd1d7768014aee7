// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What a sequence remembers, in files.
#include "cache/numbers.hpp"
#include "folder.hpp"
#include "hybrid/failing_allocations.hpp"
#include "hybrid/toy.hpp"
#include "made_files.hpp"
#include <cellar/files/snapshot_file.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace test_sequences {

namespace {

using namespace cellar;
using disk::After;
using disk::Bytes;
using disk::Disk;
using numbers::prompt;
using numbers::Values;
using numbers::values;

using Numbers = numbers::Cache<>;

const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};

Numbers cache(std::int32_t cells = 8) {
    return {shape, {.sequences = 3, .cells = cells, .batch = 8}};
}

Numbers filled() {
    Numbers all = cache();
    numbers::feed(all, prompt(1, 0, {9, 9}));
    numbers::feed(all, prompt(0, 0, {1, 2, 3, 4, 5}));
    return all;
}

template <class M>
Bytes saved(M& memory, Sequence s) {
    Disk disk;
    REQUIRE(save("f", memory, s, {.write = {.files = &disk}}));
    return disk.now.at("f")->now;
}

template <class M>
FileResult<void> load_into(M& memory, Sequence s, const Bytes& bytes) {
    Disk disk;
    disk.put("f", bytes);
    return load("f", memory, s, {.read = {.files = &disk}});
}

/// A hybrid whose recurrent member has room for so many snapshots.
toy::Memory hybrid(int snapshots, int cells = 40) {
    return toy::Memory{
        toy::layers,
        toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
        toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .cells = cells, .batch = 8}},
        toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .rollback = 1, .snapshots = snapshots}}};
}

} // namespace

TEST_CASE("what a sequence remembers is loaded into another layout, element type and window") {
    Numbers from = filled();
    const std::string before = numbers::portrait(from);
    const Bytes file = saved(from, Sequence{0});
    CHECK(numbers::portrait(from) == before);
    CHECK(from.statistics().snapshots == 0);
    const auto check = [&](auto to) {
        REQUIRE(load_into(to, Sequence{1}, file));
        CHECK(values(to, 1) == Values{1, 2, 3, 4, 5});
        CHECK(to.next(Sequence{1}) == Position{5});
        CHECK(to.statistics().offloaded == 0);
    };
    const CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 4};
    check(cache());
    check(Cache<PermutedV<bf16>>{shape, limits});
    check(Cache<StandardV<half>, SlidingWindow<3>>{shape, limits});
}

TEST_CASE("a sequence gives up its own tokens for what is loaded, or keeps them if the memory refuses") {
    Numbers from = filled();
    const Bytes file = saved(from, Sequence{0});
    Numbers to = cache();
    numbers::feed(to, prompt(0, 0, {6, 6, 6}));
    numbers::feed(to, prompt(1, 0, {7, 7, 7, 7}));
    const std::string before = numbers::portrait(to);
    const auto refused = load_into(to, Sequence{0}, file); // 1 + 3 cells are free
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error() == FileReason::refused);
    CHECK(refused.error().message == "f: the memory refuses: " + to_string(refused.error().refusal));
    CHECK(numbers::portrait(to) == before);
    REQUIRE(load_into(to, Sequence{1}, file));
    CHECK(values(to, 1) == Values{1, 2, 3, 4, 5});
    CHECK(values(to, 0) == Values{6, 6, 6});
}

TEST_CASE("saving a sequence ends no schedule") {
    numbers::Cache<SlidingWindow<2>> from{shape, {.sequences = 2, .capacity = 20, .batch = 8}};
    REQUIRE(from.schedule(Sequence{0}, Position{5}));
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5}));
    CHECK_FALSE(saved(from, Sequence{0}).empty());
    numbers::feed(from, prompt(0, 5, {6, 7, 8, 9}));
    CHECK(from.can_resume(Sequence{0}, Position{5}));
    CHECK(from.snapshot(Sequence{0}, Position{0}, Position{5}).value().to() == Position{5});
    CHECK_FALSE(from.can_resume(Sequence{0}, Position{5})); // this one ended it
}

TEST_CASE("a file whose members end at different positions is unsuitable for a hybrid") {
    toy::Memory from = hybrid(1);
    REQUIRE(toy::feed(from, toy::text(0, 0, 8)));
    const Bytes file = saved(from, Sequence{0});
    for (const std::string end : {"5", "9", "2147483647"}) {
        toy::Memory to = hybrid(1);
        const auto refused = load_into(to, Sequence{1}, disk::with(file, {{"members.2.to", end}}));
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == FileReason::unsuitable);
        CHECK(refused.error().message
              == "f: member 2: its snapshot ends at position " + end + ", expected 8, as in the members before");
        CHECK(to.next(Sequence{1}) == Position{0});
    }
}

TEST_CASE("a file whose member begins behind the end of the others is unsuitable for a hybrid") {
    const CacheLimits limits{.sequences = 2, .cells = 20, .batch = 8};
    const CacheShape one{.layers = 1, .kv_heads = 1, .head_dim = 1};
    using Inputs = EncoderMemory<StandardV<float>>;
    using Flat = Hybrid<Repeat<toy::Full>, toy::Full, Inputs>;
    using Nested = Hybrid<Repeat<Flat>, Flat, Inputs>;
    const auto flat = [&] { return Flat{1, toy::Full{one, limits}, Inputs{one, limits}}; };
    const auto check = [](const auto& make, auto& from, const std::string& inputs, const std::string& member) {
        const Bytes file = saved(from, Sequence{0});
        for (const std::string begin : {"7", "2147483647"}) {
            auto to = make();
            const auto refused = load_into(
                to, Sequence{1}, disk::with(file, {{inputs + ".from", begin}, {inputs + ".to", "2147483647"}}));
            REQUIRE_FALSE(refused);
            CHECK(refused.error() == FileReason::unsuitable);
            CHECK(refused.error().message
                  == "f: " + member + ": its snapshot or that of a member before begins at position " + begin
                         + ", expected at most 6, where they end");
            CHECK(to.next(Sequence{1}) == Position{0});
        }
        auto to = make();
        CHECK(load_into(to, Sequence{1}, disk::with(file, {{inputs + ".from", "6"}})));
    };
    Flat from = flat();
    REQUIRE(toy::feed(from, toy::text(0, 0, 6), 1));
    check(flat, from, "members.1", "member 1");
    const auto nested = [&] { return Nested{1, flat(), Inputs{one, limits}}; };
    Nested outer = nested();
    {
        auto pass = outer.begin(BatchBuilder{Sequence{0}, Position{0}, 6}).value();
        pass.of<Flat>().of<toy::Full>().mark_put(0);
        pass.commit();
    }
    check(nested, outer, "members.1", "member 1");
}

TEST_CASE("a sequence without tokens is saved, and empties the one that loads it") {
    Numbers from = filled();
    const Bytes file = saved(from, Sequence{2});
    REQUIRE(load_into(from, Sequence{0}, file));
    CHECK(from.next(Sequence{0}) == Position{0});
    CHECK(from.tokens(Sequence{0}) == 0);
    CHECK(from.tokens(Sequence{1}) == 2);
}

TEST_CASE("a sequence of a hybrid is saved with all members; a refusal leaves the file and the memory") {
    toy::Memory from = hybrid(1);
    REQUIRE(toy::feed(from, toy::text(0, 0, 8)));
    REQUIRE(toy::feed(from, toy::text(0, 8, 5)));
    const Bytes file = saved(from, Sequence{0});
    toy::Memory to = hybrid(0);
    REQUIRE(load_into(to, Sequence{1}, file));
    CHECK(to.next(Sequence{1}) == Position{13});
    REQUIRE(toy::feed(from, toy::text(0, 13, 2)));
    REQUIRE(toy::feed(to, toy::text(1, 13, 2)));
    const auto state = [](const toy::Memory& m, Sequence s) {
        const auto& states = m.member<toy::Recurrent>();
        return states.view<toy::Hash>(0, states.state(s))(0);
    };
    CHECK(state(to, Sequence{1}) == state(from, Sequence{0}));

    Disk disk;
    disk.put("f", file);
    const std::string before = toy::portrait(to);
    const auto refused = save("f", to, Sequence{1}, {.write = {.files = &disk}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::too_many_snapshots);
    CHECK(refused.error().refusal.member == 2);
    CHECK(disk.now.at("f")->now == file);
    CHECK(disk.now.size() == 1);
    toy::Memory small = hybrid(0, 12);
    const std::string nothing = toy::portrait(small);
    CHECK(load_into(small, Sequence{0}, file).error() == Reason::full);
    CHECK(toy::portrait(small) == nothing);
    CHECK(toy::portrait(to) == before);
}

TEST_CASE("a file with a byte changed, or cut off, leaves the sequence as it was") {
    Numbers from = filled();
    const Bytes whole = saved(from, Sequence{0});
    Numbers to = cache();
    numbers::feed(to, prompt(0, 0, {6, 6, 6}));
    const std::string before = numbers::portrait(to);
    for (std::size_t at = 0; at < whole.size(); at += 7) {
        Bytes bytes = whole;
        bytes[at] ^= std::byte{0x10};
        CAPTURE(at);
        CHECK_FALSE(load_into(to, Sequence{0}, bytes));
        CHECK_FALSE(load_into(to, Sequence{0}, Bytes{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}));
    }
    CHECK(numbers::portrait(to) == before);
}

TEST_CASE("a crash while a sequence is saved leaves the old file or the new one") {
    Numbers from = filled();
    Disk first;
    REQUIRE(save("f", from, Sequence{0}, {.write = {.files = &first}}));
    for (int call = 0; call < first.calls; ++call) {
        Disk disk;
        disk.put("f", saved(from, Sequence{1}));
        disk.crash_at = call;
        CAPTURE(call);
        try {
            static_cast<void>(save("f", from, Sequence{0}, {.write = {.files = &disk}}));
        } catch (const disk::Crash&) {}
        for (const After what : {After::end_of_process, After::loss_of_power, After::half_of_each_write}) {
            Disk later = after(disk, what);
            Numbers to = cache();
            REQUIRE(load("f", to, Sequence{0}, {.read = {.files = &later}}));
            CHECK((values(to, 0) == Values{9, 9} || values(to, 0) == Values{1, 2, 3, 4, 5}));
        }
    }
}

TEST_CASE("a lack of memory while a sequence is saved or loaded changes nothing") {
    const Folder folder;
    const auto path = folder.path / "f";
    Numbers from = filled();
    REQUIRE(save(path, from, Sequence{1}));
    const std::string before = numbers::portrait(from);
    const auto save_it = [&] {
        const auto done = save(path, from, Sequence{0});
        REQUIRE(done);
    };
    CHECK(failures_of(save_it, [&] { CHECK(from.statistics().snapshots == 0); }) > 20);
    CHECK(numbers::portrait(from) == before);
    Numbers to = cache();
    numbers::feed(to, prompt(0, 0, {6, 6, 6}));
    const std::string unchanged = numbers::portrait(to);
    const auto load_it = [&] {
        const auto done = load(path, to, Sequence{0});
        REQUIRE(done);
    };
    CHECK(failures_of(load_it, [&] { CHECK(numbers::portrait(to) == unchanged); }) > 20);
    CHECK(values(to, 0) == Values{1, 2, 3, 4, 5});
}

TEST_CASE("a file is loaded if its model and notes are those that the program asks for") {
    const Folder folder;
    Numbers from = filled();
    REQUIRE(save(folder.path / "f", from, Sequence{0}, {.model = "tiny", .notes = {{"a", "x"}}}));
    CHECK(read_notes(folder.path / "f").value() == FileNotes{{"a", "x"}});
    Numbers to = cache();
    CHECK(load(folder.path / "f", to, Sequence{2}, {.model = "huge"}).error() == FileReason::unsuitable);
    CHECK(load(folder.path / "f", to, Sequence{2}, {.notes = {{"a", "y"}}}).error() == FileReason::unsuitable);
    REQUIRE(load(folder.path / "f", to, Sequence{1}, {.model = "tiny"}));
    CHECK(values(to, 1) == Values{1, 2, 3, 4, 5});
}

} // namespace test_sequences
