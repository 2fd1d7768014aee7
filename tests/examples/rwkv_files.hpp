// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <filesystem>
#include <string>

/// A trained RWKV-7 of 834,000 parameters and what was computed with it, where they are.
inline const std::string rwkv_folder = CELLAR_SHARED_DIR "/models/rwkv/";
inline const std::string tiny_rwkv = rwkv_folder + "tiny-rwkv-7v0-834K-FP32.bin";

inline bool rwkv_is_there() {
    return std::filesystem::exists(tiny_rwkv);
}
