// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Several sequences in one file.
#include "cache/numbers.hpp"
#include "folder.hpp"
#include "hybrid/failing_allocations.hpp"
#include "hybrid/toy.hpp"
#include "made_files.hpp"
#include "violations.hpp"
#include <cellar/files/sequence_file.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace test_all_sequences {

namespace {

using namespace cellar;
using disk::Bytes;
using disk::Disk;
using disk::with;
using numbers::prompt;
using numbers::Values;
using numbers::values;

using Numbers = numbers::Cache<>;
using List = std::vector<Sequence>;

const CacheShape shape{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 1};

Numbers cache(std::int32_t cells = 32, std::int32_t sequences = 5) {
    return {shape, {.sequences = sequences, .cells = cells, .batch = 8}};
}

/// Five sequences: 1 and 2 share the first four tokens of 0, and 2 another two of 1; 3 is apart, and 4 is empty. They
/// need 6 + 4 + 1 + 2 cells.
Numbers related() {
    Numbers all = cache();
    numbers::feed(all, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    CHECK(all.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    numbers::feed(all, prompt(1, 4, {15, 16, 17, 18}));
    CHECK(all.copy_prefix(Sequence{1}, Sequence{2}, Position{6}));
    numbers::feed(all, prompt(2, 6, {27}));
    numbers::feed(all, prompt(3, 0, {31, 32}));
    return all;
}

/// Counts what is restored, and copied.
struct Counting : Numbers {
    explicit Counting(Numbers numbers) : Numbers{std::move(numbers)} {}
    Result<void> restore(Sequence s, const CellSnapshot& snapshot) {
        ++restored;
        return Numbers::restore(s, snapshot);
    }
    Result<void> copy_prefix(Sequence from, Sequence to, Position end) {
        ++copied;
        return Numbers::copy_prefix(from, to, end);
    }
    int restored = 0;
    int copied = 0;
};

void check_related(auto& all) {
    CHECK(values(all, 0) == Values{1, 2, 3, 4, 5, 6});
    CHECK(values(all, 1) == Values{1, 2, 3, 4, 15, 16, 17, 18});
    CHECK(values(all, 2) == Values{1, 2, 3, 4, 15, 16, 27});
    CHECK(values(all, 3) == Values{31, 32});
    CHECK(all.next(Sequence{2}) == Position{7});
    CHECK(all.tokens(Sequence{4}) == 0);
    CHECK(all.statistics().free == all.cells() - 13);
    CHECK(all.statistics().snapshots == 0);
    CHECK(all.statistics().offloaded == 0);
    CHECK(audit(all) == "");
}

template <class M, class Which>
Bytes saved(M& memory, const Which& sequences) {
    Disk disk;
    REQUIRE(save("f", memory, sequences, {.write = {.files = &disk}}));
    return disk.now.at("f")->now;
}

template <class M, class Which>
FileResult<void> load_into(M& memory, const Which& sequences, const Bytes& bytes) {
    Disk disk;
    disk.put("f", bytes);
    return load("f", memory, sequences, {.read = {.files = &disk}});
}

toy::Memory hybrid(int snapshots, int cells = 40) {
    return toy::Memory{
        toy::layers,
        toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .capacity = 100, .batch = 8}},
        toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 4, .cells = cells, .batch = 8}},
        toy::Recurrent{{1, {{1}}}, {.sequences = 4, .batch = 8, .rollback = 1, .snapshots = snapshots}}};
}

float state(const toy::Memory& memory, Sequence s) {
    const auto& states = memory.member<toy::Recurrent>();
    return states.view<toy::Hash>(0, states.state(s))(0);
}

} // namespace

