// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/file_system.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace cellar::detail {

class StreamFile final : public FileSystem::File {
public:
    int open(const std::filesystem::path& path, std::ios::openmode mode) {
        errno = 0;
        stream_.pubsetbuf(nullptr, 0); // the writer and the reader have buffers of their own
        return stream_.open(path, mode) != nullptr ? 0 : reason();
    }

    int reserve(std::uint64_t) override { return 0; }

    int write(std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        const auto length = static_cast<std::streamsize>(bytes.size());
        errno = 0;
        count = 0;
        if (stream_.pubseekpos(static_cast<std::streamoff>(at), std::ios::out) == failed()) return reason();
        if (stream_.sputn(reinterpret_cast<const char*>(bytes.data()), length) != length) return reason();
        count = bytes.size();
        return 0;
    }

    int sync() override {
        errno = 0;
        return stream_.pubsync() == 0 ? 0 : reason();
    }

    int close() override {
        errno = 0;
        return !stream_.is_open() || stream_.close() != nullptr ? 0 : reason();
    }

    int read(std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        errno = 0;
        count = 0;
        if (stream_.pubseekpos(static_cast<std::streamoff>(at), std::ios::in) == failed()) return reason();
        const auto length = static_cast<std::streamsize>(bytes.size());
        count = static_cast<std::size_t>(stream_.sgetn(reinterpret_cast<char*>(bytes.data()), length));
        return 0;
    }

    int map(std::uint64_t, const std::byte*&) override { return ENOTSUP; }
    void unmap(const std::byte*, std::uint64_t) noexcept override {}

private:
    static std::streampos failed() { return {std::streamoff{-1}}; }
    static int reason() { return errno != 0 ? errno : EIO; }

    std::filebuf stream_;
};

/// Files by the standard library alone. It cannot sync: after a loss of power, a file may lack its contents. It cannot
/// map either, and keeps no owner. Errors are values of `errno`, where the library reports one, and EIO elsewhere.
class StreamFiles final : public FileSystem {
public:
    int create(const Path& path, const Path& target, std::filesystem::perms permissions, FilePointer& file) override {
        std::error_code ignored;
        const std::filesystem::file_status old = std::filesystem::symlink_status(target, ignored);
        const bool is_regular = std::filesystem::is_regular_file(old);
        if (std::filesystem::exists(old) && !is_regular && !std::filesystem::is_symlink(old))
            return std::filesystem::is_directory(old) ? EISDIR : EINVAL;
        if (std::filesystem::exists(path, ignored)) return EEXIST;
        auto created = std::make_unique<StreamFile>();
        if (const int error = created->open(path, std::ios::out | std::ios::binary | std::ios::trunc)) return error;
        std::filesystem::permissions(path, is_regular ? old.permissions() : permissions, ignored);
        file = std::move(created);
        return 0;
    }

    int rename(const Path& from, const Path& to) override {
        std::error_code error;
        std::filesystem::rename(from, to, error);
        return number(error);
    }

    int sync_folder(const Path&) override { return 0; }

    void remove(const Path& path) noexcept override {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }

    int open(const Path& path, FilePointer& file, std::uint64_t& size) override {
        std::error_code error;
        const std::filesystem::file_status status = std::filesystem::status(path, error);
        if (!std::filesystem::exists(status)) return ENOENT;
        if (!std::filesystem::is_regular_file(status)) return std::filesystem::is_directory(status) ? EISDIR : EINVAL;
        size = std::filesystem::file_size(path, error);
        if (error) return number(error);
        auto opened = std::make_unique<StreamFile>();
        if (const int failed = opened->open(path, std::ios::in | std::ios::binary)) return failed;
        file = std::move(opened);
        return 0;
    }

    std::string describe(int error) const override { return std::generic_category().message(error); }

private:
    static int number(const std::error_code& error) { return error ? error.default_error_condition().value() : 0; }
};

} // namespace cellar::detail
