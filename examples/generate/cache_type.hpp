// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace llama {

/// The format of a cache here, by llama.cpp's names of the types of keys and of values: of both, or "keys,values".
/// Without a name, keys are f16, and values are as the keys.
inline std::string format_of(const std::string& keys, const std::string& values) {
    const auto own = [](const std::string& name) {
        return name.empty() || name == "f16" ? "half" : name == "f32" ? "float" : name;
    };
    return values.empty() || own(values) == own(keys) ? own(keys) : own(keys) + "," + own(values);
}

} // namespace llama