TEST_CASE("saving all sequences ends no schedule") {
    numbers::Cache<SlidingWindow<2>> all{shape, {.sequences = 2, .capacity = 20, .batch = 8}};
    REQUIRE(all.schedule(Sequence{0}, Position{3}));
    numbers::feed(all, prompt(0, 0, {1, 2, 3}));
    REQUIRE(all.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    REQUIRE(all.schedule(Sequence{0}, Position{6}));
    numbers::feed(all, prompt(0, 3, {4, 5, 6}));
    Disk disk;
    REQUIRE(save("f", all, all_sequences, {.write = {.files = &disk}})); // the part that both share ends at 3
    CHECK(all.can_resume(Sequence{0}, Position{3}));
    numbers::feed(all, prompt(0, 6, {7, 8, 9}));
    CHECK(all.can_resume(Sequence{0}, Position{3}));
    CHECK(all.can_resume(Sequence{0}, Position{6}));
}

TEST_CASE("sequences that go on at the start of a chunk without any token are saved with where they go on") {
    using Chunks = numbers::Cache<ChunkedAttention<4>>;
    const CacheLimits limits{.sequences = 4, .capacity = 40, .batch = 20};
    Chunks from{shape, limits};
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) + prompt(1, 0, {1, 2, 3}));
    REQUIRE(from.remove(Sequence{0}, Position{4}, to_end));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{2}, Position{4}));
    numbers::feed(from, prompt(2, 4, {20, 21}));
    const Bytes file = saved(from, all_sequences);
    Chunks to{shape, limits};
    REQUIRE(load_into(to, all_sequences, file));
    for (int s = 0; s < 4; ++s) {
        CHECK(to.next(Sequence{s}) == from.next(Sequence{s}));
        CHECK(values(to, s) == values(from, s));
    }
    numbers::feed(to, prompt(0, 4, {30}));
    CHECK(saved(from, List{Sequence{0}}) != saved(from, List{Sequence{3}}));
    Chunks cut{shape, limits};
    numbers::feed(cut, prompt(3, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    REQUIRE(cut.rewind(Sequence{3}, Position{4}));
    REQUIRE(cut.next(Sequence{3}) == Position{4});
    REQUIRE(cut.tokens(Sequence{3}) == 0);
    const Refusal goes_on{.reason = Reason::not_empty, .sequence = Sequence{3}};
    CHECK(load_into(cut, all_sequences, file).error().refusal == goes_on);
    CHECK(load("f", cut, List{Sequence{0}, Sequence{3}}).error().refusal == goes_on);
    CHECK(cut.next(Sequence{3}) == Position{4});
    CHECK(cut.tokens(Sequence{0}) == 0);
    REQUIRE(cut.rewind(Sequence{3}, Position{0}));
    REQUIRE(load_into(cut, all_sequences, file));
    CHECK(cut.next(Sequence{3}) == Position{0});
    CHECK(audit(to) == "");
}

TEST_CASE("all sequences are saved, cells that they share once, and share them when they are loaded") {
    Numbers from = related();
    check_related(from);
    const std::string before = numbers::portrait(from);
    const Bytes file = saved(from, all_sequences);
    CHECK(numbers::portrait(from) == before);
    Numbers to = cache(13);
    REQUIRE(load_into(to, all_sequences, file));
    check_related(to);
    CHECK(saved(to, all_sequences) == file);
    Disk disk;
    disk.put("f", file);
    const auto reader = FileReader::open("f", {.files = &disk}).value();
    std::uint64_t tokens = 0;
    for (const StoredTensor& tensor : reader.tensors())
        if (tensor.name.ends_with(".positions")) tokens += tensor.shape[0];
    CHECK(tokens == 13);
    CHECK(*reader.metadata("snapshot.sequences.4") == "-1");
}

TEST_CASE("each part of a file is restored once, however many sequences have it") {
    Numbers from = related();
    Counting to{cache(13)};
    REQUIRE(load_into(to, all_sequences, saved(from, all_sequences)));
    check_related(to);
    CHECK(to.restored == 6); // parts: two of 0, two of 1, one of 2, one of 3
    CHECK(to.copied == 2);
    Counting many{cache(13, 40)};
    const List chosen(40, Sequence{2}); // 40 times three parts
    List all;
    for (int s = 0; s < 40; ++s) all.push_back(Sequence{s});
    REQUIRE(load_into(many, all, saved(from, chosen)));
    CHECK(many.restored == 1);
    CHECK(many.copied == 39);
    for (const Sequence s : all) CHECK(values(many, s.value) == Values{1, 2, 3, 4, 15, 16, 27});
    CHECK(many.statistics().free == 13 - 7);
    CHECK(audit(many) == "");
}

TEST_CASE("a part that others follow is divided when a sequence leaves it earlier") {
    Numbers from = cache();
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{5}));
    numbers::feed(from, prompt(1, 5, {16, 17}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{2}, Position{2}));
    numbers::feed(from, prompt(2, 2, {23}));
    Numbers to = cache(9);
    REQUIRE(load_into(to, all_sequences, saved(from, all_sequences)));
    CHECK(values(to, 0) == Values{1, 2, 3, 4, 5, 6});
    CHECK(values(to, 1) == Values{1, 2, 3, 4, 5, 16, 17});
    CHECK(values(to, 2) == Values{1, 2, 23});
    CHECK(to.statistics().free == 0);
}

