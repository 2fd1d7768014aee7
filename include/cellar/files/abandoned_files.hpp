// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/detail/native_files.hpp>
#include <cellar/files/detail/unfinished_file.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace cellar {

/// Removes what saves left behind whose process was killed: files `NAME.HEX.tmp` beside the file `path`, or, if `path`
/// is a folder, all files of such names in it. Returns how many. Saves that are under way, in this process or others,
/// keep theirs, because they hold a lock on it (`flock`). Removes nothing where files cannot be locked: on systems
/// other than POSIX, and on file systems without locks. In a folder that other programs use, give the paths of files.
inline std::size_t remove_abandoned(const std::filesystem::path& path) {
    std::size_t removed = 0;
#if defined(__unix__) || defined(__APPLE__)
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(path, error);
    const std::string name = is_folder ? std::string{} : path.filename().string();
    const std::filesystem::path folder = is_folder ? path : path.has_parent_path() ? path.parent_path() : ".";
    std::filesystem::directory_iterator entry{folder, error};
    for (; !error && entry != std::filesystem::directory_iterator{}; entry.increment(error))
        if (detail::is_unfinished(entry->path().filename().string(), name))
            removed += detail::PosixFiles::remove_abandoned(entry->path()) ? 1U : 0U;
#else
    static_cast<void>(path);
#endif
    return removed;
}

} // namespace cellar
