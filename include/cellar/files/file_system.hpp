// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace cellar {

/// The calls to the operating system that files need, for `WriteOptions::files` and `ReadOptions::files`. Functions
/// that return an int return 0, or an error number that `describe` understands. The tests have a file system that fails
/// or stops at any call.
class FileSystem {
public:
    using Path = std::filesystem::path;

    /// An open file, for writing or for reading. The destructor closes it, unless `close` was called.
    class File {
    public:
        File() = default;
        File(const File&) = delete;
        File& operator=(const File&) = delete;
        virtual ~File() = default;

        /// Asks for the room of the whole file. It may do nothing.
        virtual int reserve(std::uint64_t bytes) = 0;
        /// Writes the first `count` of the bytes, at least one.
        virtual int write(std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) = 0;
        /// Returns when the file's bytes will survive a loss of power.
        virtual int sync() = 0;
        /// Ends the use of the file. A write that fails late is reported here.
        virtual int close() = 0;
        /// Reads the first `count` of the bytes; 0 at the end of the file.
        virtual int read(std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) = 0;
        /// Maps the first bytes of the file. ENOTSUP or ENODEV: it will be read instead.
        virtual int map(std::uint64_t bytes, const std::byte*& first) = 0;
        /// Ends a mapping that `map` made of as many bytes.
        virtual void unmap(const std::byte* first, std::uint64_t bytes) noexcept = 0;
    };
    using FilePointer = std::unique_ptr<File>;

    FileSystem() = default;
    virtual ~FileSystem() = default;

    /// Creates a file that must not exist, and that will replace `target`. If that is a regular file, the new one gets
    /// its permissions, and its owner and group as far as this process may give them; else `permissions`. EISDIR, or
    /// EINVAL for anything else but a symbolic link: the target must not be replaced.
    virtual int create(const Path& path, const Path& target, std::filesystem::perms permissions, FilePointer& file) = 0;
    /// Replaces `to` in one step.
    virtual int rename(const Path& from, const Path& to) = 0;
    /// Returns when the names in a folder will survive a loss of power.
    virtual int sync_folder(const Path& folder) = 0;
    virtual void remove(const Path& path) noexcept = 0;
    /// Opens a regular file. EISDIR, or EINVAL for anything else: it is none.
    virtual int open(const Path& path, FilePointer& file, std::uint64_t& size) = 0;
    /// A sentence for one of the errors that the other functions return.
    virtual std::string describe(int error) const = 0;

protected:
    FileSystem(const FileSystem&) = default;
    FileSystem& operator=(const FileSystem&) = default;
};

} // namespace cellar
