// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <system_error>

namespace cellar::detail {

/// Files by the standard library alone. It cannot sync: after a loss of power, a file may lack its contents. It cannot
/// map either. Errors are values of `errno`, where the library reports one, and EIO elsewhere.
class StreamFiles {
public:
    struct Handle {
        std::filebuf stream;
    };

    int create(const std::filesystem::path& path, Handle& file) {
        std::error_code ignored;
        if (std::filesystem::exists(path, ignored)) return EEXIST;
        return open_as(path, std::ios::out | std::ios::binary | std::ios::trunc, file);
    }

    int reserve(Handle&, std::uint64_t) { return 0; }

    int write(Handle& file, std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) {
        const auto length = static_cast<std::streamsize>(bytes.size());
        errno = 0;
        count = 0;
        if (file.stream.pubseekpos(static_cast<std::streamoff>(at), std::ios::out) == failed()) return reason();
        if (file.stream.sputn(reinterpret_cast<const char*>(bytes.data()), length) != length) return reason();
        count = bytes.size();
        return 0;
    }

    int sync(Handle& file) {
        errno = 0;
        return file.stream.pubsync() == 0 ? 0 : reason();
    }

    int close(Handle& file) {
        errno = 0;
        return !file.stream.is_open() || file.stream.close() != nullptr ? 0 : reason();
    }

    int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
        std::error_code error;
        std::filesystem::rename(from, to, error);
        return number(error);
    }

    int sync_folder(const std::filesystem::path&) { return 0; }

    void remove(const std::filesystem::path& path) {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }

    int open(const std::filesystem::path& path, Handle& file, std::uint64_t& size) {
        std::error_code error;
        const std::filesystem::file_status status = std::filesystem::status(path, error);
        if (status.type() == std::filesystem::file_type::not_found) return ENOENT;
        if (status.type() == std::filesystem::file_type::directory) return EISDIR;
        if (status.type() != std::filesystem::file_type::regular) return EINVAL;
        size = std::filesystem::file_size(path, error);
        return error ? number(error) : open_as(path, std::ios::in | std::ios::binary, file);
    }

    int read(Handle& file, std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) {
        errno = 0;
        count = 0;
        if (file.stream.pubseekpos(static_cast<std::streamoff>(at), std::ios::in) == failed()) return reason();
        const auto length = static_cast<std::streamsize>(bytes.size());
        count = static_cast<std::size_t>(file.stream.sgetn(reinterpret_cast<char*>(bytes.data()), length));
        return 0;
    }

    int map(Handle&, std::uint64_t, const std::byte*&) { return ENOTSUP; }
    void unmap(const std::byte*, std::uint64_t) {}

    std::string describe(int error) const { return std::generic_category().message(error); }

private:
    static std::streampos failed() { return {std::streamoff{-1}}; }
    static int reason() { return errno != 0 ? errno : EIO; }
    static int number(const std::error_code& error) { return error ? error.default_error_condition().value() : 0; }

    static int open_as(const std::filesystem::path& path, std::ios::openmode mode, Handle& file) {
        errno = 0;
        file.stream.pubsetbuf(nullptr, 0); // the writer and the reader have buffers of their own
        return file.stream.open(path, mode) != nullptr ? 0 : reason();
    }
};

} // namespace cellar::detail