TEST_CASE("sequences are loaded into another layout and element type, and a larger memory") {
    Numbers from = related();
    const Bytes file = saved(from, all_sequences);
    Cache<PermutedV<half>> to{shape, {.sequences = 7, .cells = 40, .batch = 2}};
    REQUIRE(load_into(to, all_sequences, file));
    check_related(to);
    CHECK(to.tokens(Sequence{6}) == 0);
}

TEST_CASE("chosen sequences are loaded as others, in the order of the list") {
    Numbers from = related();
    const Bytes file = saved(from, List{Sequence{2}, Sequence{4}, Sequence{0}, Sequence{2}});
    Numbers to = cache(20);
    numbers::feed(to, prompt(0, 0, {7, 7, 7}));
    REQUIRE(load_into(to, List{Sequence{1}, Sequence{2}, Sequence{4}, Sequence{3}}, file));
    CHECK(values(to, 0) == Values{7, 7, 7});
    CHECK(values(to, 1) == Values{1, 2, 3, 4, 15, 16, 27});
    CHECK(to.tokens(Sequence{2}) == 0);
    CHECK(values(to, 3) == values(to, 1));
    CHECK(values(to, 4) == Values{1, 2, 3, 4, 5, 6});
    CHECK(to.statistics().free == 20 - 3 - 9);
    CHECK(audit(to) == "");
}

TEST_CASE("sequences of a window are stored on their own once one has forgotten tokens") {
    using Window = Cache<StandardV<float>, SlidingWindow<3>>;
    const CacheLimits limits{.sequences = 3, .capacity = 20, .batch = 4};
    Window from{shape, limits};
    numbers::feed(from, prompt(0, 0, {1, 2}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{2}));
    numbers::feed(from, prompt(1, 2, {13}));
    const Bytes shared = saved(from, all_sequences);
    for (int p = 3; p < 15; p += 4) {
        const auto x = static_cast<float>(p);
        numbers::feed(from, prompt(1, p, {x, x + 1, x + 2, x + 3}));
    }
    REQUIRE(from.copy_prefix(Sequence{1}, Sequence{2}, Position{15}));
    const Bytes apart = saved(from, all_sequences);
    Window to{shape, limits};
    REQUIRE(load_into(to, all_sequences, shared));
    CHECK(values(to, 0) == Values{1, 2});
    CHECK(values(to, 1) == Values{1, 2, 13});
    CHECK(to.statistics().free == to.cells() - 3);
    Window later{shape, limits};
    REQUIRE(load_into(later, all_sequences, apart));
    for (const int s : {0, 1, 2}) {
        CHECK(values(later, s) == values(from, s));
        CHECK(later.next(Sequence{s}) == from.next(Sequence{s}));
    }
    CHECK(later.statistics().shared == from.statistics().shared); // 1 and 2 have the same window
}

TEST_CASE("the sequences of a hybrid are saved and loaded with all members, all or none") {
    toy::Memory from = hybrid(1);
    REQUIRE(toy::feed(from, toy::text(0, 0, 8)));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{8}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{2}, Position{8}));
    REQUIRE(toy::feed(from, toy::text(2, 8, 5)));
    const std::string before = toy::portrait(from);
    const Bytes file = saved(from, all_sequences);
    CHECK(toy::portrait(from) == before);
    for (const int snapshots : {0, 1}) {
        toy::Memory to = hybrid(snapshots);
        REQUIRE(load_into(to, all_sequences, file));
        for (const int s : {0, 1, 2}) {
            CHECK(to.next(Sequence{s}) == from.next(Sequence{s}));
            CHECK(state(to, Sequence{s}) == state(from, Sequence{s}));
            CHECK(numbers::values(to.member<toy::Full>(), s) == numbers::values(from.member<toy::Full>(), s));
        }
        REQUIRE(toy::feed(to, toy::text(1, 8, 3)));
    }
    toy::Memory small = hybrid(1, 12);
    const std::string nothing = toy::portrait(small);
    const auto refused = load_into(small, all_sequences, file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error().refusal.member == 1);
    CHECK(small.next(Sequence{0}) == Position{0});
    CHECK(small.member<toy::Full>().statistics().free == 12);
    CHECK(small.member<toy::Recurrent>().statistics().used == 0);
    toy::Memory without = hybrid(0);
    REQUIRE(load_into(without, all_sequences, file));
    Disk disk;
    CHECK(save("f", without, all_sequences, {.write = {.files = &disk}}).error() == Reason::too_many_snapshots);
    CHECK(disk.now.empty());
}

