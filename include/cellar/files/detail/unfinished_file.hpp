// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/detail/native_files.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_system.hpp>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace cellar::detail {

/// A number that other processes and threads are unlikely to choose.
inline std::uint64_t unlikely_number() {
    static std::atomic<std::uint64_t> calls{0};
    const auto time = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    std::uint64_t mixed = time ^ (calls.fetch_add(1) << 32) ^ std::hash<std::thread::id>{}(std::this_thread::get_id());
    mixed ^= reinterpret_cast<std::uintptr_t>(&calls); // differs between processes
    mixed *= 0x9e3779b97f4a7c15;                       // the golden ratio: spreads the differences over all bits
    return mixed ^ (mixed >> 32);
}

/// True for `NAME.HEX.tmp`, the name of an unfinished file; of any, if no name is given.
inline bool is_unfinished(std::string_view file, std::string_view name) {
    constexpr std::string_view end = ".tmp";
    constexpr std::size_t digits = 8;
    if (file.size() <= digits + 1 + end.size() || !file.ends_with(end)) return false;
    file.remove_suffix(end.size());
    const bool is_hex = file.find_first_not_of("0123456789abcdef", file.size() - digits) == std::string_view::npos;
    file.remove_suffix(digits);
    if (!is_hex || !file.ends_with('.')) return false;
    file.remove_suffix(1);
    return name.empty() || file == name;
}

/// A file of another name next to the one that it will replace. The destructor removes it.
class UnfinishedFile {
public:
    UnfinishedFile(std::filesystem::path path, FileSystem* files)
        : path_{std::move(path)},
          folder_{path_.has_parent_path() ? path_.parent_path() : std::filesystem::path{"."}},
          files_{&files_or_native(files)} {}
    UnfinishedFile(UnfinishedFile&& other) noexcept
        : path_{std::move(other.path_)},
          folder_{std::move(other.folder_)},
          unfinished_{std::exchange(other.unfinished_, {})},
          files_{other.files_},
          file_{std::move(other.file_)} {}
    UnfinishedFile& operator=(UnfinishedFile&&) = delete;
    ~UnfinishedFile() { abandon(); }

    FileResult<void> create(std::uint64_t bytes, std::filesystem::perms permissions) {
        int error = EEXIST;
        for (int attempts = 100; error == EEXIST && attempts > 0; --attempts) {
            const std::uint64_t number = unlikely_number();
            std::filesystem::path name = path_;
            name += '.';
            name += hex_digits(static_cast<std::uint32_t>(number));
            name += ".tmp";
            error = files_->create(name, path_, permissions, file_);
            if (error == 0) unfinished_ = std::move(name);
        }
        if (error == EISDIR) return failure("cannot be replaced", error);
        if (error == EINVAL) return this->error("cannot be replaced: it is not a regular file");
        if (error != 0) return failure("cannot be written: no file can be created in its folder", error);
        if (const int full = file_->reserve(bytes))
            return failure("cannot be written: there is no room for " + std::to_string(bytes) + " bytes", full);
        return {};
    }

    FileResult<void> write(std::span<const std::byte> bytes, std::uint64_t at) {
        while (!bytes.empty()) {
            std::size_t count = 0;
            const int error = file_->write(bytes, at, count);
            if (error != 0 || count == 0)
                return failure("cannot be written: after " + std::to_string(at + count) + " bytes", error);
            bytes = bytes.subspan(count);
            at += count;
        }
        return {};
    }

    /// Gives the file its name, in one step.
    FileResult<void> publish(bool sync) {
        if (const int error = sync ? file_->sync() : 0) return failure("cannot be synced", error);
        if (const int error = file_->close()) return failure("cannot be closed", error);
        if (const int error = files_->rename(unfinished_, path_)) return failure("cannot be replaced", error);
        unfinished_.clear();
        file_.reset(); // the lock is needed no more
        if (const int error = sync ? files_->sync_folder(folder_) : 0)
            return failure("is written, but its folder cannot be synced", error);
        return {};
    }

    FileError error(const std::string& what) const { return {FileReason::cannot_write, path_.string() + ": " + what}; }

    void abandon() noexcept {
        if (unfinished_.empty()) return;
        (void)file_->close();
        files_->remove(unfinished_);
        unfinished_.clear();
    }

private:
    FileResult<void> failure(const std::string& what, int error) const {
        const std::string reason = error == 0 ? "nothing was written" : files_->describe(error);
        return this->error(what + ": " + reason);
    }

    std::filesystem::path path_;
    std::filesystem::path folder_;     // made in advance: after the file has its name, nothing may throw
    std::filesystem::path unfinished_; ///< empty if there is none
    FileSystem* files_;
    FileSystem::FilePointer file_;
};

} // namespace cellar::detail
