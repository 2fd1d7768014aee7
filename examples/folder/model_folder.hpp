// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <generate/safetensors.hpp>
#include <generate/weights.hpp>
#include <string>
#include <vector>

namespace folder {

/// A folder in Hugging Face's format: config.json, and the weights in model.safetensors, or in several files that
/// model.safetensors.index.json lists. Throws `llama::FileError` if something is missing or is not as expected.
class ModelFolder {
public:
    explicit ModelFolder(const std::string& path);

    const nlohmann::json& config() const { return config_; }
    /// A number of the config, or of that of its text part, above 0 and less than 2^24.
    int integer(const char* key) const;
    std::string path_of(const std::string& file) const { return path_ + "/" + file; }

    bool has(const std::string& name) const;
    llama::Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const;
    /// Those that a tensor [count, rows, columns] consists of.
    std::vector<llama::Matrix> matrices(const std::string& name, std::int64_t count, std::int64_t rows,
                                        std::int64_t columns) const;
    llama::RowVector vector(const std::string& name, std::int64_t size) const;

private:
    std::vector<float> tensor(const std::string& name, const std::vector<std::int64_t>& shape) const;

    std::string path_;
    nlohmann::json config_;
    std::vector<llama::Safetensors> files_;
};

/// A JSON file. Throws `llama::FileError`.
nlohmann::json read_json(const std::string& path);

} // namespace folder