TEST_CASE("sequences of a hybrid share what one of them can still go back to") {
    toy::Memory from = hybrid(1);
    REQUIRE(toy::feed(from, toy::text(0, 0, 3)));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    REQUIRE(toy::feed(from, toy::text(0, 3, 1)));
    const Bytes file = saved(from, all_sequences);
    Disk disk;
    disk.put("f", file);
    const auto reader = FileReader::open("f", {.files = &disk}).value();
    CHECK(reader.find("parts.0.members.1.positions")->shape[0] == 3);
    CHECK(reader.find("parts.1.members.1.positions")->shape[0] == 1);
    CHECK(*reader.metadata("snapshot.parts") == "2");
    toy::Memory to = hybrid(1);
    REQUIRE(load_into(to, all_sequences, file));
    for (const int s : {0, 1}) {
        CHECK(to.next(Sequence{s}) == from.next(Sequence{s}));
        CHECK(state(to, Sequence{s}) == state(from, Sequence{s}));
    }
    CHECK(to.member<toy::Full>().statistics().shared == 3);
}

TEST_CASE("the inputs of several sequences of an encoder memory are saved and loaded") {
    const CacheLimits limits{.sequences = 3, .cells = 10, .batch = 6};
    EncoderMemory<> from{shape, limits};
    for (const int p : {3, 7}) {
        auto pass = from.write(Sequence{0}, Position{p}, 2).value();
        const std::vector<float> k(4, static_cast<float>(p));
        for (int layer = 0; layer < 2; ++layer) pass.put(layer, k, std::vector<float>{1, 2});
        pass.commit();
    }
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{2}, Position{5}));
    const Bytes file = saved(from, all_sequences);
    EncoderMemory<> to{shape, limits};
    REQUIRE(load_into(to, all_sequences, file));
    CHECK(to.tokens(Sequence{0}) == 4);
    CHECK(to.tokens(Sequence{1}) == 0);
    CHECK(to.range(Sequence{2}) == PositionRange{Position{3}, Position{3}});
    CHECK(load_into(to, List{Sequence{2}}, file).error() == Reason::not_empty);
}

TEST_CASE("a sequence of an encoder memory without inputs needs no sequence where the file is loaded") {
    EncoderMemory<> from{shape, {.sequences = 3, .cells = 10, .batch = 6}};
    auto pass = from.write(Sequence{1}, Position{3}, 2).value();
    for (int layer = 0; layer < 2; ++layer) pass.put(layer, std::vector<float>{1, 2, 3, 4}, std::vector<float>{1, 2});
    pass.commit();
    EncoderMemory<> to{shape, {.sequences = 2, .cells = 10, .batch = 6}};
    REQUIRE(load_into(to, all_sequences, saved(from, all_sequences)));
    CHECK(to.tokens(Sequence{0}) == 0);
    CHECK(to.range(Sequence{1}) == PositionRange{Position{3}, Position{3}});
}

