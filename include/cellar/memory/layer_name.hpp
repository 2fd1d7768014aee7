// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace cellar::detail {

/// A text that needs no memory of its own.
struct LayerText {
    char text[96];
    int size;

    operator MessagePart() const { return std::string_view{text, static_cast<std::size_t>(size)}; }
};

/// How messages name a layer: by its number, or, in a member of a hybrid, by its number in the model as well.
struct LayerName {
    int member = -1; ///< the member of the hybrid, or -1
    int own = -1;    ///< the layer of the member that is visited
    int model = -1;  ///< the same layer, counted in the model

    [[gnu::cold, gnu::noinline]] LayerText operator()(int layer) const {
        LayerText name;
        const auto print = [&](auto... parts) { name.size = std::snprintf(name.text, sizeof(name.text), parts...); };
        if (member < 0) {
            print("layer %d", layer);
        } else if (layer == own) {
            print("layer %d of the model (layer %d of member %d)", model, layer, member);
        } else {
            print("layer %d of member %d", layer, member);
        }
        return name;
    }
};

/// Ending the pass of one member would leave it with other tokens than the rest.
inline void expect_own_pass(const LayerName& name, const char* operation) {
    CELLAR_EXPECTS(name.member < 0, operation, ": the pass of member ", name.member,
                   " of a hybrid, expected that of the whole");
}

} // namespace cellar::detail
