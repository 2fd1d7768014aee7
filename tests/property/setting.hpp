// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include <cellar/cache/cache_limits.hpp>

#include <ostream>

namespace property {

/// The run-time parameters of a trial and its cache.
struct Setting {
    naive::Setup setup{};
    cellar::Placement placement = cellar::Placement::blocks;
    int initial_cells = 0;
    int start_padding = 1;
    int inspect_every = 1;
    int positions = 180; ///< few enough that shifted keys stay exact in bfloat16
};

inline const char* to_string(cellar::Placement placement) {
    switch (placement) {
    case cellar::Placement::blocks:
        return "blocks";
    case cellar::Placement::scattered:
        return "scattered";
    default:
        return "contiguous";
    }
}

inline std::ostream& operator<<(std::ostream& out, const Setting& s) {
    const naive::Window& w = s.setup.window;
    return out << "window {size " << w.size << ", retention " << w.retention << ", sinks " << w.sinks
               << "}, limits {sequences " << s.setup.sequences << ", capacity " << s.setup.capacity << ", batch "
               << s.setup.batch << ", padding " << s.setup.padding << ", start padding " << s.start_padding
               << ", initial cells " << s.initial_cells << ", " << to_string(s.placement)
               << (s.setup.consecutive ? ", consecutive positions" : ", any positions") << "}, inspected every "
               << s.inspect_every << " steps";
}

} // namespace property
