// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"

#include <ostream>

namespace property {

/// What is decided at run time about the cache of a trial.
struct Setting {
    naive::Setup setup{};
    bool contiguous = false;
    int look_every = 1;
    int positions = 180; ///< few enough that shifted keys stay exact in bfloat16
};

inline std::ostream& operator<<(std::ostream& out, const Setting& s) {
    const naive::Window& w = s.setup.window;
    return out << "window {size " << w.size << ", retention " << w.retention << ", pinned " << w.sinks
               << "}, limits {sequences " << s.setup.sequences << ", capacity " << s.setup.capacity << ", batch "
               << s.setup.batch << ", padding " << s.setup.padding << (s.contiguous ? ", contiguous" : ", scattered")
               << "}, looked at every " << s.look_every << " steps";
}

} // namespace property
