// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "folder.hpp"
#include "paths.hpp"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

/// All Python of the page about files, one block after the other.
inline std::string python_of_the_page() {
    std::ifstream file{cellar_test::source_dir() + "/docs/files.md"};
    const std::string page{std::istreambuf_iterator{file}, {}};
    const std::string begin = "```python\n";
    std::string code;
    for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
        at += begin.size();
        code += page.substr(at, page.find("```", at) - at) + "\n";
    }
    return code;
}

enum class PythonOutcome { right, wrong, no_python, no_module };

/// Runs the page's code and then `code` in `folder`.
inline PythonOutcome run_python(const Folder& folder, const std::string& code) {
    const auto script = folder.path / "script.py";
    std::ofstream{script} << "import sys\n"
                             "try:\n"
                             "    import safetensors.numpy\n"
                             "except ImportError:\n"
                             "    sys.exit(77)\n"
                          << python_of_the_page() << code << "sys.exit(78)\n";
    const int status = std::system(("cd '" + folder.path.string() + "' && python3 script.py").c_str());
    const int code_of_exit = status / 256;
    return code_of_exit == 78    ? PythonOutcome::right
           : code_of_exit == 77  ? PythonOutcome::no_module
           : code_of_exit == 127 ? PythonOutcome::no_python
                                 : PythonOutcome::wrong;
}

/// Empty if Python ran.
inline std::string reason_to_skip(PythonOutcome outcome) {
    if (outcome == PythonOutcome::no_python) return "python3 is not installed";
    if (outcome == PythonOutcome::no_module) return "Python has no module safetensors";
    return {};
}
