// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/files/file_system.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace disk {

using Bytes = std::vector<std::byte>;

/// Thrown where the program is meant to end.
struct Crash {};

struct Contents {
    Bytes now;
    Bytes durable; ///< at the last sync
};

/// A disk in memory that knows which of its contents would survive a loss of power. Each call to it can fail, or be the
/// last one before a crash.
class Disk final : public cellar::FileSystem {
public:
    using Names = std::map<std::string, std::shared_ptr<Contents>>;

    Names now;
    Names durable; ///< at the last sync of the folder
    int calls = 0;
    int fail_at = -1;  ///< this call fails with EIO
    int crash_at = -1; ///< during this call the program ends
    bool crashed = false;
    std::size_t max_transfer = SIZE_MAX; ///< one call reads or writes at most so much

    /// True if the call must fail.
    bool fails() {
        const int call = calls++;
        return call == fail_at;
    }

    /// Ends the program, if it is time.
    void may_crash() {
        if (calls - 1 != crash_at) return;
        crashed = true;
        throw Crash{};
    }

    void put(const std::string& name, const Bytes& bytes) {
        now[name] = std::make_shared<Contents>(Contents{bytes, bytes});
        durable = now;
    }

    int create(const Path& path, const Path&, std::filesystem::perms, FilePointer& file) override;
    int open(const Path& path, FilePointer& file, std::uint64_t& size) override;

    int rename(const Path& from, const Path& to) override {
        if (fails()) return EIO;
        may_crash();
        now[to.string()] = now.at(from.string());
        now.erase(from.string());
        return 0;
    }

    int sync_folder(const Path&) override {
        if (fails()) return EIO;
        may_crash();
        durable = now;
        return 0;
    }

    void remove(const Path& path) noexcept override {
        if (!crashed) now.erase(path.string());
    }

    std::string describe(int error) const override { return "error " + std::to_string(error); }
};

class DiskFile final : public cellar::FileSystem::File {
public:
    DiskFile(Disk& disk, std::shared_ptr<Contents> contents) : disk_{disk}, contents_{std::move(contents)} {}

    int reserve(std::uint64_t) override {
        if (disk_.fails()) return ENOSPC;
        disk_.may_crash();
        return 0;
    }

    int write(std::span<const std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        const bool fails = disk_.fails();
        count = std::min(bytes.size(), disk_.max_transfer);
        const bool is_last = disk_.calls - 1 == disk_.crash_at;
        if (fails || is_last) count /= 2; // some of it arrives
        Bytes& now = contents_->now;
        now.resize(std::max<std::size_t>(now.size(), at + count));
        if (count != 0) std::memcpy(now.data() + at, bytes.data(), count);
        disk_.may_crash();
        return fails ? ENOSPC : 0;
    }

    int sync() override {
        if (disk_.fails()) return EIO;
        disk_.may_crash();
        contents_->durable = contents_->now;
        return 0;
    }

    int close() override {
        const bool fails = contents_ != nullptr && !disk_.crashed && disk_.fails();
        contents_.reset();
        return fails ? EIO : 0;
    }

    int read(std::span<std::byte> bytes, std::uint64_t at, std::size_t& count) override {
        if (disk_.fails()) return EIO;
        const Bytes& now = contents_->now;
        count = at >= now.size() ? 0 : std::min({bytes.size(), now.size() - at, disk_.max_transfer});
        if (count != 0) std::memcpy(bytes.data(), now.data() + at, count);
        return 0;
    }

    int map(std::uint64_t, const std::byte*& first) override {
        if (disk_.fails()) return EIO;
        first = contents_->now.data();
        return 0;
    }
    void unmap(const std::byte*, std::uint64_t) noexcept override {}

private:
    Disk& disk_;
    std::shared_ptr<Contents> contents_;
};

inline int Disk::create(const Path& path, const Path&, std::filesystem::perms, FilePointer& file) {
    if (fails()) return EIO;
    if (now.contains(path.string())) return EEXIST;
    auto contents = std::make_shared<Contents>();
    file = std::make_unique<DiskFile>(*this, contents);
    now[path.string()] = contents;
    may_crash();
    return 0;
}

inline int Disk::open(const Path& path, FilePointer& file, std::uint64_t& size) {
    if (fails()) return EIO;
    const auto found = now.find(path.string());
    if (found == now.end()) return ENOENT;
    size = found->second->now.size();
    file = std::make_unique<DiskFile>(*this, found->second);
    return 0;
}

/// What a machine finds after a crash.
enum class After {
    end_of_process,     ///< everything that was written
    loss_of_power,      ///< only what was synced
    names_before_data,  ///< all names, but only synced data: the file system wrote the folder first
    data_before_names,  ///< all data, but only synced names
    half_of_each_write, ///< all names, and of data that was not synced every second block
};

inline Bytes half_written(const Contents& contents) {
    constexpr std::size_t block = 64;
    Bytes bytes = contents.now;
    for (std::size_t k = 0; k < bytes.size(); ++k) {
        const std::byte old = k < contents.durable.size() ? contents.durable[k] : std::byte{};
        if (k / block % 2 == 1) bytes[k] = old;
    }
    return bytes;
}

inline Disk after(const Disk& disk, After what) {
    Disk result;
    const bool all_names = what != After::loss_of_power && what != After::data_before_names;
    for (const auto& [name, contents] : all_names ? disk.now : disk.durable) {
        const bool all_data = what == After::end_of_process || what == After::data_before_names;
        result.put(name, all_data                            ? contents->now
                         : what == After::half_of_each_write ? half_written(*contents)
                                                             : contents->durable);
    }
    return result;
}

} // namespace disk
