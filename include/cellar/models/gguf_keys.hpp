// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>
#include <cellar/models/detail/gguf_reader.hpp>
#include <cellar/models/run_time_description.hpp>

#include <span>
#include <string>

namespace cellar::models {

/// What a model stores, from the keys of its GGUF file ("general.architecture", "llama.block_count"), as llama.cpp
/// reads them. Knows the architectures that docs/models.md lists. `divisors`: the tensor `rope_freqs.weight` or
/// `rope_factors_short.weight`, `long_divisors`: `rope_factors_long.weight`, if the file has them. Without them, a
/// model like Llama 3.1 would be described with frequencies that are not its own. Refuses other architectures, and
/// what contradicts itself. `cellar/interop/ggml_model.hpp` reads the file itself.
inline ModelResult<RunTimeDescription> from_gguf_keys(const ConfigKeys& keys, std::span<const float> divisors = {},
                                                      std::span<const float> long_divisors = {}) {
    detail::KeyReader general{keys};
    const std::string architecture = general.text("general.architecture");
    if (!general.error().empty()) return ModelError{"GGUF file: " + general.error()};
    detail::KeyReader reader{keys, architecture + "."};
    RunTimeDescription model = detail::GgufReader{reader, architecture, divisors, long_divisors}.read();
    if (!reader.error().empty()) return ModelError{"GGUF file: " + reader.error()};
    if (const auto checked = check(model); !checked) return ModelError{"GGUF file: " + checked.error().message};
    return model;
}

} // namespace cellar::models
