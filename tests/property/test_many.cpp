// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "matrix.hpp"
#include <cellar/backend/eigen.hpp>

namespace test_many {

using namespace property;

namespace {

using cellar::Placement;

Setting setting(naive::Window window, int sequences, int capacity, int batch, int inspect_every,
                Placement placement = Placement::blocks) {
    Setting s;
    s.placement = placement;
    s.setup = {.window = window,
               .sequences = sequences,
               .capacity = capacity,
               .batch = batch,
               .padding = 32,
               .can_shift = true};
    s.inspect_every = inspect_every;
    s.positions = 2000;
    return s;
}

template <class Window, class Layout = cellar::StandardV<float>>
void check_many(const std::string& name, const Setting& many, int length) {
    CHECK(agrees_with_model(combination<Layout, Window, Adding, cellar::HostBackend>(name), many, length));
}

} // namespace

TEST_CASE("seventy sequences agree with the naive model") {
    check_many<Full>("70 sequences", setting({}, 70, 3, 12, 3), 150);
    const naive::Window sliding{naive::WindowKind::sliding, 3, 4, 1};
    check_many<Sliding<0>>("70 sequences", setting(sliding, 70, 20, 12, 3), 150);
}

TEST_CASE("a thousand sequences agree with the naive model") {
    check_many<Full>("1000 sequences", setting({}, 1000, 1, 40, 5, Placement::scattered), 40);
    const naive::Window chunked{naive::WindowKind::chunked, 4, 0, 0};
    check_many<Chunked<0>>("1000 sequences", setting(chunked, 1000, 20, 40, 5), 40);
}

// Caches whose cells fill many words of a bitmap.
TEST_CASE("bigger caches agree with the naive model") {
    for (const Placement placement : {Placement::blocks, Placement::scattered}) {
        check_many<Full>("big", setting({}, 4, 100, 60, 7, placement), 120);
        const naive::Window sliding{naive::WindowKind::sliding, 50, 70, 3};
        check_many<Sliding<0>, cellar::PermutedV<cellar::half>>("big", setting(sliding, 4, 200, 100, 7, placement),
                                                                120);
        const naive::Window chunked{naive::WindowKind::chunked, 40, 0, 5};
        check_many<Chunked<0>>("big", setting(chunked, 4, 200, 60, 7, placement), 120);
    }
}

TEST_CASE("a cache whose pairing is known at run time agrees with the naive model") {
    using Layout = cellar::StandardV<cellar::half>;
    using Host = cellar::HostBackend;
    CHECK(agrees_with_model(combination<Layout, Full, RotatingAtRunTime<cellar::Neox>, Host>("run time")));
    CHECK(agrees_with_model(combination<Layout, Sliding<3>, RotatingAtRunTime<cellar::Interleaved>, Host>("run time")));
}

// Keys and values of different element types.
TEST_CASE("half keys and float values agree with the naive model") {
    using Mixed = cellar::PermutedV<cellar::half, float>;
    CHECK(agrees_with_model(combination<Mixed, Full, Rotating<cellar::Interleaved>, cellar::HostBackend>("mixed")));
    CHECK(agrees_with_model(combination<Mixed, Sliding<0>, Adding, cellar::EigenBackend>("mixed")));
}

} // namespace test_many
