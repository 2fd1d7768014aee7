// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "paths.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

/// configs.json: see write_configs.py.
inline const nlohmann::json& configs() {
    static const nlohmann::json all = [] {
        std::ifstream file{cellar_test::source_dir() + "/tests/models/configs.json"};
        return nlohmann::json::parse(file).at("models");
    }();
    return all;
}

/// Null if there is none of that name.
inline nlohmann::json config_of(const std::string& name) {
    for (const auto& one : configs())
        if (one.at("name") == name) return one;
    return {};
}
