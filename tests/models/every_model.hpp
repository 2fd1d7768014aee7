// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/models.hpp>

/// Calls f with a value of each model's type.
template <class F, class... Models>
void for_each_model(F f, cellar::models::ModelList<Models...>) {
    (f(Models{}), ...);
}
template <class F>
void for_each_model(F f) {
    for_each_model(f, cellar::models::All{});
}
