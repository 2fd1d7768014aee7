// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>
#include <cellar/element/format_codec.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace cellar {

class FileSystem;

/// Called after every piece, with the bytes done and the total. If it throws, the operation ends with this exception,
/// and leaves what a failure leaves. A reader then delivers the same bytes again.
using FileProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// How a file is written.
// Not [[no_unique_address]]: with it, clang 16 writes the defaults of options within options to a wrong address.
struct WriteOptions {
    NamedOnly named_only{};
    /// Wait until the file would survive a loss of power. Without it, a crash of the program is still harmless, but
    /// after a loss of power the file may be damaged, which the reader notices.
    bool sync = true;
    /// Of a new file. One that replaces another has the permissions of that one, and its owner as far as possible.
    std::filesystem::perms permissions = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
    FileProgress progress = {};
    FileSystem* files = nullptr; ///< outlives the writer; null: the files of this machine
};

/// How the reader gets at the data.
enum class FileAccess {
    stream, ///< copies it piece by piece into a buffer of the reader
    map, ///< maps the file, where the system can (POSIX), and streams it elsewhere. If another program makes the file
         ///< shorter meanwhile, the process receives SIGBUS. cellar never does: it replaces files.
};

/// How a file is read.
struct ReadOptions {
    NamedOnly named_only{};
    FileAccess access = FileAccess::stream;
    FileProgress progress = {};
    FileSystem* files = nullptr; ///< outlives the reader; null: the files of this machine
};

/// Texts that a program stores with a snapshot, each under a name. Names and texts are UTF-8. They are part of the
/// header of a file, which has at most 100,000,000 bytes; more is a violation.
using FileNotes = std::map<std::string, std::string>;

/// What `save` stores with a snapshot, and how its file is written.
struct SaveOptions {
    NamedOnly named_only{};
    std::string model = {}; ///< stored with the snapshot; any text that tells models apart
    FileNotes notes = {};   ///< stored with the snapshot; `read_notes` returns them
    /// Keys and values of caches are written in these formats (`stored_as<q8_0, q4_0>`): decoded, and encoded. Those
    /// that have the format already are written as they are. Nothing: all are.
    StoredAs store_as = {};
    WriteOptions write = {};
};

/// What `load` expects of a file, and how the file is read.
struct LoadOptions {
    NamedOnly named_only{};
    std::string model = {}; ///< refuses a file with another one; empty: accepts every file
    FileNotes notes = {};   ///< refuses a file that lacks one of them, or has another text for it
    /// Formats of keys and values that are decoded, and encoded in the memory's own (`formats<half, q8_0>`). They must
    /// outlive the call. Without them, a file in another format is refused, except between float, half and bfloat16.
    FormatList convert_from = {};
    ReadOptions read = {};
};

} // namespace cellar
