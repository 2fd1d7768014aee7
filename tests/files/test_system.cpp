// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "folder.hpp"
#include "made_files.hpp"
#include "skip.hpp"
#include <cellar/files/abandoned_files.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace test_system {

/// How many of these calls a signal still interrupts.
int interrupted_syncs = 0;
int interrupted_closes = 0;

} // namespace test_system

// In place of those of the C library.
extern "C" int fsync(int descriptor) {
    if (test_system::interrupted_syncs <= 0) return static_cast<int>(::syscall(SYS_fsync, descriptor));
    --test_system::interrupted_syncs;
    errno = EINTR;
    return -1;
}

extern "C" int close(int descriptor) {
    const auto result = static_cast<int>(::syscall(SYS_close, descriptor));
    if (test_system::interrupted_closes <= 0) return result;
    --test_system::interrupted_closes;
    errno = EINTR;
    return -1;
}

namespace test_system {

// What only the real system shows.
namespace {

using namespace cellar;

FilePlan plan_of(const std::string& model) {
    FilePlan plan = disk::small_plan(model);
    plan.tensors.push_back({"big", Dtype::u8, {3'000'000}});
    return plan;
}

FileResult<void> save(const std::filesystem::path& path, const std::string& model, unsigned seed) {
    const FilePlan plan = plan_of(model);
    auto writer = FileWriter::create(path, plan, {.sync = false});
    if (!writer) return std::move(writer).error();
    return disk::write_tensors(*writer, plan, seed, 65'536);
}

disk::Content load(const std::filesystem::path& path) {
    auto reader = FileReader::open(path);
    REQUIRE(reader);
    auto content = disk::read_all(*reader);
    REQUIRE(content);
    return *content;
}

/// While it lives, no file of this process grows beyond so many bytes.
class FileLimit {
public:
    explicit FileLimit(::rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const ::rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
    }
    ~FileLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;

private:
    ::rlimit before_{};
    void (*handler_)(int) = nullptr;
};

} // namespace

TEST_CASE("a program that is killed while it saves leaves a whole file") {
    const Folder folder;
    const auto path = folder.path / "f";
    REQUIRE(save(path, "0", 0));
    const disk::Content contents[] = {disk::content_of(plan_of("0"), 0), disk::content_of(plan_of("1"), 1)};
    for (int round = 0; round < 20; ++round) {
        const ::pid_t child = ::fork();
        if (child == 0) {
            for (unsigned k = 1;; k ^= 1)
                if (!save(path, std::to_string(k), k)) std::_Exit(1);
        }
        REQUIRE(child > 0);
        ::usleep(static_cast<::useconds_t>(1000 + 1777 * round));
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        CHECK(WIFSIGNALED(status)); // no save failed
        const disk::Content found = load(path);
        CHECK((found == contents[0] || found == contents[1]));
    }
    REQUIRE(save(path, "1", 1)); // what the others left behind is not in the way
    CHECK(load(path) == contents[1]);
    const std::size_t left = folder.names().size() - 1;
    CHECK(left > 0);
    CHECK(remove_abandoned(path) == left);
    CHECK(folder.names() == std::vector<std::string>{"f"});
}

TEST_CASE("what killed saves leave behind is removed, and what others write stays") {
    const Folder folder;
    const auto path = folder.path / "f";
    const auto leave_behind = [](const std::filesystem::path& name) {
        const ::pid_t child = ::fork();
        if (child == 0) {
            auto writer = FileWriter::create(name, plan_of("0"), {.sync = false});
            ::raise(SIGKILL);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        CHECK(WIFSIGNALED(status));
    };
    REQUIRE(save(path, "0", 0));
    leave_behind(path);
    leave_behind(folder.path / "g");
    for (const char* const name :
         {"f.1234567.tmp", "f.12345678.tm", "f.1234567G.tmp", "f12345678.tmp", ".12345678.tmp"})
        std::ofstream{folder.path / name} << "not a save";
    REQUIRE(folder.names().size() == 8);

    const FilePlan plan = plan_of("1");
    auto writer = FileWriter::create(path, plan, {.sync = false});
    REQUIRE(writer);
    CHECK(remove_abandoned(path) == 1); // neither this writer's nor that of g
    CHECK(folder.names().size() == 8);
    CHECK(remove_abandoned(folder.path / "g") == 1);
    CHECK(remove_abandoned(folder.path) == 0);
    REQUIRE(disk::write_tensors(*writer, plan, 1));
    CHECK(load(path) == disk::content_of(plan, 1));
    CHECK(folder.names().size() == 6);
    leave_behind(path);
    leave_behind(folder.path / "g");
    CHECK(remove_abandoned(folder.path) == 2);
    CHECK(remove_abandoned(folder.path / "none" / "f") == 0);
    CHECK(load(path) == disk::content_of(plan, 1));
}

TEST_CASE("a disk that is full in the middle of a write is an error, and the old file stays") {
    const Folder folder;
    const auto path = folder.path / "f";
    REQUIRE(save(path, "0", 0));
    {
        const FileLimit limit{1'000'000};
        const auto saved = save(path, "1", 1);
        REQUIRE_FALSE(saved);
        CHECK(saved.error().message == path.string() + ": cannot be written: after 1000000 bytes: File too large");
    }
    CHECK(folder.names() == std::vector<std::string>{"f"});
    CHECK(load(path) == disk::content_of(plan_of("0"), 0));
}

TEST_CASE("a folder in which nothing can be written is an error") {
    if (::geteuid() == 0) CELLAR_SKIP("root may write everywhere");
    const Folder folder;
    ::chmod(folder.path.c_str(), 0500);
    CHECK(save(folder.path / "f", "0", 0).error() == FileReason::cannot_write);
    ::chmod(folder.path.c_str(), 0700);
}

TEST_CASE("a folder of that name is not replaced") {
    const Folder folder;
    std::filesystem::create_directory(folder.path / "f");
    const auto saved = save(folder.path / "f", "0", 0);
    CHECK(saved.error().message == (folder.path / "f").string() + ": cannot be replaced: Is a directory");
    CHECK(folder.names() == std::vector<std::string>{"f"});
}

TEST_CASE("pipes and devices are refused at once") {
    const Folder folder;
    const auto pipe = folder.path / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(FileReader::open(pipe).error().message == pipe.string() + ": cannot be opened: it is not a regular file");
    CHECK(FileReader::open("/dev/zero").error().message == "/dev/zero: cannot be opened: it is not a regular file");
}

TEST_CASE("pipes and devices are not replaced") {
    const Folder folder;
    const auto pipe = folder.path / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(save(pipe, "0", 0).error().message == pipe.string() + ": cannot be replaced: it is not a regular file");
    CHECK(std::filesystem::is_fifo(pipe));
    CHECK(folder.names() == std::vector<std::string>{"pipe"});
    CHECK(save("/dev/full", "0", 0).error().message == "/dev/full: cannot be replaced: it is not a regular file");
    CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST_CASE(
    "a new file is its owner's alone, or has the permissions of the options; one that is replaced keeps its own") {
    using std::filesystem::perms;
    const Folder folder;
    const auto permissions_of = [](const std::filesystem::path& path) {
        return std::filesystem::status(path).permissions();
    };
    const auto path = folder.path / "f";
    const auto write = [&](WriteOptions options) {
        auto writer = FileWriter::create(path, disk::small_plan(), options);
        REQUIRE(writer);
        REQUIRE(disk::write_tensors(*writer, disk::small_plan(), 0));
    };
    write({.sync = false});
    CHECK(permissions_of(path) == (perms::owner_read | perms::owner_write));
    std::filesystem::permissions(path, static_cast<perms>(0666)); // which the process would mask
    write({.sync = false, .permissions = perms::owner_read});
    CHECK(permissions_of(path) == static_cast<perms>(0666));
    std::filesystem::remove(path);
    write({.sync = false, .permissions = static_cast<perms>(0640)});
    CHECK(permissions_of(path) == static_cast<perms>(0640));
    if (::geteuid() != 0) return;
    REQUIRE(::chown(path.c_str(), 1, 2) == 0);
    write({.sync = false});
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK(status.st_uid == 1);
    CHECK(status.st_gid == 2);
    CHECK(permissions_of(path) == static_cast<perms>(0640));
}

TEST_CASE("signals do not interrupt a save") {
    const Folder folder;
    const auto path = folder.path / "f";
    const FilePlan plan = plan_of("0");
    auto writer = FileWriter::create(path, plan);
    REQUIRE(writer);
    interrupted_syncs = 3;
    interrupted_closes = 1;
    const auto done = disk::write_tensors(*writer, plan, 0);
    CHECK(std::exchange(interrupted_syncs, 0) == 0);
    CHECK(std::exchange(interrupted_closes, 0) == 0);
    CHECK(done);
    CHECK(load(path) == disk::content_of(plan, 0));
}

TEST_CASE("a path without a folder is in the current one") {
    const Folder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path);
    const auto saved = [] {
        const FilePlan plan = plan_of("0");
        auto writer = FileWriter::create("f", plan); // with a sync
        REQUIRE(writer);
        return disk::write_tensors(*writer, plan, 0);
    }();
    std::filesystem::current_path(before);
    CHECK(saved);
    CHECK(load(folder.path / "f") == disk::content_of(plan_of("0"), 0));
}

TEST_CASE("a symbolic link is replaced, and its target stays") {
    const Folder folder;
    REQUIRE(save(folder.path / "target", "0", 0));
    std::filesystem::create_symlink("target", folder.path / "link");
    REQUIRE(save(folder.path / "link", "1", 1));
    CHECK_FALSE(std::filesystem::is_symlink(folder.path / "link"));
    CHECK(load(folder.path / "target") == disk::content_of(plan_of("0"), 0));
    CHECK(load(folder.path / "link") == disk::content_of(plan_of("1"), 1));
}

TEST_CASE("two writers of one path do not disturb each other") {
    const Folder folder;
    const auto path = folder.path / "f";
    const FilePlan first_plan = plan_of("0");
    auto first = FileWriter::create(path, first_plan, {.sync = false});
    REQUIRE(first);
    REQUIRE(save(path, "1", 1));
    CHECK(load(path) == disk::content_of(plan_of("1"), 1));
    REQUIRE(disk::write_tensors(*first, first_plan, 0));
    CHECK(load(path) == disk::content_of(plan_of("0"), 0));
    CHECK(folder.names() == std::vector<std::string>{"f"});
}

} // namespace test_system
