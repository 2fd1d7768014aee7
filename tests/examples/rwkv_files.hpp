// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "paths.hpp"

#include <filesystem>
#include <string>

/// A trained RWKV-7 of 834,000 parameters, and results that were computed with it. The files may be missing.
inline const std::string rwkv_folder = cellar_test::shared_dir() + "/models/rwkv/";
inline const std::string tiny_rwkv = rwkv_folder + "tiny-rwkv-7v0-834K-FP32.bin";

inline bool has_rwkv() {
    return std::filesystem::exists(tiny_rwkv);
}
