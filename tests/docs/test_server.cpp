// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/write-a-server.md that is not in an example.
#include <cellar/cellar.hpp>
#include <cellar/serve/plain_memory.hpp>
#include <cellar/serve/scheduler.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace test_server {

using Memory = cellar::Cache<>;
namespace serve = cellar::serve;

namespace {

// [victims]
/// Preempts the request that frees the most cells.
struct MostCells {
    std::size_t operator()(std::span<const serve::Candidate> candidates, const cellar::Refusal&) const {
        const auto frees_less = [&](const serve::Candidate& a, const serve::Candidate& b) {
            return memory->cells_freed_by(a.sequence) < memory->cells_freed_by(b.sequence);
        };
        const auto most = std::max_element(candidates.begin(), candidates.end(), frees_less);
        return static_cast<std::size_t>(most - candidates.begin());
    }

    const Memory* memory;
};
// [/victims]

} // namespace

TEST_CASE("a choice of victims of one's own") {
    Memory memory{{.layers = 1, .kv_heads = 2, .head_dim = 4}, {.sequences = 4, .cells = 70, .batch = 64}};
    serve::Scheduler scheduler{
        serve::PlainMemory{memory}, {.sequences = 4, .batch = 64, .spare = 0}, MostCells{&memory}};
    for (const std::size_t length : {10U, 30U, 20U}) {
        serve::Request request{.tokens = std::vector<std::int32_t>(length), .answer = 10};
        REQUIRE(scheduler.submit(std::move(request)));
    }
    std::vector<serve::RequestId> done;
    while (!scheduler.empty()) {
        auto pass = scheduler.begin().value();
        const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()) * 8);
        pass.put(0, rows, rows);
        pass.commit();
        for (const serve::Part& part : scheduler.parts()) {
            if (!part.at_end || !scheduler.append(part.request, 1)) continue;
            CHECK(scheduler.finish(part.request).size() >= 20);
            done.push_back(part.request);
        }
    }
    CHECK(scheduler.preemptions() == 1);
    CHECK(done == std::vector{serve::RequestId{0}, serve::RequestId{2}, serve::RequestId{1}});
}

} // namespace test_server
