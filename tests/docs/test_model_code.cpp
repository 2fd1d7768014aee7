// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/put-it-into-your-model.md that is not in examples/09_transformer.cpp.
#include <cellar/cellar.hpp>
#include <cellar/element/convert.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_model_code {

using cellar::BatchBuilder;
using cellar::Cell;
using cellar::CellRange;
using cellar::Position;
using cellar::Sequence;

namespace {

constexpr int heads = 1;
constexpr int dim = 2;

std::vector<float> ones(std::int32_t tokens) {
    return std::vector<float>(static_cast<std::size_t>(tokens) * heads * dim, 1.0F);
}

// [member]
class Session {
public:
    void load(int layers, int kv_heads, int head_dim) {
        cache_.emplace(cellar::CacheShape{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
                       cellar::CacheLimits{.sequences = 4, .capacity = 64, .batch = 16});
    }
    cellar::Cache<>& cache() { return *cache_; }

private:
    std::optional<cellar::Cache<>> cache_;
};
// [/member]

// [row]
/// A row as float, by the processor's vector instructions.
void read_row(const cellar::StridedView<const cellar::half, 3>& keys, std::int64_t cell, std::int64_t head,
              std::vector<float>& row) {
    cellar::convert({&keys(cell, head, 0), row.size()}, row);
}
// [/row]

// [visit]
using Sliding = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>>;
using Full = cellar::Cache<>;

struct Attention {
    double rope_base = 0;

    template <class Pass>
    void operator()(Pass& pass, int layer) {
        if constexpr (std::is_same_v<typename Pass::memory_type, Sliding>) {
            rope_base = 10000.0;
        } else {
            rope_base = 1000000.0;
        }
        pass.put(layer, ones(pass.tokens()), ones(pass.tokens())); // and attention, the same for both
    }
};
// [/visit]

} // namespace

TEST_CASE("a cache that is a member, made later") {
    Session session;
    session.load(1, heads, dim);
    CHECK(session.cache().layers() == 1);
}

TEST_CASE("rows of half are read a row at a time") {
    cellar::Cache<cellar::StandardV<cellar::half>> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                                                         {.capacity = 4, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    pass.put(0, std::vector<float>{1, 2, 3, 4}, ones(2));
    std::vector<float> row(dim);
    read_row(pass.keys(0), 1, 0, row);
    CHECK(row == std::vector<float>{3, 4});
}

TEST_CASE("layers of two caches are told apart") {
    cellar::Hybrid<cellar::Repeat<Sliding, Full>, Sliding, Full> memory{
        2, Sliding{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 16, .batch = 4}},
        Full{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 16, .batch = 4}}};
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    Attention attention;
    pass.visit(0, attention);
    CHECK(attention.rope_base == 10000.0);
    pass.visit(1, attention);
    CHECK(attention.rope_base == 1000000.0);
    // [place]
    CHECK(memory.place(1).member == 1); // the same at run time: 0 is Sliding, 1 is Full
    // [/place]
    pass.commit();
}

TEST_CASE("two members that would have the same type") {
    struct Second : Full {
        using Full::Full;
    };
    cellar::Hybrid<cellar::Repeat<Full, Second>, Full, Second> memory{
        2, Full{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.capacity = 16, .batch = 4}},
        Second{{.layers = 1, .kv_heads = 1, .head_dim = 2}, {.capacity = 16, .batch = 4}}};
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    pass.visit(0, [](auto& own, int i) { own.put(i, std::vector<float>(1), std::vector<float>(1)); });
    pass.visit(1, [](auto& own, int i) { own.put(i, std::vector<float>(2), std::vector<float>(2)); });
    pass.commit();
    CHECK(memory.next(Sequence{0}) == Position{1});
}

