// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/detail/posix_files.hpp>
#include <cellar/files/detail/stream_files.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace cellar {

namespace detail {

/// What the writer needs. Every function returns 0 or an error number that `describe` understands.
template <class S>
concept WritesFiles = requires(S s, typename S::Handle& file, const std::filesystem::path& path,
                               std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) {
    /// Creates a file that must not exist.
    { s.create(path, file) } -> std::same_as<int>;
    /// Asks for the room of the whole file. It may do nothing.
    { s.reserve(file, at) } -> std::same_as<int>;
    /// Writes the first `count` of the bytes, at least one.
    { s.write(file, bytes, at, count) } -> std::same_as<int>;
    /// Returns when the file's bytes will survive a loss of power.
    { s.sync(file) } -> std::same_as<int>;
    { s.close(file) } -> std::same_as<int>;
    /// Replaces `path` in one step.
    { s.rename(path, path) } -> std::same_as<int>;
    /// Returns when the names in the folder `path` will survive a loss of power.
    { s.sync_folder(path) } -> std::same_as<int>;
    s.remove(path);
};

/// What the reader needs.
template <class S>
concept ReadsFiles = requires(S s, typename S::Handle& file, const std::filesystem::path& path,
                              std::span<std::byte> bytes, std::uint64_t at, std::size_t& count, const std::byte*& map) {
    /// Opens a regular file, whose size goes to `at`.
    { s.open(path, file, at) } -> std::same_as<int>;
    /// Reads the first `count` of the bytes; 0 at the end of the file.
    { s.read(file, bytes, at, count) } -> std::same_as<int>;
    { s.close(file) } -> std::same_as<int>;
    /// Maps the first `at` bytes of the file.
    { s.map(file, at, map) } -> std::same_as<int>;
    s.unmap(map, at);
};

template <class S>
concept NamesErrors = requires(S s, int error) {
    { s.describe(error) } -> std::same_as<std::string>;
};

} // namespace detail

/// The calls to the operating system that files need. The tests have one that fails or stops at any call.
template <class S>
concept FileSystem = detail::WritesFiles<S> && detail::ReadsFiles<S> && detail::NamesErrors<S>;

/// Of this machine. Where it is not POSIX, nothing is synced and nothing is mapped.
#if defined(__unix__) || defined(__APPLE__)
using NativeFiles = detail::PosixFiles;
#else
using NativeFiles = detail::StreamFiles;
#endif
static_assert(FileSystem<NativeFiles>);

} // namespace cellar
