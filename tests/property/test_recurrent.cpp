// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrent_trial.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

namespace test_recurrent {

using namespace property::recurrent;
using property::recurrent::agrees_with_model;

namespace {

bool agrees_with_model(const naive::StateSetup& setup, int length) {
    return property::holds("many recurrent states agree with the naive model", 50, [=] {
        const bool selected = *rc::gen::element(true, false, false, false, false);
        if (selected) Trial<cellar::HostBackend>{setup, 20}.run(*steps(length, setup.sequences, setup.batch));
    });
}

} // namespace

TEST_CASE("recurrent states agree with the naive model") {
    CHECK(agrees_with_model<cellar::HostBackend>(150));
}

TEST_CASE("recurrent states of the Eigen backend agree with the naive model") {
    CHECK(agrees_with_model<cellar::EigenBackend>(60));
}

TEST_CASE("recurrent states of many sequences agree with the naive model, in small and in large batches") {
    CHECK(agrees_with_model({.sequences = 130, .batch = 4, .rollback = 1, .interval = 5, .checkpoints = 20}, 120));
    CHECK(agrees_with_model({.sequences = 120, .batch = 300, .rollback = 2, .interval = 2, .checkpoints = 7}, 40));
}

} // namespace test_recurrent