TEST_CASE("a pattern of layers that a file has") {
    const std::vector<std::string> layer_types{"sliding_attention", "sliding_attention", "full_attention"};
    const int window = 4;
    const cellar::CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 4};
    // [run-time]
    // From config.json: layer_types, sliding_window.
    std::vector<int> member_of_layer; // an index into the members of the hybrid, or cellar::no_memory
    for (const std::string& type : layer_types) member_of_layer.push_back(type == "sliding_attention" ? 0 : 1);
    const auto layers = [&](int member) {
        return static_cast<int>(std::count(member_of_layer.begin(), member_of_layer.end(), member));
    };

    using Window = cellar::SlidingWindow<>; // its width is known at run time, too
    using Local = cellar::Cache<cellar::StandardV<float>, Window>;
    using Global = cellar::Cache<>;
    std::optional<Local> local; // a member without layers is left out
    if (layers(0) > 0)
        local.emplace(cellar::CacheShape{.layers = layers(0), .kv_heads = heads, .head_dim = dim}, limits,
                      Window{window});
    std::optional<Global> global;
    if (layers(1) > 0)
        global.emplace(cellar::CacheShape{.layers = layers(1), .kv_heads = heads, .head_dim = dim}, limits);

    cellar::Hybrid<cellar::RunTimePattern, Local, Global> memory{member_of_layer, std::move(local), std::move(global)};
    // [/run-time]
    auto pass = memory.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    for (int layer = 0; layer < memory.layers(); ++layer)
        pass.visit(layer, [](auto& own, int i) {
            if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(own)>, cellar::NoMemory>)
                own.put(i, ones(own.tokens()), ones(own.tokens()));
        });
    pass.commit();
    CHECK(memory.next(Sequence{0}) == Position{3});
}

TEST_CASE("a handler of violations, and refusals in print") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 4, .batch = 4}};
    // [handler]
    const cellar::ViolationHandler before = cellar::set_violation_handler([](const cellar::Violation& v) {
        throw std::logic_error{std::string{v.file} + ":" + std::to_string(v.line) + ": " + v.message};
    });
    // [/handler]
    std::string caught;
    try {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}});
        (void)pass->keys(0);
    } catch (const std::logic_error& error) {
        caught = error.what();
    }
    cellar::set_violation_handler(before);
    CHECK(caught.find("test_model_code.cpp:") != std::string::npos);
    CHECK(caught.find("keys: layer 0 was not put in this pass, expected a put before it is read") != std::string::npos);

    // [print]
    const auto refused = cache.begin(BatchBuilder{Sequence{0}, Position{2}});
    if (!refused) std::fprintf(stderr, "%s\n", cellar::to_string(refused.error()).c_str());
    // [/print]
    CHECK(cellar::to_string(refused.error())
          == "not next: a token does not follow its sequence's last one; sequence 0 expects position 0, not 2");
}

TEST_CASE("a mask of bool and visible runs keep a NaN out") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 4, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}}.add(Sequence{1}, Position{0})).value();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    pass.put(0, std::vector<float>{nan, 1}, std::vector<float>{nan, 2});
    const auto values = pass.values(0);
    std::vector<float> sums(2);
    // [bool]
    const auto visible = pass.mask<bool>(); // true: the token sees the cell
    for (std::int32_t token = 0; token < pass.tokens(); ++token)
        for (std::int32_t c = 0; c < pass.history().count; ++c)
            if (visible(token, c)) sums[static_cast<std::size_t>(token)] += values(c, 0, 0); // no hidden value is read
    // [/bool]
    CHECK(std::isnan(sums[0]));
    CHECK(sums[1] == 2);
}

TEST_CASE("positions of cells, for keys that are rotated when they are read") {
    using Cache = cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::UnrotatedShift>;
    Cache cache{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 8, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    pass.put(0, ones(3), ones(3));
    // [positions]
    std::vector<std::int32_t> position_of(static_cast<std::size_t>(cache.cells()), -1);
    cache.visit_cells(Sequence{0}, [&](Position first, Cell cell, std::int32_t count) {
        for (std::int32_t i = 0; i < count; ++i) position_of[static_cast<std::size_t>(cell + i)] = first.value + i;
    });
    // [/positions]
    CHECK(position_of == std::vector<std::int32_t>{0, 1, 2, -1, -1, -1, -1, -1});
    pass.commit();
}

// [openmp]
/// Sums what each token sees, in parallel. The views have names of their own, and the first call of `visible` is made
/// before the threads start.
template <class Pass>
float sum_in_parallel(Pass& pass, int layer) {
    const auto keys = pass.keys(layer);
    const Cell first = pass.history().first;
    if (pass.tokens() > 0) static_cast<void>(pass.visible(0));
    float sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (std::int32_t token = 0; token < pass.tokens(); ++token)
        for (const CellRange run : pass.visible(token))
            for (Cell cell = run.first; cell < run.first + run.count; ++cell) sum += keys(cell - first, 0, 0);
    return sum;
}
// [/openmp]

TEST_CASE("attention in parallel") {
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 8, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    pass.put(0, ones(3), ones(3));
    CHECK(sum_in_parallel(pass, 0) == 6);
    pass.commit();
}

} // namespace test_model_code
