// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../property/adding_shift.hpp"
#include "paths.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_causal {

// The backend that runs the cases. tests/backend/kokkos includes this file with other backends.
#ifndef CELLAR_BACKEND
#define CELLAR_BACKEND cellar::HostBackend
#endif

// The cases in causal.json record the behaviour of another implementation, a cache written in Go. Two of its terms
// differ from those of cellar:
//
// - Its window w shows w + 1 positions, so it is a SlidingWindow<w + 1>. Its memory m is a retention of m + 1.
// - Once early positions are gone, it cannot resume a sequence at position 0, nor where the window reaches down to 0.
//   cellar can always resume at position 0, because a query there needs no earlier token. So the recorded result is
//   `can_resume`, and in addition that the oldest kept position is not above max(0, position - w).
//
// Implementations may use any cells, and hold anything in cells that no token sees. So the tests compare what each
// token of a batch sees.

namespace {

using nlohmann::json;
using Row = std::vector<float>;
using VisibleRows = std::vector<std::pair<Row, Row>>; ///< keys and values, in ascending order

constexpr int end_of_sequence = 2147483647;

struct Extents {
    int dim;
    int heads;
    int tokens;

    explicit Extents(const json& shape) : dim{shape[0]}, heads{shape[1]}, tokens{shape[2]} {}
};

/// The row of one token of a tensor [tokens, heads, dim].
Row key_of(const json& tensor, const Extents& e, int token) {
    Row row;
    for (int i = 0; i < e.heads * e.dim; ++i)
        row.push_back(tensor[static_cast<std::size_t>(token * e.heads * e.dim + i)]);
    return row;
}

/// The same for a tensor [heads, dim, tokens].
Row value_of(const json& tensor, const Extents& e, int token) {
    Row row;
    for (int i = 0; i < e.heads * e.dim; ++i) row.push_back(tensor[static_cast<std::size_t>(i * e.tokens + token)]);
    return row;
}

/// Runs one case on one cache. Keys are put with each element twice, because a shift changes pairs.
template <class Layout, class Window, class Shift>
class Runner {
    using Cache = cellar::Cache<Layout, Window, Shift, CELLAR_BACKEND>;

public:
    Runner(const json& test, Window window, Shift shift)
        : extents_{test["steps"][0]["shape"]},
          cache_{cellar::CacheShape{
                     .layers = 1, .kv_heads = extents_.heads, .head_dim = 2 * extents_.dim, .value_dim = extents_.dim},
                 limits(test), window, shift},
          window_{test["cache"]["window"]} {}

    void run(const json& steps) {
        for (const json& step : steps) {
            CAPTURE(step);
            const std::string op = step["op"];
            if (op == "forward") {
                forward(step);
            } else if (op == "remove") {
                remove(step["seq"], step["begin"], step["end"], !step["expect"]["error"].is_null());
            } else if (op == "copy_prefix") {
                REQUIRE(cache_.copy_prefix(cellar::Sequence{step["src"]}, cellar::Sequence{step["dst"]},
                                           cellar::Position{step["len"]}));
            } else {
                REQUIRE(op == "can_resume");
                CHECK(can_resume(cellar::Sequence{step["seq"]}, cellar::Position{step["pos"]})
                      == step["expect"].get<bool>());
            }
        }
    }

private:
    /// A case may use more sequences than it declares, because the other implementation does not bound their ids.
    static cellar::CacheLimits limits(const json& test) {
        const json& init = test["cache"]["init"];
        int sequences = init["max_sequences"];
        for (const json& step : test["steps"]) {
            if (step.contains("dst")) sequences = std::max(sequences, step["dst"].get<int>() + 1);
            if (step.contains("sequences"))
                for (const int s : step["sequences"]) sequences = std::max(sequences, s + 1);
        }
        return {.sequences = sequences,
                .capacity = init["capacity"],
                .batch = init["max_batch"],
                .padding = test["cache"]["cache_padding"],
                .positions = cellar::Positions::any};
    }

    void forward(const json& step) {
        const Extents e{step["shape"]};
        std::vector<cellar::Position> positions;
        std::vector<cellar::Sequence> sequences;
        for (const int p : step["positions"]) positions.push_back(cellar::Position{p});
        for (const int s : step["sequences"]) sequences.push_back(cellar::Sequence{s});
        auto pass = cache_.begin({positions, sequences});
        REQUIRE(pass);
        REQUIRE(step["v"] == "same");
        Row keys;
        Row values;
        for (int t = 0; t < e.tokens; ++t)
            for (const float x : key_of(step["k"], e, t)) {
                keys.insert(keys.end(), {x, x});
                values.push_back(x);
            }
        pass->put(step["layer"], keys, values);
        if (!step["expect"].is_null()) compare(step, *pass);
        pass->commit();
    }

