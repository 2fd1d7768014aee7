// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/run_time_description.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

/// What `models.hpp` says of a layer, too. Frequencies are computed in the same way, so they are equal.
inline void check_same_memory(const cellar::models::LayerDescription& found,
                              const cellar::models::LayerDescription& expected, bool same_pairs = true) {
    CHECK((found.kind == expected.kind));
    CHECK(found.shape.kv_heads == expected.shape.kv_heads);
    CHECK(found.shape.key_dim == expected.shape.key_dim);
    CHECK(found.shape.value_dim == expected.shape.value_dim);
    CHECK(found.shape.shares_layer == expected.shape.shares_layer);
    CHECK(found.window == expected.window);
    if (same_pairs) CHECK((found.rope.pairing == expected.rope.pairing));
    CHECK(found.rope.begin == expected.rope.begin);
    CHECK(frequencies(found.rope) == frequencies(expected.rope));
    REQUIRE(found.state.size() == expected.state.size());
    for (std::size_t i = 0; i < found.state.size(); ++i) {
        CHECK(found.state[i].name == expected.state[i].name);
        CHECK(std::ranges::equal(found.state[i].extents, expected.state[i].extents));
    }
}

inline void check_same_memory(const cellar::models::RunTimeDescription& found,
                              const cellar::models::RunTimeDescription& expected, bool same_pairs = true) {
    REQUIRE(found.layers.size() == expected.layers.size());
    for (std::size_t i = 0; i < found.layers.size(); ++i) {
        CAPTURE(i);
        check_same_memory(found.layers[i], expected.layers[i], same_pairs);
    }
}
