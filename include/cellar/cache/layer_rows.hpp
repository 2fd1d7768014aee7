// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// The keys and values of a layer.
template <class Keys, class Values>
struct LayerRows {
    Keys keys;
    Values values;
};
template <class Keys, class Values>
LayerRows(Keys, Values) -> LayerRows<Keys, Values>; // clang 16 does not deduce it

} // namespace cellar
