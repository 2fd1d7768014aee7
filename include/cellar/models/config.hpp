// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>
#include <cellar/models/detail/config_reader.hpp>
#include <cellar/models/json_keys.hpp>
#include <cellar/models/run_time_description.hpp>

namespace cellar::models {

/// What a model stores, from the keys of its config.json, the file of a folder in Hugging Face's format. Keys that are
/// missing have the values of the model's config class in `transformers`, if a file may leave them out. Knows the
/// `model_type`s that docs/models.md lists, also as the `text_config` of a model that reads images; prediction layers
/// for drafts are not described. Of an encoder and a decoder, the decoder's layers are described, each as two: the even
/// ones attend to their own tokens, the odd ones to the encoder's. Refuses other ones, and what contradicts itself.
inline ModelResult<RunTimeDescription> from_config(const ConfigKeys& keys) {
    const bool nested = keys("text_config.model_type").has_value();
    detail::KeyReader reader{keys, nested ? "text_config." : ""};
    RunTimeDescription model = detail::ConfigReader{reader}.read();
    if (!reader.error().empty()) return ModelError{"config: " + reader.error()};
    if (const auto checked = check(model); !checked) return ModelError{"config: " + checked.error().message};
    return model;
}

/// The same for a parsed file: `nlohmann::json`, or a type with the same functions.
template <class Json>
    requires requires(const Json& json) {
        json.is_object();
    }
ModelResult<RunTimeDescription> from_config(const Json& json) {
    return from_config(json_keys(json));
}

} // namespace cellar::models