TEST_CASE("inputs that wait for the next token of a hybrid are saved and loaded, and shared where they were") {
    const CacheLimits limits{.sequences = 8, .cells = 60, .batch = 8};
    using Inputs = EncoderMemory<StandardV<float>>;
    using Memory = Hybrid<Repeat<toy::Full>, toy::Full, Inputs>;
    const auto memory = [&] {
        return Memory{1, toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
                      Inputs{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    };
    const auto write = [](Memory& m, int s, float value) {
        auto pass = m.member<Inputs>().write(Sequence{s}, m.next(Sequence{s}), 2).value();
        pass.put(0, std::vector<float>{value, value}, std::vector<float>{value, value});
        pass.commit();
    };
    const auto all_of = [](Memory& m, int s) { // without the cells
        return std::regex_replace(toy::contents(m.member<toy::Full>(), s) + ';' + toy::contents(m.member<Inputs>(), s),
                                  std::regex{"@[0-9]+"}, "");
    };
    Memory from = memory();
    REQUIRE(toy::feed(from, toy::text(0, 0, 4), 1));
    write(from, 0, 10);
    for (const int s : {1, 2, 3}) REQUIRE(from.copy_prefix(Sequence{0}, Sequence{s}, Position{4})); // 1 is as 0
    REQUIRE(toy::feed(from, toy::text(2, 4, 3), 1));                                                // 2 goes on
    write(from, 2, 20);
    REQUIRE(from.member<Inputs>().remove(Sequence{3}, Position{4}, to_end)); // 3 has another input
    write(from, 3, 30);
    REQUIRE(from.copy_prefix(Sequence{2}, Sequence{4},
                             Position{5})); // 4 leaves the tokens of 2, and has an input of its own
    write(from, 4, 40);
    write(from, 5, 50); // no tokens yet
    REQUIRE(from.copy_prefix(Sequence{5}, Sequence{6}, Position{0}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{7}, Position{3})); // no input
    CHECK(all_of(from, 6) == "; 0:50 0:50");

    for (const List& order :
         {List{Sequence{0}, Sequence{1}, Sequence{2}, Sequence{3}, Sequence{4}, Sequence{5}, Sequence{6}, Sequence{7}},
          List{Sequence{7}, Sequence{6}, Sequence{5}, Sequence{4}, Sequence{3}, Sequence{2}, Sequence{1}, Sequence{0}},
          List{Sequence{2}, Sequence{4}, Sequence{1}, Sequence{3}, Sequence{7}, Sequence{0}, Sequence{5}, Sequence{6}},
          List{Sequence{3}, Sequence{7}, Sequence{2}, Sequence{0}, Sequence{4}, Sequence{6}, Sequence{1},
               Sequence{5}}}) {
        Memory to = memory();
        REQUIRE(load_into(to, order, saved(from, order)));
        for (int s = 0; s < 8; ++s) CHECK(all_of(to, s) == all_of(from, s));
        CHECK(audit(to.member<Inputs>()) == "");
        Memory alone = memory();
        for (const Sequence s : order) {
            REQUIRE(load_into(alone, List{s}, saved(from, List{s})));
            CHECK(all_of(alone, s.value) == all_of(from, s.value));
        }
    }
    for (const List& pair : {List{Sequence{0}, Sequence{1}}, List{Sequence{5}, Sequence{6}}}) {
        Memory to = memory();
        REQUIRE(load_into(to, pair, saved(from, pair)));
        CHECK(to.member<Inputs>().statistics().free == 58);
    }
    Memory to = memory();
    REQUIRE(load_into(to, List{Sequence{5}}, saved(from, List{Sequence{5}})));
    const auto refused = load_into(to, List{Sequence{5}}, saved(from, List{Sequence{5}}));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().refusal == Refusal{.reason = Reason::not_empty, .sequence = Sequence{5}});
    CHECK(from.member<Inputs>().statistics().snapshots == 0);
}

TEST_CASE("what was loaded of a hybrid without tokens is dropped if a later sequence is refused") {
    const auto memory = [&](std::int32_t cells) {
        const CacheLimits limits{.sequences = 2, .cells = cells, .batch = 8};
        return Hybrid<Repeat<toy::Full>, toy::Full, EncoderMemory<>>{
            1, toy::Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits},
            EncoderMemory<>{{.layers = 1, .kv_heads = 1, .head_dim = 1}, limits}};
    };
    auto from = memory(8);
    for (const int s : {0, 1}) {
        auto pass = from.member<1>().write(Sequence{s}, Position{0}, 4).value();
        pass.mark_put(0);
        pass.commit();
    }
    auto to = memory(6);
    const auto refused = load_into(to, all_sequences, saved(from, all_sequences));
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == Reason::full);
    CHECK(to.member<1>().statistics().free == 6);
}

