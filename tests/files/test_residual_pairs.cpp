// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Operations of a hybrid with a residual, alone and as a member of another one: what comes back attends as if it had
// never been away.
#include "attention/attended.hpp"
#include "folder.hpp"
#include <cellar/attention/attend_residual.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/sequence_file.hpp>
#include <cellar/format/blocks.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_residual_pairs {

using namespace cellar;
using attention_test::Floats;

namespace {

constexpr int dim = 32;

using Coarse = Cache<StandardV<q8_0>>;
using Exact = Cache<StandardV<half>, SlidingWindow<>>;
using Sliding = Cache<StandardV<float>, SlidingWindow<>>;
using Pair = Hybrid<WithResidual, Coarse, Exact>;
using Nested = Hybrid<RunTimePattern, Pair, Sliding>;

/// `cells`: of the exact cache. Its window keeps 10 tokens and the first 2.
template <class M>
M memory(std::int32_t cells = 200) {
    const auto shape = [](int layers) { return CacheShape{.layers = layers, .kv_heads = 1, .head_dim = dim}; };
    const CacheLimits limits{.sequences = 3, .cells = 400, .batch = 32};
    CacheLimits of_exact = limits;
    of_exact.cells = cells;
    const SlidingWindow<> window{8, {.retention = 10, .sinks = 2}};
    Pair pair{2, Coarse{shape(2), limits}, Exact{shape(2), of_exact, window}};
    if constexpr (std::is_same_v<M, Pair>) {
        return pair;
    } else {
        return Nested{{0, 1, 0}, std::move(pair), Sliding{shape(1), limits, window}};
    }
}

/// What `count` tokens attend to, which follow in a sequence. Keys and values depend on the text and the position.
/// `opener`: opens the pass, as the memory or its tree.
template <class M, class Opener>
Floats compute(M& memory, int s, int count, int text, Opener& opener) {
    const int first = memory.next(Sequence{s}).value;
    auto pass = opener.begin(Sequence{s}, count);
    REQUIRE(pass);
    Floats all;
    for (int layer = 0; layer < memory.layers(); ++layer) {
        Floats rows;
        for (int i = 0; i < count; ++i) {
            const Floats row = attention_test::wave(dim, 1 + text * 1000 + layer * 100 + first + i);
            rows.insert(rows.end(), row.begin(), row.end());
        }
        Floats out(rows.size());
        pass->visit(layer, [&](auto& own, int index) {
            if constexpr (!std::is_same_v<std::remove_reference_t<decltype(own)>, NoMemory>) {
                own.put(index, rows, rows);
                attend(own, index, rows, out);
            }
        });
        all.insert(all.end(), out.begin(), out.end());
    }
    pass->commit();
    return all;
}
template <class M>
Floats compute(M& memory, int s, int count, int text) {
    return compute(memory, s, count, text, memory);
}

/// Sequence s goes on as a text does that was never interrupted. `length`: the tokens that it has.
template <class M>
void check_goes_on(M& of, int s, int length, int text) {
    REQUIRE(of.next(Sequence{s}) == Position{length});
    M whole = memory<M>();
    compute(whole, 0, length, text);
    for (int i = 0; i < 12; ++i) CHECK(compute(of, s, 1, text) == compute(whole, 0, 1, text));
}

std::vector<std::int32_t> numbers(int count, int first) {
    std::vector<std::int32_t> list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), first);
    return list;
}

} // namespace

TEST_CASE_TEMPLATE("a snapshot with a residual comes back from the host", M, Pair, Nested) {
    M own = memory<M>();
    compute(own, 0, 25, 1);
    auto snapshot = own.snapshot(Sequence{0}).value();
    own.offload(snapshot);
    REQUIRE(own.remove(Sequence{0}, Position{0}, to_end));
    own.erase_free_cells();
    compute(own, 2, 30, 2);
    REQUIRE(own.reload(snapshot));
    REQUIRE(own.restore(Sequence{1}, snapshot));
    check_goes_on(own, 1, 25, 1);
    check_goes_on(own, 2, 30, 2);
}

TEST_CASE_TEMPLATE("a schedule keeps what a residual forgets", M, Pair, Nested) {
    M own = memory<M>();
    REQUIRE(own.schedule(Sequence{0}, Position{12}));
    compute(own, 0, 10, 1);
    compute(own, 1, 10, 1);
    for (const int s : {0, 1}) {
        compute(own, s, 5, 1);
        compute(own, s, 20, 1);
    }
    CHECK(own.snapshot(Sequence{1}, Position{0}, Position{12}).error() == Reason::cannot_resume);
    const auto snapshot = own.snapshot(Sequence{0}, Position{0}, Position{12}).value();
    REQUIRE(own.restore(Sequence{2}, snapshot));
    check_goes_on(own, 2, 12, 1);
}

TEST_CASE_TEMPLATE("a prefix tree attaches, and evicts where cells of the residual run out", M, Pair, Nested) {
    M own = memory<M>(48);
    PrefixTree tree{own};
    for (const int text : {1, 2, 3}) {
        compute(own, 0, 24, text);
        REQUIRE(tree.insert(Sequence{0}, numbers(24, 100 * text)));
        REQUIRE(own.remove(Sequence{0}, Position{0}, to_end));
    }
    auto list = numbers(24, 300);
    list.push_back(9);
    CHECK(tree.attach(Sequence{1}, list).value() == PrefixMatch{24, 24});
    check_goes_on(own, 1, 24, 3);
    CHECK(own.begin(Sequence{2}, 20).error() == Reason::full);
    compute(own, 2, 20, 4, tree);
    check_goes_on(own, 2, 20, 4);
}

TEST_CASE_TEMPLATE("a batch for which the residual has no cells is refused, and changes nothing", M, Pair, Nested) {
    M own = memory<M>(20);
    compute(own, 0, 10, 1);
    CHECK(own.free_cells() == 10);
    for (const int count : {10, 11}) {
        const BatchBuilder batch{Sequence{1}, Position{0}, count};
        CHECK(own.cells_needed(batch) == count);
        const auto pass = own.begin(batch);
        CHECK(pass.has_value() == (count == 10)); // which is dropped
    }
    CHECK(own.begin(Sequence{1}, 11).error() == Reason::full);
    CHECK(own.next(Sequence{1}) == Position{0});
    CHECK(own.free_cells() == 10);
    check_goes_on(own, 0, 10, 1);
}

TEST_CASE_TEMPLATE("a file has both caches of a residual", M, Pair, Nested) {
    const Folder folder;
    M own = memory<M>(), other = memory<M>();
    compute(own, 0, 25, 1);
    REQUIRE(save(folder.path / "text", own, Sequence{0}));
    REQUIRE(load(folder.path / "text", other, Sequence{2}));
    check_goes_on(other, 2, 25, 1);
    check_goes_on(own, 0, 25, 1);
}

} // namespace test_residual_pairs
