// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#if defined(__unix__) || defined(__APPLE__)

#include <cellar/files/file_system.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace cellar::detail {

/// Calls again if a signal came first. Returns 0 or the value of `errno`.
template <class Call>
int uninterrupted(Call call) {
    while (call() < 0)
        if (errno != EINTR) return errno;
    return 0;
}

class PosixFile final : public FileSystem::File {
public:
    ~PosixFile() override {
        PosixFile::close();
        if (lock_ >= 0) ::close(lock_);
    }

    int open(const std::filesystem::path& path, int flags, ::mode_t mode) {
        return uninterrupted([&] { return descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, mode); });
    }

    /// Locks the file as long as this object lives, also after `close`; the end of the process releases the lock.
    /// EWOULDBLOCK: another one has it. ENOTSUP or the like: the file system has no locks.
    int lock() {
        if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) return errno;
        lock_ = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
        return lock_ < 0 ? errno : 0;
    }

    int status(struct stat& status) const { return ::fstat(descriptor_, &status) == 0 ? 0 : errno; }

    /// Those of another file, except what this process may not give: then its group gets none, because this file's
    /// group is another one. A file system without permissions refuses, which does no harm.
    void take_permissions(const struct stat& other) const {
        ::mode_t mode = other.st_mode & 0777;
        if (::fchown(descriptor_, other.st_uid, other.st_gid) != 0
            && ::fchown(descriptor_, static_cast<::uid_t>(-1), other.st_gid) != 0)
            mode &= ~::mode_t{S_IRWXG};
        (void)::fchmod(descriptor_, mode);
    }

    int reserve([[maybe_unused]] std::uint64_t bytes) override {
#if defined(__linux__)
        // Only a full disk is of interest. A file system need not know this call.
        if (::fallocate(descriptor_, 0, 0, static_cast<::off_t>(bytes)) != 0 && errno == ENOSPC) return ENOSPC;
#endif
        return 0;
    }

    int write(std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        return transfer(count, [&] {
            return ::pwrite(descriptor_, bytes.data(), limited(bytes.size()), static_cast<::off_t>(at));
        });
    }

    int sync() override {
#if defined(__APPLE__)
        // There, fsync leaves data in the drive's cache. Some file systems know only that.
        if (::fcntl(descriptor_, F_FULLFSYNC) == 0) return 0;
#endif
        return uninterrupted([&] { return ::fsync(descriptor_); });
    }

    int close() override {
        const int descriptor = std::exchange(descriptor_, -1);
        // After a signal, the descriptor is closed on Linux, and unspecified elsewhere: it must not be closed again.
        return descriptor < 0 || ::close(descriptor) == 0 || errno == EINTR ? 0 : errno;
    }

    int read(std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        return transfer(
            count, [&] { return ::pread(descriptor_, bytes.data(), limited(bytes.size()), static_cast<::off_t>(at)); });
    }

    int map(std::uint64_t bytes, const std::byte*& first) override {
        if (bytes > std::numeric_limits<std::size_t>::max()) return ENOMEM;
        const auto length = static_cast<std::size_t>(bytes);
        void* const mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor_, 0);
        if (mapped == MAP_FAILED) return errno;
        (void)::madvise(mapped, length, MADV_SEQUENTIAL);
        first = static_cast<const std::byte*>(mapped);
        return 0;
    }

    void unmap(const std::byte* first, std::uint64_t bytes) noexcept override {
        (void)::munmap(const_cast<std::byte*>(first), static_cast<std::size_t>(bytes));
    }

private:
    /// Some systems refuse more in one call.
    static std::size_t limited(std::size_t bytes) {
        return std::min(bytes, std::size_t{1} << 30);
    }

    template <class Call>
    static int transfer(std::size_t& count, Call call) {
        ::ssize_t result = 0;
        const int error = uninterrupted([&] { return result = call(); });
        count = result < 0 ? 0 : static_cast<std::size_t>(result);
        return error;
    }

    int descriptor_ = -1;
    int lock_ = -1; ///< has the same lock
};

/// The calls of POSIX. Errors are values of `errno`.
class PosixFiles final : public FileSystem {
public:
    int create(const Path& path, const Path& target, std::filesystem::perms permissions, FilePointer& file) override {
        struct stat old {};
        const bool is_there = ::lstat(target.c_str(), &old) == 0;
        const bool is_regular = is_there && S_ISREG(old.st_mode);
        if (is_there && !is_regular && !S_ISLNK(old.st_mode)) return S_ISDIR(old.st_mode) ? EISDIR : EINVAL;
        constexpr ::mode_t own = S_IRUSR | S_IWUSR;
        auto created = std::make_unique<PosixFile>();
        const ::mode_t mode = is_regular ? own : static_cast<::mode_t>(permissions) & 0777;
        if (const int error = created->open(path, O_WRONLY | O_CREAT | O_EXCL, mode)) return error;
        struct stat made {};
        if (created->lock() == EWOULDBLOCK || created->status(made) != 0 || made.st_nlink == 0)
            return EEXIST; // it was taken for an abandoned one in between
        if (is_regular) created->take_permissions(old);
        file = std::move(created);
        return 0;
    }

    int rename(const Path& from, const Path& to) override {
        return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    }

    int sync_folder(const Path& folder) override {
        PosixFile file;
        if (const int error = file.open(folder, O_RDONLY | O_DIRECTORY, 0)) return error;
        const int error = file.sync();
        return error == EINVAL ? 0 : error; // some file systems cannot sync a folder
    }

    void remove(const Path& path) noexcept override { (void)::unlink(path.c_str()); }

    int open(const Path& path, FilePointer& file, std::uint64_t& size) override {
        auto opened = std::make_unique<PosixFile>();
        // Without O_NONBLOCK, opening a pipe would wait.
        if (const int error = opened->open(path, O_RDONLY | O_NONBLOCK, 0)) return error;
        struct stat status {};
        if (const int error = opened->status(status)) return error;
        if (!S_ISREG(status.st_mode)) return S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        size = static_cast<std::uint64_t>(status.st_size);
        file = std::move(opened);
        return 0;
    }

    std::string describe(int error) const override { return std::generic_category().message(error); }

    /// Removes an unfinished file, unless a writer has it. Returns true if it did.
    static bool remove_abandoned(const Path& path) {
        PosixFile file;
        struct stat opened {};
        struct stat named {};
        return file.open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0) == 0 && file.lock() == 0
               && file.status(opened) == 0 && S_ISREG(opened.st_mode) && ::lstat(path.c_str(), &named) == 0
               && named.st_dev == opened.st_dev && named.st_ino == opened.st_ino && ::unlink(path.c_str()) == 0;
    }
};

} // namespace cellar::detail

#endif
