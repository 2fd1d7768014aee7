// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random operations on hybrids, compared after each with the naive models of their members.
#include "whole_of.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace test_property {

using namespace property;
using namespace property::hybrid;

namespace {

template <class Pattern, class... Kinds>
bool agrees_with_model(const char* name, int model_layers) {
    return hybrid::agrees_with_model(
        {name, {Kinds::kind()...}, [=](const std::vector<MemberSetting>& settings, const Trace& trace) {
             return std::make_unique<WholeOf<Pattern, Kinds...>>(model_layers, settings, trace);
         }});
}

using RigidSliding = Attention<cellar::PermutedV<float>, Sliding<3>, Disabled>;
using RigidFull = Attention<cellar::StandardV<float>, Full, Disabled>;
using TurningSliding = Attention<cellar::PermutedV<cellar::half>, Sliding<0>, Rotating<cellar::Neox>>;
using TurningFull = Attention<cellar::StandardV<float>, Full, Rotating<cellar::Interleaved>>;
using Pictures = Inputs<cellar::PermutedV<float>>;

template <class Kind>
using Memory = typename Kind::Memory;

} // namespace

TEST_CASE("caches that cannot shift and recurrent states agree with the naive models") {
    using Pattern = cellar::Repeat<cellar::Times<2, Memory<RigidSliding>>, cellar::Times<2, Memory<RigidFull>>,
                                   cellar::NoMemory, Memory<States>>;
    CHECK(agrees_with_model<Pattern, RigidSliding, RigidFull, States>("rigid hybrid", 12));
}

TEST_CASE("recurrent states, caches that can shift and an encoder's inputs agree with the naive models") {
    using Pattern =
        cellar::Repeat<Memory<States>, cellar::Times<2, Memory<TurningSliding>>, cellar::Times<2, Memory<TurningFull>>>;
    CHECK(agrees_with_model<Pattern, States, TurningSliding, Pictures, TurningFull>("hybrid with all kinds", 10));
}

TEST_CASE("caches that can shift and an encoder's inputs agree with the naive models") {
    using Pattern = cellar::Repeat<Memory<TurningFull>, Memory<TurningSliding>>;
    CHECK(agrees_with_model<Pattern, TurningSliding, Pictures, TurningFull>("shifting hybrid", 8));
}

} // namespace test_property
