// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "paths.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

inline const std::string plain_model = cellar_test::source_dir() + "/examples/models/shakespeare/model.safetensors";
inline const std::string hybrid_model =
    cellar_test::source_dir() + "/examples/models/shakespeare-hybrid/model.safetensors";

/// A folder that is removed at the end of the test.
class Scratch {
public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "cellar-test-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        folder_ = name;
    }
    ~Scratch() { std::filesystem::remove_all(folder_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::string path(const std::string& name) const { return (folder_ / name).string(); }

private:
    std::filesystem::path folder_;
};

inline std::string content(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

struct Outcome {
    int code;
    std::string out;
    std::string error;
};

inline Outcome run(const std::string& command) {
    const Scratch scratch;
    const std::string redirected = command + " >" + scratch.path("out") + " 2>" + scratch.path("error");
    const int status = std::system(redirected.c_str());
    REQUIRE(WIFEXITED(status));
    return {WEXITSTATUS(status), content(scratch.path("out")), content(scratch.path("error"))};
}

/// Checks that a command printed nothing, and one line with `words` to the error stream.
inline void check_refused(const Outcome& o, int code, const std::string& words) {
    CAPTURE(o.error);
    CHECK(o.code == code);
    CHECK(o.out.empty());
    CHECK(std::count(o.error.begin(), o.error.end(), '\n') == 1);
    CHECK(o.error.back() == '\n');
    CHECK(o.error.find(words) != std::string::npos);
}
