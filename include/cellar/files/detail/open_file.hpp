// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/zeroed.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/detail/native_files.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_system.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace cellar::detail {

/// An open file whose bytes are read into a buffer, or mapped.
class OpenFile {
public:
    OpenFile(std::filesystem::path path, FileSystem* files) : path_{std::move(path)}, files_{&files_or_native(files)} {}
    OpenFile(OpenFile&& other) noexcept
        : path_{std::move(other.path_)},
          files_{other.files_},
          file_{std::move(other.file_)},
          size_{other.size_},
          map_{std::exchange(other.map_, nullptr)},
          buffer_{std::move(other.buffer_)} {}
    OpenFile& operator=(OpenFile&&) = delete;
    ~OpenFile() {
        if (map_ != nullptr) file_->unmap(map_, size_);
    }

    std::uint64_t size() const { return size_; }
    bool is_mapped() const { return map_ != nullptr; }

    FileError error(FileReason reason, const std::string& what) const { return {reason, path_.string() + ": " + what}; }

    FileResult<void> open() {
        const int failed = files_->open(path_, file_, size_);
        if (failed == 0) return {};
        // EINVAL: neither a regular file nor a folder
        const std::string reason = failed == EINVAL ? "it is not a regular file" : files_->describe(failed);
        return error(FileReason::cannot_open, "cannot be opened: " + reason);
    }

    /// The text of the header, whose length is checked before any memory is taken.
    FileResult<std::string> header() {
        std::array<std::byte, prefix_bytes> prefix{};
        if (size_ < prefix.size())
            return error(FileReason::truncated, "has " + std::to_string(size_) + " bytes, expected at least 8");
        if (auto read = copy(0, prefix); !read) return std::move(read).error();
        std::uint64_t length = 0;
        for (std::size_t k = 0; k < prefix.size(); ++k) length |= std::to_integer<std::uint64_t>(prefix[k]) << (8 * k);
        if (length > max_header_bytes)
            return error(FileReason::foreign, "is not a safetensors file: its header would have "
                                                  + std::to_string(length) + " bytes, expected at most "
                                                  + std::to_string(max_header_bytes));
        if (length > size_ - prefix.size())
            return error(FileReason::truncated, "has " + std::to_string(size_ - prefix.size())
                                                    + " bytes after the first 8, expected at least "
                                                    + std::to_string(length) + " of the header");
        std::string text(static_cast<std::size_t>(length), '\0');
        if (auto read = copy(prefix.size(), std::as_writable_bytes(std::span{text})); !read)
            return std::move(read).error();
        return text;
    }

    /// Maps the file. Where that is not possible, it will be streamed.
    FileResult<void> map() {
        const int failed = size_ == 0 ? ENOTSUP : file_->map(size_, map_);
        if (failed != 0) map_ = nullptr;
        if (failed == 0 || failed == ENOTSUP || failed == ENODEV) return {};
        return error(FileReason::cannot_read, "cannot be mapped: " + files_->describe(failed));
    }

    /// `count` bytes of the file from `at` on, valid until the next call. `room`: the largest count to come.
    FileResult<std::span<const std::byte>> bytes(std::uint64_t at, std::size_t count, std::size_t room) {
        if (map_ != nullptr) return std::span{map_ + at, count};
        if (buffer_.size() < static_cast<std::int64_t>(count))
            buffer_ = ZeroedArray<std::byte>{static_cast<std::int64_t>(std::min<std::uint64_t>(room, size_))};
        const std::span<std::byte> buffer{buffer_.data(), count};
        if (auto read = copy(at, buffer); !read) return std::move(read).error();
        return std::span<const std::byte>{buffer};
    }

    /// The same, read to memory of the caller.
    FileResult<std::span<const std::byte>> bytes_to(std::uint64_t at, std::span<std::byte> to) {
        if (auto read = copy(at, to); !read) return std::move(read).error();
        return std::span<const std::byte>{to};
    }

    /// Fills `bytes` with those of the file from `at` on.
    FileResult<void> copy(std::uint64_t at, std::span<std::byte> bytes) {
        if (map_ != nullptr && !bytes.empty()) std::memcpy(bytes.data(), map_ + at, bytes.size());
        if (map_ != nullptr) return {};
        while (!bytes.empty()) {
            std::size_t count = 0;
            if (const int failed = file_->read(bytes, at, count))
                return error(FileReason::cannot_read, "cannot be read: " + files_->describe(failed));
            if (count == 0)
                return error(FileReason::truncated,
                             "ends at byte " + std::to_string(at) + ", and had more when it was opened");
            bytes = bytes.subspan(count);
            at += count;
        }
        return {};
    }

private:
    std::filesystem::path path_;
    FileSystem* files_;
    FileSystem::FilePointer file_;
    std::uint64_t size_ = 0;
    const std::byte* map_ = nullptr;
    ZeroedArray<std::byte> buffer_; ///< aligned for every type of element
};

} // namespace cellar::detail
