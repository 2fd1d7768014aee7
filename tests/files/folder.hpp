// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

/// A new folder for the files of a test, which is removed with its contents.
class Folder {
public:
    Folder() {
        for (int k = 0; path.empty() || !std::filesystem::create_directory(path); ++k)
            path = std::filesystem::temp_directory_path() / ("cellar-files-" + std::to_string(k));
    }
    ~Folder() { std::filesystem::remove_all(path); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator{path})
            found.push_back(entry.path().filename().string());
        std::sort(found.begin(), found.end());
        return found;
    }

    std::filesystem::path path;
};
