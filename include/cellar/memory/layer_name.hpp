// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace cellar::detail {

/// How messages name a layer: by its number, or, in a member of a hybrid, by its number in the model as well.
struct LayerName {
    int member = -1; ///< the member of the hybrid, or -1
    int own = -1;    ///< the layer of the member that is visited
    int model = -1;  ///< the same layer, counted in the model

    std::string operator()(int layer) const {
        const std::string number = "layer " + std::to_string(layer);
        if (member < 0) return number;
        const std::string of_member = number + " of member " + std::to_string(member);
        return layer == own ? "layer " + std::to_string(model) + " of the model (" + of_member + ")" : of_member;
    }
};

} // namespace cellar::detail
