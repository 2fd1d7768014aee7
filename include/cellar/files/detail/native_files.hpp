// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/detail/posix_files.hpp>
#include <cellar/files/detail/stream_files.hpp>
#include <cellar/files/file_system.hpp>

namespace cellar::detail {

/// `files`, or the file system of this machine. Where that is not POSIX, nothing is synced and nothing is mapped.
inline FileSystem& files_or_native(FileSystem* files) {
#if defined(__unix__) || defined(__APPLE__)
    static PosixFiles native;
#else
    static StreamFiles native;
#endif
    return files != nullptr ? *files : native;
}

} // namespace cellar::detail