    template <class Pass>
    void compare(const json& step, Pass& pass) {
        const json& rows = step["expect"]["mask_rows"];
        REQUIRE(rows.size() == static_cast<std::size_t>(pass.tokens()));
        for (int query = 0; query < pass.tokens(); ++query) {
            CAPTURE(query);
            const VisibleRows expected = expected_of(step, rows[static_cast<std::size_t>(query)]);
            const VisibleRows found = found_of(pass, query);
            REQUIRE(found.size() == expected.size());
            for (std::size_t i = 0; i < found.size(); ++i) {
                CHECK(found[i].first == expected[i].first);
                // The derived values were shifted together with the keys, so they are right only before the first
                // shift.
                if (!shifted_) CHECK(found[i].second == expected[i].second);
            }
        }
    }

    static VisibleRows expected_of(const json& step, const std::string& visible) {
        const Extents e{step["expect"]["k_shape"]};
        VisibleRows rows;
        for (int cell = 0; cell < e.tokens; ++cell)
            if (visible[static_cast<std::size_t>(cell)] == '0')
                rows.emplace_back(key_of(step["expect"]["k"], e, cell),
                                  value_of(step["derived"]["v_permuted"], e, cell));
        std::sort(rows.begin(), rows.end());
        return rows;
    }

    template <class Pass>
    VisibleRows found_of(Pass& pass, int query) const {
        const auto [keys, values, mask] = pass.get(0);
        VisibleRows rows;
        for (int cell = 0; cell < pass.history().count; ++cell) {
            if (mask(query, cell) != 0) continue;
            Row key;
            Row value;
            for (int h = 0; h < extents_.heads; ++h)
                for (int d = 0; d < extents_.dim; ++d) {
                    key.push_back(static_cast<float>(keys(cell, h, 2 * d)));
                    value.push_back(static_cast<float>(values(cell, h, d)));
                }
            rows.emplace_back(key, value);
        }
        std::sort(rows.begin(), rows.end());
        return rows;
    }

    void remove(int sequence, int begin, int end, bool refused) {
        CHECK(cache_.remove(cellar::Sequence{sequence}, cellar::Position{begin}, cellar::Position{end}).has_value()
              == !refused);
        shifted_ = shifted_ || end != end_of_sequence;
    }

    bool can_resume(cellar::Sequence s, cellar::Position p) const {
        const int needed = window_.is_null() ? 0 : std::max(0, p.value - window_.get<int>());
        const auto range = cache_.range(s);
        return cache_.can_resume(s, p) && (!range || range->first.value <= needed);
    }

    Extents extents_;
    Cache cache_;
    const json& window_;
    bool shifted_ = false;
};

template <class Layout, class Window>
void run(const json& test, Window window) {
    const std::string shift = test["cache"]["shift_fn"];
    if (shift == "none") {
        Runner<Layout, Window, cellar::DisabledShift>{test, window, {}}.run(test["steps"]);
    } else {
        const Extents extents{test["steps"][0]["shape"]};
        const AddingShift adds{{extents.dim}, shift == "add" ? 1 : 0};
        Runner<Layout, Window, AddingShift>{test, window, adds}.run(test["steps"]);
    }
}

template <class Layout>
void run(const json& test) {
    const json& cache = test["cache"];
    const std::string kind = cache["kind"];
    if (kind == "swa") {
        const int retention = cache["memory"].is_null() ? 0 : cache["memory"].get<int>() + 1;
        run<Layout>(test, cellar::SlidingWindow<>{cache["window"].get<int>() + 1, {.retention = retention}});
    } else if (kind == "chunked") {
        run<Layout>(test, cellar::ChunkedAttention<>{cache["chunk"].get<int>()});
    } else {
        REQUIRE(kind == "causal");
        run<Layout>(test, cellar::FullCausal{});
    }
}

void run_case(const std::string& name) {
    std::ifstream file{cellar_test::source_dir() + "/tests/conformance/causal.json"};
    REQUIRE(file);
    const json all = json::parse(file);
    CHECK(all["vectors"].size() == 10);
    for (const json& test : all["vectors"]) {
        if (test["name"] != name) continue;
        CHECK(test["cache"]["permuted_v"] == json{false, true});
        run<cellar::StandardV<cellar::half>>(test);
        run<cellar::PermutedV<cellar::half>>(test);
        return;
    }
    FAIL("causal.json has no case of that name");
}

} // namespace

TEST_CASE("a batch is stored and the next one sees it") {
    run_case("TestStore");
}

TEST_CASE("a sliding window hides and frees the tokens before it") {
    run_case("TestSWA");
}

TEST_CASE("a sliding window works if batches alternate between sequences") {
    run_case("TestSWASeparateBatches");
}

TEST_CASE("a sliding window may keep more tokens than it shows") {
    run_case("TestSWAMem");
}

TEST_CASE("a chunk hides the tokens before it") {
    run_case("TestChunkedAttention");
}

TEST_CASE("sequences of one batch do not see each other") {
    run_case("TestSequences");
}

TEST_CASE("the end and the middle of a sequence can be removed") {
    run_case("TestRemove");
}

TEST_CASE("a copied prefix is visible and can be continued") {
    run_case("TestCopy");
}

TEST_CASE("a sequence can be resumed where its window is complete") {
    run_case("TestCanResume");
}

TEST_CASE("a sequence that keeps more than its window can be resumed at more positions") {
    run_case("TestCanResumeSWAMem");
}

} // namespace test_causal
