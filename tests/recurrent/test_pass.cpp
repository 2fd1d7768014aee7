// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent/folding.hpp"
#include "violations.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <utility>
#include <vector>

using namespace recurrent_test;
using cellar::HostBackend;
using cellar::Part;
using cellar::Refusal;
using cellar::StateLimits;

TEST_CASE_TEMPLATE("pass: states go on from pass to pass, for each sequence", Backend, HostBackend,
                   cellar::EigenBackend) {
    for (const bool in_place : {false, true}) {
        CAPTURE(in_place);
        Folding<Backend> memory{shape(), {.sequences = 3, .batch = 8}};
        REQUIRE(feed(memory, text(0, 0, 3) + text(2, 0, 3, 50), in_place));
        CHECK(holds(memory, 0, 3, words(3)));
        CHECK(holds(memory, 2, 3, words(3, 50)));
        CHECK(memory.kept({1}).empty());
        REQUIRE(feed(memory, text(2, 3, 1, 53) + text(0, 3, 1, 4) + text(1, 0, 1, 90), in_place));
        CHECK(holds(memory, 0, 4, words(4)));
        CHECK(holds(memory, 1, 1, words(1, 90)));
        CHECK(holds(memory, 2, 4, words(4, 50)));
        CHECK(memory.next({2}) == Position{4});
    }
}

TEST_CASE("pass: equally many tokens of all sequences are one part") {
    Folding<> memory{shape(), {.sequences = 3, .batch = 12}};
    const auto tokens = text(1, 0, 4) + text(0, 0, 4) + text(2, 0, 4);
    auto pass = memory.begin(Batch{tokens});
    REQUIRE(pass);
    REQUIRE(pass->parts().size() == 1);
    const Part& part = pass->parts()[0];
    CHECK(part.sequences() == 3);
    CHECK(part.length() == 4);
    CHECK(part.sequence(0) == Sequence{1});
    CHECK(part.tokens(1)[0] == 4);
    const auto state = pass->get<Wide>(0, part);
    CHECK(state.is_contiguous());
    CHECK(state.extent(0) == 3);
    CHECK(state.extent(1) == rows);
    CHECK(state.extent(2) == columns);
}

TEST_CASE("pass: a dropped pass never happened, and the next one is the same") {
    Folding<> memory{shape(), {.sequences = 2, .batch = 8, .rollback = 1}};
    REQUIRE(feed(memory, text(0, 0, 3)));
    const auto before = memory.statistics();
    const auto tokens = text(0, 3, 2, 4) + text(1, 0, 1);
    std::vector<int> targets[2];
    for (auto& list : targets) {
        auto pass = memory.begin(Batch{tokens});
        REQUIRE(pass);
        CHECK(memory.statistics().used > before.used);
        for (const Part& part : pass->parts())
            for (const cellar::Slot slot : part.targets()) list.push_back(slot);
        fold(*pass, tokens);
        pass->drop();
        CHECK(memory.statistics() == before);
        CHECK(kept(memory, 0) == std::vector<int>{2, 3});
        CHECK(holds(memory, 0, 3, words(3)));
        CHECK(memory.kept({1}).empty());
    }
    CHECK(targets[0] == targets[1]);
    CHECK(targets[0].size() == 3);
    REQUIRE(feed(memory, tokens));
    CHECK(holds(memory, 0, 5, words(5)));
}