TEST_CASE("the sequences that cannot go on are left out, and named, if the program asks for the others") {
    using Sliding = numbers::Cache<SlidingWindow<4>>;
    const CacheLimits limits{.sequences = 3, .capacity = 40, .batch = 20, .positions = Positions::any};
    Sliding from{shape, limits};
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, to_end));
    numbers::feed(from, prompt(2, 0, {1, 2}));
    REQUIRE(from.remove(Sequence{1}, Position{7}, to_end)); // of 4 to 6, which the next one sees, 5 and 6 are left
    const std::string before = numbers::portrait(from);
    Disk disk;
    const auto refused = save("f", from, all_sequences, {.write = {.files = &disk}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().refusal == Refusal{.reason = Reason::cannot_resume, .sequence = Sequence{1}});
    CHECK(disk.now.empty());
    CHECK(save("f", from, resumable_sequences, {.write = {.files = &disk}}).value() == List{Sequence{1}});
    CHECK(numbers::portrait(from) == before);
    Sliding to{shape, limits};
    REQUIRE(load("f", to, all_sequences, {.read = {.files = &disk}}));
    CHECK(values(to, 0) == values(from, 0));
    CHECK(to.next(Sequence{1}) == Position{0});
    CHECK(values(to, 2) == Values{1, 2});
    REQUIRE(from.rewind(Sequence{1}, Position{0}));
    CHECK(save("f", from, resumable_sequences, {.write = {.files = &disk}}).value().empty());
}

TEST_CASE("files tell from which position on a sequence is altered") {
    const CacheLimits limits{.sequences = 2, .capacity = 40, .batch = 20};
    Numbers from{shape, limits};
    numbers::feed(from, prompt(0, 0, {1, 2, 3, 4, 5, 6}));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{4})); // part 0; the first one has part 1 besides
    numbers::feed(from, prompt(1, 4, {7, 8}));
    REQUIRE(from.remove(Sequence{1}, Position{4}, Position{5}));
    REQUIRE(from.altered_from(Sequence{1}) == Position{4});
    const Bytes file = saved(from, all_sequences);
    Numbers to{shape, limits};
    REQUIRE(load_into(to, all_sequences, file));
    CHECK(to.altered_from(Sequence{0}) == to_end);
    CHECK(to.altered_from(Sequence{1}) == Position{4});
    REQUIRE(to.rewind(Sequence{1}, Position{4}));
    CHECK(to.altered_from(Sequence{1}) == to_end);
}

TEST_CASE("a memory with too few cells refuses all sequences, and none has tokens") {
    Numbers from = related();
    const Bytes file = saved(from, all_sequences);
    for (int cells = 1; cells < 13; ++cells) {
        Numbers to = cache(cells);
        const std::string before = describe(to);
        const auto refused = load_into(to, all_sequences, file);
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == Reason::full);
        CHECK(describe(to) == before);
        CHECK(to.statistics().offloaded == 0);
    }
}

TEST_CASE("a file with another number of sequences, or none, is unsuitable") {
    Numbers from = related();
    const auto refusal = [](Numbers& to, const auto& sequences, const Bytes& file) {
        const auto refused = load_into(to, sequences, file);
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == FileReason::unsuitable);
        return refused.error().message;
    };
    const Bytes file = saved(from, all_sequences);
    Numbers to = cache();
    CHECK(refusal(to, List{Sequence{0}, Sequence{1}}, file) == "f: it has 5 sequences, expected 2");
    Numbers six = cache(32, 6);
    CHECK(refusal(six, List{Sequence{0}, Sequence{1}, Sequence{2}, Sequence{3}, Sequence{4}, Sequence{5}}, file)
          == "f: it has 5 sequences, expected 6");
    Numbers four = cache(32, 4);
    REQUIRE(load_into(four, all_sequences, file)); // the fifth has no tokens
    Numbers three = cache(32, 3);
    CHECK(refusal(three, all_sequences, file) == "f: its sequence 3 has tokens, expected at most 3 sequences");
    CHECK(three.statistics().free == 32);
    Disk disk;
    REQUIRE(save("f", from, Sequence{0}, {.write = {.files = &disk}}));
    CHECK(refusal(to, all_sequences, disk.now.at("f")->now) == "f: it has no sequences");
    REQUIRE(load_into(to, List{}, saved(from, List{})));
    Numbers other{{.layers = 1, .kv_heads = 1, .head_dim = 2, .value_dim = 1},
                  {.sequences = 5, .cells = 20, .batch = 8}};
    CHECK(refusal(other, all_sequences, file) == "f: part 0: it has 2 layers, expected 1");
}

