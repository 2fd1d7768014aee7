// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "file.hpp"

#include <fstream>
#include <string>

namespace llama {

/// A file that is opened before the work, so that a wrong path fails early. An empty path: no file.
class OutputFile {
public:
    explicit OutputFile(const std::string& path) : path_{path} {
        if (path.empty()) return;
        file_.open(path);
        if (!file_) fail();
    }

    /// Calls write(stream), if there is a file.
    template <class Write>
    void write(Write write) {
        if (path_.empty()) return;
        write(file_);
        if (!file_.flush()) fail();
    }

private:
    [[noreturn]] void fail() const { throw FileError{path_, "cannot be written"}; }

    std::string path_;
    std::ofstream file_;
};

} // namespace llama
