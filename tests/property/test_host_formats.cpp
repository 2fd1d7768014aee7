// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../formats.hpp"
#include "matrix.hpp"

namespace test_host_formats {

namespace {

/// Heads of whole blocks.
std::vector<property::Layer> layers() {
    return {{2, 64, 32}, {1, 32, 32}, {2, 64, 32, 0}, {1, 32, 0}};
}

template <class Layout, class Window, class Shift>
void check(const std::string& name) {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;
    auto combination = property::combination<Layout, Window, Shift, cellar::HostBackend>(name, layers());
    combination.rows.stored_as({cellar_test::encode_and_decode<Key>, cellar_test::encode_and_decode<Value>});
    CHECK(property::agrees_with_model(combination));
}

} // namespace

using cellar_test::BlocksOf32;
using cellar_test::ScaledHeads;

TEST_CASE("units of several values agree with the naive model") {
    using Layout = cellar::StandardV<BlocksOf32>;
    check<Layout, property::Full, property::Rotating<cellar::Neox>>("HostBackend, StandardV<blocks of 32>");
    check<Layout, property::Chunked<0>, property::Unrotated>("HostBackend, StandardV<blocks of 32>");
}

TEST_CASE("rows of two planes agree with the naive model") {
    using Layout = cellar::Blocked<ScaledHeads, 4, BlocksOf32>;
    check<Layout, property::Sliding<3>, property::Rotating<cellar::Interleaved>>("HostBackend, Blocked<scaled heads>");
}

TEST_CASE("keys of two planes beside values along cells agree with the naive model") {
    using Layout = cellar::PermutedV<ScaledHeads, cellar::half>;
    check<Layout, property::Full, property::Rotating<cellar::Neox>>("HostBackend, PermutedV<scaled heads, half>");
}

} // namespace test_host_formats
