// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#if defined(__unix__) || defined(__APPLE__)

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace cellar::detail {

/// The calls of POSIX. Errors are values of `errno`.
class PosixFiles {
public:
    struct Handle {
        int descriptor = -1;
    };

    int create(const std::filesystem::path& path, Handle& file) {
        constexpr int mode = 0666; // less what the process masks (umask)
        return open_as(path, O_WRONLY | O_CREAT | O_EXCL, mode, file);
    }

    int reserve([[maybe_unused]] Handle& file, [[maybe_unused]] std::uint64_t bytes) {
#if defined(__linux__)
        // Only a full disk is of interest. A file system need not know this call.
        if (::fallocate(file.descriptor, 0, 0, static_cast<off_t>(bytes)) != 0 && errno == ENOSPC) return ENOSPC;
#endif
        return 0;
    }

    int write(Handle& file, std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) {
        const auto call = [&] {
            return ::pwrite(file.descriptor, bytes.data(), limited(bytes.size()), static_cast<::off_t>(at));
        };
        return transfer(call, count);
    }

    int sync(Handle& file) {
#if defined(__APPLE__)
        // There, fsync leaves data in the drive's cache. Some file systems know only that.
        if (::fcntl(file.descriptor, F_FULLFSYNC) == 0) return 0;
#endif
        return ::fsync(file.descriptor) == 0 ? 0 : errno;
    }

    int close(Handle& file) {
        const int descriptor = file.descriptor;
        file.descriptor = -1;
        return descriptor < 0 || ::close(descriptor) == 0 ? 0 : errno;
    }

    int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
        return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    }

    int sync_folder(const std::filesystem::path& path) {
        Handle folder;
        if (const int error = open_as(path, O_RDONLY | O_DIRECTORY, 0, folder)) return error;
        const int error = sync(folder);
        close(folder);
        return error == EINVAL ? 0 : error; // some file systems cannot sync a folder
    }

    void remove(const std::filesystem::path& path) {
        (void)::unlink(path.c_str());
    }

    int open(const std::filesystem::path& path, Handle& file, std::uint64_t& size) {
        // Without O_NONBLOCK, opening a pipe would wait.
        if (const int error = open_as(path, O_RDONLY | O_NONBLOCK, 0, file)) return error;
        struct stat status {};
        const int error = ::fstat(file.descriptor, &status) != 0 ? errno
                          : S_ISDIR(status.st_mode)              ? EISDIR
                          : S_ISREG(status.st_mode)              ? 0
                                                                 : EINVAL;
        size = static_cast<std::uint64_t>(status.st_size);
        if (error != 0) close(file);
        return error;
    }

    int read(Handle& file, std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) {
        const auto call = [&] {
            return ::pread(file.descriptor, bytes.data(), limited(bytes.size()), static_cast<::off_t>(at));
        };
        return transfer(call, count);
    }

    int map(Handle& file, std::uint64_t bytes, const std::byte*& first) {
        if (bytes > std::numeric_limits<std::size_t>::max()) return ENOMEM;
        const auto length = static_cast<std::size_t>(bytes);
        void* const mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
        if (mapped == MAP_FAILED) return errno;
        (void)::madvise(mapped, length, MADV_SEQUENTIAL);
        first = static_cast<const std::byte*>(mapped);
        return 0;
    }

    void unmap(const std::byte* first, std::uint64_t bytes) {
        (void)::munmap(const_cast<std::byte*>(first), static_cast<std::size_t>(bytes));
    }

    std::string describe(int error) const {
        return std::generic_category().message(error);
    }

private:
    static int open_as(const std::filesystem::path& path, int flags, int mode, Handle& file) {
        do {
            file.descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
        } while (file.descriptor < 0 && errno == EINTR);
        return file.descriptor < 0 ? errno : 0;
    }

    /// Some systems refuse more in one call.
    static std::size_t limited(std::size_t bytes) {
        return std::min(bytes, std::size_t{1} << 30);
    }

    /// Calls again if a signal came first.
    template <class Call>
    static int transfer(Call call, std::size_t& count) {
        ::ssize_t result = 0;
        do {
            result = call();
        } while (result < 0 && errno == EINTR);
        count = result < 0 ? 0 : static_cast<std::size_t>(result);
        return result < 0 ? errno : 0;
    }
};

} // namespace cellar::detail

#endif
