// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "allocation_count.hpp"
#include "recurrent/folding.hpp"
#include "skip.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace test_recurrent_allocations {

using namespace recurrent_test;

namespace {

/// Counts the allocations of passes. A batch has one token of each sequence, or two in every third pass.
std::int64_t allocations_of(std::int32_t sequences, std::int32_t rollback, std::int32_t interval) {
    Folding<> memory{shape(),
                     {.sequences = sequences,
                      .batch = 2 * sequences,
                      .rollback = rollback,
                      .checkpoints = interval == 0 ? 0 : 9,
                      .checkpoint_interval = interval}};
    std::vector<int> next(static_cast<std::size_t>(sequences), 0);
    allocations = 0;
    for (int round = 0; round < 400; ++round) {
        std::vector<Token> tokens;
        for (int s = 0; s < sequences; ++s) {
            int& position = next[static_cast<std::size_t>(s)];
            for (int i = 0; i < 1 + (round + s) % 3 / 2; ++i) tokens.push_back({s, position++, round});
        }
        const cellar::BatchBuilder batch = batch_of(tokens);
        counting = round > 100;
        for (const bool committed : {false, true}) {
            auto pass = memory.begin(batch);
            fold(*pass, tokens, round % 2 == 0);
            if (committed) pass->commit();
        }
        counting = false;
    }
    return allocations;
}

/// Counts the bytes that `begin` allocates for this batch, in a memory with as many sequences, tokens and checkpoints.
std::int64_t bytes_of_begin(std::int32_t size, const std::vector<Token>& tokens) {
    Folding<> memory{shape(),
                     {.sequences = size, .batch = size, .rollback = 1, .checkpoints = size, .checkpoint_interval = 16}};
    const cellar::BatchBuilder batch = batch_of(tokens);
    allocated_bytes = 0;
    counting = true;
    const bool opened = memory.begin(batch).has_value();
    counting = false;
    CHECK(opened);
    return allocated_bytes;
}

} // namespace

TEST_CASE("allocations: passes over recurrent states make none once lists have reached their size") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t sequences : {1, 8, 64}) {
        CAPTURE(sequences);
        CHECK(allocations_of(sequences, 0, 0) == 0);
        CHECK(allocations_of(sequences, 3, 0) == 0);
        CHECK(allocations_of(sequences, 2, 8) == 0);
        CHECK(allocations_of(sequences, 40, 0) == 0);
        CHECK(allocations_of(sequences, 40, 64) == 0);
    }
}

TEST_CASE("allocations: a commit makes none, however many states the pass adds") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t rollback : {0, 1, 7}) {
        CAPTURE(rollback);
        Folding<> memory{
            shape(), {.sequences = 2, .batch = 40, .rollback = rollback, .checkpoints = 30, .checkpoint_interval = 2}};
        std::mt19937 draw{20261127};
        allocations = 0;
        for (int round = 0; round < 1000; ++round) {
            const int s = round % 2;
            const int next = memory.next(cellar::Sequence{s}).value;
            if (draw() % 16 == 0) {
                const auto to =
                    memory.resumable_prefix(cellar::Sequence{s}, cellar::Position{static_cast<int>(draw() % 64)});
                REQUIRE(memory.remove(cellar::Sequence{s}, to, cellar::to_end));
                continue;
            }
            const auto tokens = text(s, next, 1 + static_cast<int>(draw() % (draw() % 8 == 0 ? 40 : 4)), 1);
            auto pass = memory.begin(batch_of(tokens));
            fold(*pass, tokens, true);
            counting = true;
            pass->commit();
            counting = false;
        }
        CHECK(allocations == 0);
    }
}

TEST_CASE("allocations: a sequence has room for the states that its own tokens make, and no more") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t size : {64, 512}) {
        CAPTURE(size);
        std::vector<Token> one_of_each;
        for (std::int32_t s = 0; s < size; ++s) one_of_each.push_back({s, 0, s});
        CHECK(bytes_of_begin(size, one_of_each) == 0); // the constructor has made room
        std::vector<Token> all_of_one;
        for (std::int32_t p = 0; p < size; ++p) all_of_one.push_back({0, p, p});
        const std::size_t kept = static_cast<std::size_t>(size) / 16 + 1; // checkpoints, and one state to go back to
        CHECK(bytes_of_begin(size, all_of_one) <= static_cast<std::int64_t>(2 * kept * sizeof(cellar::KeptState)));
    }
}

} // namespace test_recurrent_allocations
