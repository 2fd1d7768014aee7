// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "folder.hpp"
#include "hybrid/failing_allocations.hpp"
#include "made_files.hpp"
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace test_want_of_memory {

namespace {

using namespace cellar;

disk::Content load(const std::filesystem::path& path) {
    auto reader = FileReader::open(path);
    REQUIRE(reader);
    auto content = disk::read_all(*reader);
    REQUIRE(content);
    return *content;
}

} // namespace

TEST_CASE("a save that lacks memory at any point leaves the old file and nothing else") {
    const Folder folder;
    const auto path = folder.path / "f";
    const FilePlan old_plan = disk::small_plan("old");
    const FilePlan new_plan = disk::small_plan("new");
    const auto save = [&](const FilePlan& plan, unsigned seed) {
        auto writer = FileWriter::create(path, plan);
        REQUIRE(writer);
        const auto written = disk::write_tensors(*writer, plan, seed); // doctest would catch what it throws
        REQUIRE(written);
    };
    save(old_plan, 1);
    const disk::Content old_content = disk::content_of(old_plan, 1);
    const int failures = failures_of([&] { save(new_plan, 2); },
                                     [&] {
                                         CHECK(folder.names() == std::vector<std::string>{"f"});
                                         CHECK(load(path) == old_content);
                                     });
    CHECK(failures > 20);
    CHECK(load(path) == disk::content_of(new_plan, 2));
}

TEST_CASE("reading that lacks memory at any point can be repeated") {
    const Folder folder;
    const auto path = folder.path / "f";
    const FilePlan plan = disk::small_plan();
    {
        auto writer = FileWriter::create(path, plan, {.sync = false});
        REQUIRE(writer);
        REQUIRE(disk::write_tensors(*writer, plan, 1));
    }
    const disk::Content expected = disk::content_of(plan, 1);
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        const auto read = [&] {
            auto reader = FileReader::open(path, {.access = access});
            REQUIRE(reader);
            const auto whole = reader->verify();
            REQUIRE(whole);
            auto moved = std::move(*reader);
            auto content = disk::read_all(moved);
            REQUIRE(content);
            CHECK((*content == expected));
        };
        CHECK(failures_of(read, [] {}) > 20);
    }
}

} // namespace test_want_of_memory
