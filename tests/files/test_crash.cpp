// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "made_files.hpp"
#include <cellar/files/file_result.hpp>

#include <doctest/doctest.h>

#include <string>

namespace test_crash {

namespace {

using namespace cellar;
using disk::After;
using disk::Content;
using disk::Disk;

FilePlan plan_of(const std::string& model) {
    FilePlan plan = disk::small_plan(model);
    plan.tensors.push_back({"big", Dtype::u8, {4'300'000}}); // several writes
    return plan;
}

const Content old_content = disk::content_of(plan_of("old"), 1);
const Content new_content = disk::content_of(plan_of("new"), 2);

Disk disk_with_old_file() {
    Disk disk;
    disk.put("f", disk::file_of(plan_of("old"), 1));
    return disk;
}

FileResult<void> save(Disk& disk, const std::string& model, unsigned seed) {
    const FilePlan plan = plan_of(model);
    auto writer = FileWriter::create("f", plan, {.files = &disk});
    if (!writer) return std::move(writer).error();
    return disk::write_tensors(*writer, plan, seed, 100'000);
}

Content load(Disk& disk) {
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    auto content = disk::read_all(*reader);
    REQUIRE(content);
    return *content;
}

int calls_of_a_save() {
    Disk disk = disk_with_old_file();
    REQUIRE(save(disk, "new", 2));
    return disk.calls;
}

} // namespace

TEST_CASE("a crash at any call leaves the old file or the new one, whole") {
    const int calls = calls_of_a_save();
    CHECK(calls >= 9);
    for (int call = 0; call < calls; ++call) {
        Disk disk = disk_with_old_file();
        disk.crash_at = call;
        CAPTURE(call);
        bool finished = false;
        try {
            finished = save(disk, "new", 2).has_value();
        } catch (const disk::Crash&) {}
        for (const After what : {After::end_of_process, After::loss_of_power, After::names_before_data,
                                 After::data_before_names, After::half_of_each_write}) {
            Disk later = after(disk, what);
            const Content found = load(later);
            CHECK((found == old_content || found == new_content));
            if (finished) CHECK(found == new_content);
            REQUIRE(save(later, "new", 2)); // what the crash left behind is not in the way
            CHECK(load(later) == new_content);
        }
    }
}

TEST_CASE("a finished file survives a loss of power") {
    Disk disk = disk_with_old_file();
    REQUIRE(save(disk, "new", 2));
    for (const After what : {After::loss_of_power, After::names_before_data, After::data_before_names}) {
        Disk later = after(disk, what);
        CHECK(load(later) == new_content);
        CHECK(later.now.size() == 1);
    }
}

TEST_CASE("a call that fails leaves the old file, and nothing else") {
    const int calls = calls_of_a_save();
    for (int call = 0; call < calls; ++call) {
        Disk disk = disk_with_old_file();
        disk.fail_at = call;
        CAPTURE(call);
        const auto saved = save(disk, "new", 2);
        REQUIRE_FALSE(saved);
        CHECK(saved.error() == FileReason::cannot_write);
        CHECK(saved.error().message.starts_with("f: "));
        CHECK(disk.now.size() == 1);
        const bool only_the_folder = call == calls - 1; // the new file has its name already
        CHECK(load(disk) == (only_the_folder ? new_content : old_content));
    }
}

TEST_CASE("after an error, a writer returns it again") {
    Disk disk;
    disk.fail_at = 2;
    const FilePlan plan{{{"a", Dtype::u8, {5'000'000}}}, {}};
    auto writer = FileWriter::create("f", plan, {.files = &disk});
    REQUIRE(writer);
    const disk::Bytes bytes(2'500'000);
    const auto first = writer->append(bytes);
    REQUIRE_FALSE(first);
    CHECK(first.error().message == "f: cannot be written: after 1048672 bytes: error 28");
    CHECK(writer->append(bytes).error().message == first.error().message);
    CHECK(writer->finish().error().message == first.error().message);
    CHECK(disk.now.empty());
}

} // namespace test_crash
