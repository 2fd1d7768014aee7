// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "allocation_count.hpp"
#include "recurrent/folding.hpp"
#include "skip.hpp"
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>

#include <cstdint>
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
        const cellar::Tokens batch = batch_of(tokens);
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

} // namespace

TEST_CASE("allocations: passes over recurrent states make none once lists have reached their size") {
    if (!installed) CELLAR_SKIP("allocations are counted with glibc or the address sanitizer only");
    for (const std::int32_t sequences : {1, 8, 64}) {
        CAPTURE(sequences);
        CHECK(allocations_of(sequences, 0, 0) == 0);
        CHECK(allocations_of(sequences, 3, 0) == 0);
        CHECK(allocations_of(sequences, 2, 8) == 0);
    }
}

} // namespace test_recurrent_allocations
