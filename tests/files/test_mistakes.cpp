// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "made_files.hpp"
#include "texts.hpp"
#include "violations.hpp"
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace test_mistakes {

namespace {

using namespace cellar;
using disk::Disk;

std::string violation_of_plan(const FilePlan& plan) {
    Disk disk;
    const std::string message =
        violation_of([&] { static_cast<void>(FileWriter::create("f", plan, {.files = &disk})); });
    CHECK(disk.calls == 0);
    return message;
}

} // namespace

TEST_CASE("a wrong plan is a violation, before a file is created") {
    CHECK(violation_of_plan({{{"a", Dtype::u8, {1}}, {"a", Dtype::u8, {1}}}, {}})
          == "two tensors are named a, expected different names");
    CHECK(violation_of_plan({{{"__metadata__", Dtype::u8, {1}}}, {}})
          == "a tensor is named __metadata__, expected a name that the format does not use");
    CHECK(violation_of_plan({{{"cellar.padding.7", Dtype::u8, {1}}}, {}})
          == "a tensor is named cellar.padding.7, expected a name that the format does not use");
    CHECK(violation_of_plan({{{"a", Dtype::u8, {1, 1, 1, 1, 1, 1, 1, 1, 1}}}, {}})
          == "tensor a has 9 dimensions, expected at most 8");
    CHECK(violation_of_plan({{{"a", Dtype::u16, {1ULL << 62}}}, {}})
          == "tensor a makes the file larger than 2^63 bytes, expected less");
    CHECK(violation_of_plan({{{"a", Dtype::u8, {1ULL << 62}}, {"b", Dtype::u8, {1ULL << 62}}}, {}})
          == "tensor b makes the file larger than 2^63 bytes, expected less");
    CHECK(violation_of_plan({{}, {{"cellar.format", "1"}}})
          == "the metadata has cellar.format, expected no entry that cellar itself writes");
    CHECK(violation_of_plan({{}, {{"k", "\xff"}}}) == "a name or an entry of the metadata is not UTF-8: \xff");
    CHECK(violation_of_plan({{{"\xc3", Dtype::u8, {1}}}, {}})
          == "a name or an entry of the metadata is not UTF-8: \xc3");
    CHECK(violation_of_plan({{}, {{"k", std::string(100'000'000, 'x')}}})
          == "the names, shapes and metadata take 100000120 bytes of JSON, expected at most 100000000");
}

TEST_CASE("data that does not fit the plan is a violation") {
    Disk disk;
    const FilePlan plan{{{"a", Dtype::u8, {4}}, {"b", Dtype::u8, {1}}}, {}};
    auto writer = FileWriter::create("f", plan, {.files = &disk});
    REQUIRE(writer);
    CHECK(violation_of([&] { static_cast<void>(writer->append(disk::Bytes(5))); })
          == "append: 5 bytes for tensor a, expected at most the 4 that are missing");
    REQUIRE(writer->append(disk::Bytes(3)));
    CHECK(violation_of([&] { static_cast<void>(writer->append(disk::Bytes(2))); })
          == "append: 2 bytes for tensor a, expected at most the 1 that are missing");
    CHECK(violation_of([&] { static_cast<void>(writer->finish()); })
          == "finish: tensor a is not complete, expected all of its bytes");
    REQUIRE(writer->append(disk::Bytes(1)));
    CHECK(violation_of([&] { static_cast<void>(writer->finish()); })
          == "finish: tensor b is not complete, expected all of its bytes");
    REQUIRE(writer->append(disk::Bytes(1)));
    REQUIRE(writer->append({}));
    CHECK(violation_of([&] { static_cast<void>(writer->append(disk::Bytes(1))); })
          == "append: 1 bytes after the last tensor, expected none");
    REQUIRE(writer->finish());
    CHECK(violation_of([&] { static_cast<void>(writer->finish()); })
          == "finish: the file is finished, expected a new one");
    CHECK(violation_of([&] { static_cast<void>(writer->append(disk::Bytes(1))); })
          == "append: 1 bytes after the last tensor, expected none");
}

TEST_CASE("reading a tensor as another type or size is a violation") {
    Disk disk;
    disk.put("f", disk::file_of(disk::small_plan(), 1));
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    const StoredTensor& positions = *reader->find("positions");
    std::vector<std::uint32_t> other(5);
    CHECK(violation_of([&] { static_cast<void>(reader->read<std::uint32_t>(positions, other)); })
          == "read: 20 bytes of type U32 for tensor positions, expected 20 of type I32");
    std::vector<std::int32_t> few(4);
    CHECK(violation_of([&] { static_cast<void>(reader->read<std::int32_t>(positions, few)); })
          == "read: 16 bytes of type I32 for tensor positions, expected 20 of type I32");
    CHECK(violation_of([&] { to_little_endian<std::int32_t>(few, std::as_writable_bytes(std::span{other})); })
          == "20 bytes for 4 elements, expected 16");
    CHECK(violation_of([&] { from_little_endian<std::int32_t>(std::as_bytes(std::span{other}), few); })
          == "20 bytes for 4 elements, expected 16");
}

TEST_CASE("reading a tensor of another file is a violation if this one is too short") {
    Disk disk;
    disk.put("small", disk::file_of({{{"a", Dtype::u8, {64}}}, {}}, 1));
    auto small = FileReader::open("small", {.access = FileAccess::map, .files = &disk});
    REQUIRE(small);
    const auto violation = [&](std::uint64_t begin, std::uint64_t bytes) {
        const StoredTensor tensor{.name = "a", .dtype = Dtype::u8, .shape = {bytes}, .begin = begin, .bytes = bytes};
        std::vector<std::uint8_t> to(static_cast<std::size_t>(bytes));
        return violation_of([&] { static_cast<void>(small->read<std::uint8_t>(tensor, to)); });
    };
    const std::string expected = " on, expected a tensor of this file, which has 64 bytes of data";
    CHECK(violation(0, 65) == "read: tensor a has 65 bytes from byte 0" + expected);
    CHECK(violation(1, 64) == "read: tensor a has 64 bytes from byte 1" + expected);
    CHECK(violation(UINT64_MAX, 2) == "read: tensor a has 2 bytes from byte 18446744073709551615" + expected);
    CHECK(violation(64, 0) == "none");
}

TEST_CASE("a result without a value or without an error is not asked for it") {
    const FileResult<int> failed{FileError{FileReason::foreign, "f: is a poem"}};
    CHECK(violation_of([&] { static_cast<void>(failed.value()); }) == "a failed result has no value: f: is a poem");
    CHECK(failed.error() == FileReason::foreign);
    CHECK(to_string(failed.error()) == "f: is a poem");
    const FileResult<int> good{3};
    CHECK((good && *good == 3));
    CHECK(violation_of([&] { static_cast<void>(good.error()); }) == "error() was called on a result that has a value");
    CHECK(violation_of([&] { static_cast<void>(FileResult<int>{3}.error()); })
          == "error() was called on a result that has a value");
    const FileResult<void> done;
    CHECK(violation_of([&] { static_cast<void>(done.error()); }) == "error() was called on a result without an error");
    CHECK(violation_of([&] { static_cast<void>(FileResult<void>{}.error()); })
          == "error() was called on a result without an error");
}

TEST_CASE("every reason has its own line for a person") {
    const Texts lines = texts_of_reasons<FileReason>([](FileReason reason) { return to_string(reason); });
    CHECK(lines.count == 10);
    CHECK(lines.distinct.size() == 10);
}

} // namespace test_mistakes