TEST_CASE("a file whose parts contradict each other is unsuitable, and nothing changes") {
    Numbers from = related();
    const Bytes file = saved(from, all_sequences);
    Numbers to = cache();
    const auto refusal = [&](const std::map<std::string, std::string>& changes) {
        const auto refused = load_into(to, all_sequences, with(file, changes));
        REQUIRE_FALSE(refused);
        CHECK(refused.error() == FileReason::unsuitable);
        return refused.error().message;
    };
    REQUIRE(load_into(to, all_sequences, with(file, {})));
    for (int s = 0; s < 5; ++s) REQUIRE(to.remove(Sequence{s}, Position{0}, to_end));
    const std::string before = numbers::portrait(to);
    CHECK(refusal({{"sequences", "-1"}}) == "f: it has no sequences");
    CHECK(refusal({{"parts", "x"}}) == "f: it has no sequences");
    CHECK(refusal({{"sequences", "9000000000000"}}) == "f: its sequence 5 has no valid part");
    CHECK(refusal({{"parts", "9000000000000"}}) == "f: its part 6 has no valid place");
    CHECK(refusal({{"sequences.1", "6"}}) == "f: its sequence 1 has no valid part");
    CHECK(refusal({{"sequences.1", "-2"}}) == "f: its sequence 1 has no valid part");
    CHECK(refusal({{"parts.3.before", "3"}}) == "f: its part 3 has no valid place");
    CHECK(refusal({{"parts.2.before", "-1"}}) == "f: its part 2 does not follow the one before");
    CHECK(refusal({{"parts.1.before", "0"}}) == "f: its part 1 does not follow the one before");
    CHECK(numbers::portrait(to) == before);
}

TEST_CASE("a list with a sequence that is not empty is refused, and one with twice the same is a violation") {
    Numbers all = related();
    const std::string before = numbers::portrait(all);
    const auto refused = load("f", all, List{Sequence{4}, Sequence{3}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().refusal == Refusal{.reason = Reason::not_empty, .sequence = Sequence{3}});
    CHECK(refused.error().message
          == "f: the memory refuses: not empty: the sequence has tokens or inputs already; sequence 3");
    CHECK(numbers::portrait(all) == before);
    CHECK(violation_of([&] {
              static_cast<void>(load("f", all, List{Sequence{4}, Sequence{4}}));
          })
          == "load: sequence 4 is listed twice, expected different ones");
}

TEST_CASE("a file of sequences with a byte changed, or cut off, is refused, and nothing changes") {
    Numbers from = related();
    const Bytes whole = saved(from, all_sequences);
    Numbers to = cache();
    const std::string before = numbers::portrait(to);
    for (std::size_t at = 0; at < whole.size(); at += 13) {
        Bytes bytes = whole;
        bytes[at] ^= std::byte{0x01};
        CAPTURE(at);
        CHECK_FALSE(load_into(to, all_sequences, bytes));
        CHECK_FALSE(
            load_into(to, all_sequences, Bytes{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}));
    }
    CHECK(numbers::portrait(to) == before);
}

TEST_CASE("a lack of memory while sequences are saved or loaded changes nothing") {
    const Folder folder;
    const auto path = folder.path / "f";
    toy::Memory from = hybrid(1);
    REQUIRE(toy::feed(from, toy::text(0, 0, 8)));
    REQUIRE(from.copy_prefix(Sequence{0}, Sequence{1}, Position{8}));
    REQUIRE(toy::feed(from, toy::text(2, 0, 5)));
    const std::string before = toy::portrait(from);
    const auto save_all = [&] {
        const auto done = save(path, from, all_sequences);
        REQUIRE(done);
    };
    CHECK(failures_of(save_all, [&] { CHECK(folder.names().empty()); }) > 20);
    CHECK(toy::portrait(from) == before);
    toy::Memory to = hybrid(1);
    const auto load_all = [&] {
        const auto done = load(path, to, all_sequences);
        REQUIRE(done);
    };
    const auto check = [&] {
        for (int s = 0; s < 4; ++s) CHECK(to.next(Sequence{s}) == Position{0});
        CHECK(to.member<toy::Full>().statistics().free == 40);
        CHECK(to.member<toy::Sliding>().statistics().offloaded == 0);
        CHECK(to.member<toy::Recurrent>().statistics().used == 0);
    };
    CHECK(failures_of(load_all, check) > 20);
    for (const int s : {0, 1, 2}) CHECK(state(to, Sequence{s}) == state(from, Sequence{s}));
}

} // namespace test_all_sequences
