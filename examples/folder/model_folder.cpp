// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "model_folder.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <filesystem>
#include <generate/file.hpp>
#include <set>

namespace folder {

nlohmann::json read_json(const std::string& path) {
    const llama::File file = llama::read_file(path);
    auto json = nlohmann::json::parse(file.bytes.begin(), file.bytes.end(), nullptr, false);
    if (!json.is_object()) throw llama::FileError{path, "not a JSON object"};
    return json;
}

ModelFolder::ModelFolder(const std::string& path) : path_{path}, config_(read_json(path + "/config.json")) {
    const std::string index = path_of("model.safetensors.index.json");
    std::set<std::string> names{"model.safetensors"};
    if (std::filesystem::exists(index)) {
        const nlohmann::json json = read_json(index);
        const auto map = json.find("weight_map");
        if (map == json.end() || !map->is_object()) throw llama::FileError{index, "has no weight_map"};
        names.clear();
        for (const auto& [tensor, file] : map->items()) {
            // A name with a slash would lie outside of the folder.
            if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
                throw llama::FileError{index, "tensor " + llama::in_quotes(tensor) + " has no file name"};
            names.insert(file.get<std::string>());
        }
    }
    for (const std::string& name : names) files_.push_back(llama::Safetensors::read(path_of(name)));
}

int ModelFolder::integer(const char* key) const {
    const nlohmann::json& json = config_.contains("text_config") ? config_.at("text_config") : config_;
    const auto found = json.find(key);
    if (found != json.end() && found->is_number_integer() && *found > 0 && *found < (1 << 24)) return *found;
    throw llama::FileError{path_of("config.json"), llama::in_quotes(key) + " is missing, or not a positive integer"};
}

bool ModelFolder::has(const std::string& name) const {
    return std::any_of(files_.begin(), files_.end(), [&](const auto& file) { return file.has(name); });
}

std::vector<float> ModelFolder::tensor(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const auto found = std::find_if(files_.begin(), files_.end(), [&](const auto& file) { return file.has(name); });
    if (found == files_.end()) throw llama::FileError{path_, "tensor " + llama::in_quotes(name) + " is missing"};
    return found->tensor(name, shape);
}

llama::Matrix ModelFolder::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    const std::vector<float> values = tensor(name, {rows, columns});
    return Eigen::Map<const llama::Matrix>(values.data(), rows, columns);
}

std::vector<llama::Matrix> ModelFolder::matrices(const std::string& name, std::int64_t count, std::int64_t rows,
                                                 std::int64_t columns) const {
    const std::vector<float> values = tensor(name, {count, rows, columns});
    std::vector<llama::Matrix> all;
    for (std::int64_t i = 0; i < count; ++i)
        all.emplace_back(Eigen::Map<const llama::Matrix>(values.data() + i * rows * columns, rows, columns));
    return all;
}

llama::RowVector ModelFolder::vector(const std::string& name, std::int64_t size) const {
    const std::vector<float> values = tensor(name, {size});
    return Eigen::Map<const llama::RowVector>(values.data(), size);
}

} // namespace folder
