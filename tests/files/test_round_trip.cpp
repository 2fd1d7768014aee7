// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "folder.hpp"
#include "made_files.hpp"
#include <cellar/element/element.hpp>
#include <cellar/files/detail/posix_files.hpp>
#include <cellar/files/detail/stream_files.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test_round_trip {

namespace {

using namespace cellar;
using disk::Bytes;
using disk::Content;
using disk::Disk;

std::string text(const Bytes& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

FilePlan every_dtype() {
    FilePlan plan;
    for (const detail::DtypeEntry& entry : detail::dtype_table)
        plan.tensors.push_back({"t." + std::string{entry.name}, entry.dtype, {3, 1, 5}});
    plan.tensors.push_back({"scalar", Dtype::f64, {}});
    plan.tensors.push_back({"empty", Dtype::f32, {4, 0}});
    plan.tensors.push_back({"\"quotes\" \\ \n \xc3\xbc", Dtype::u8, {64}});
    plan.metadata = {{"model", "a \"model\""}, {"", ""}, {"note", "\xe2\x82\xac\n\t\\"}};
    return plan;
}

} // namespace

TEST_CASE("the bytes of elements are little-endian on every machine, and elements come back") {
    const std::vector<std::uint32_t> elements{0x01020304, 0xa0b0c0d0};
    std::vector<std::byte> bytes(8);
    to_little_endian(std::span{elements}, std::span{bytes});
    const std::vector<int> expected{4, 3, 2, 1, 0xd0, 0xc0, 0xb0, 0xa0};
    for (std::size_t i = 0; i < bytes.size(); ++i) CHECK(std::to_integer<int>(bytes[i]) == expected[i]);
    std::vector<std::uint32_t> back(2);
    from_little_endian(std::span<const std::byte>{bytes}, std::span{back});
    CHECK(back == elements);
}

TEST_CASE("a file has exactly these bytes") {
    const FilePlan plan{{{"a", Dtype::u16, {2, 1}}, {"b", Dtype::u8, {3}}}, {{"k", "v"}}};
    Disk disk;
    auto writer = FileWriter::create("f", plan, {.files = &disk});
    REQUIRE(writer);
    const std::uint16_t a[] = {0x4241, 0x4443};
    REQUIRE(writer->append_elements<std::uint16_t>(a));
    const std::uint8_t b[] = {'x', 'y', 'z'};
    REQUIRE(writer->append_elements<std::uint8_t>(b));
    REQUIRE(writer->finish());

    const std::string header =
        R"({"__metadata__":{"cellar.header_crc32":"CRC-H","cellar.data_crc32":"CRC-D","cellar.format":"1","k":"v"},)"
        R"("a":{"dtype":"U16","shape":[2,1],"data_offsets":[0,4]},)"
        R"("cellar.padding.0":{"dtype":"U8","shape":[60],"data_offsets":[4,64]},)"
        R"("b":{"dtype":"U8","shape":[3],"data_offsets":[64,67]}})";
    const std::size_t end = 8 + header.size() + 2 * 3; // each CRC-X becomes 8 digits
    const std::string spaces((64 - end % 64) % 64, ' ');
    const Bytes expected = disk::made(header + spaces, "ABCD" + std::string(60, '\0') + "xyz");
    CHECK(text(disk.now.at("f")->now) == text(expected));
    CHECK((expected.size() - 67) % 64 == 0);
}

TEST_CASE("the checksums of a small file are these") {
    Disk disk;
    auto writer = FileWriter::create("f", {{{"digits", Dtype::u8, {9}}}, {}}, {.files = &disk});
    REQUIRE(writer);
    REQUIRE(writer->append(std::as_bytes(std::span{"123456789", 9})));
    REQUIRE(writer->finish());
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    CHECK(*reader->metadata("cellar.data_crc32") == "cbf43926");
    CHECK(*reader->metadata("cellar.format") == "1");
    CHECK(reader->metadata("none") == nullptr);
}

TEST_CASE("every type and shape comes back, however it is cut into pieces") {
    const FilePlan plan = every_dtype();
    const Content expected = disk::content_of(plan, 7);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{13}, SIZE_MAX}) {
        Disk disk;
        disk.max_transfer = piece == 13 ? 7 : SIZE_MAX;
        auto writer = FileWriter::create("f", plan, {.files = &disk});
        REQUIRE(writer);
        REQUIRE(disk::write_tensors(*writer, plan, 7, piece));
        CHECK(disk.now.size() == 1);
        for (const std::size_t at_most : {0U, 64U, 100U, 1U << 20}) {
            for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
                auto reader = FileReader::open("f", {.access = access, .files = &disk});
                REQUIRE(reader);
                CHECK(reader->is_mapped() == (access == FileAccess::map));
                auto content = disk::read_all(*reader, at_most);
                REQUIRE(content);
                CHECK(*content == expected);
            }
        }
    }
}

TEST_CASE("tensors have their types, shapes and sizes, and begin at multiples of 64 bytes") {
    const FilePlan plan = every_dtype();
    Disk disk;
    disk.put("f", disk::file_of(plan, 1));
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    REQUIRE(reader->tensors().size() == plan.tensors.size());
    for (const TensorPlan& tensor : plan.tensors) {
        const StoredTensor* const found = reader->find(tensor.name);
        REQUIRE(found != nullptr);
        CHECK(found->dtype == tensor.dtype);
        CHECK(found->shape == tensor.shape);
        CHECK(found->begin % 64 == 0);
        CHECK(found->bytes == *detail::tensor_bytes(tensor.dtype, tensor.shape));
    }
    CHECK(reader->find("cellar.padding.0") == nullptr);
    CHECK(reader->find("none") == nullptr);
}

TEST_CASE("a file without tensors comes back") {
    const FilePlan plan{{}, {{"only", "metadata"}}};
    auto content = disk::read_bytes(disk::file_of(plan, 1));
    REQUIRE(content);
    CHECK(*content == Content{plan.metadata, {}});
}

TEST_CASE("elements are stored little-endian, and read in any order") {
    Disk disk;
    const FilePlan plan{{{"p", dtype_of<std::int32_t>, {3}}, {"h", dtype_of<half>, {2}}}, {}};
    auto writer = FileWriter::create("f", plan, {.files = &disk});
    REQUIRE(writer);
    const std::int32_t positions[] = {1, -2, 1 << 20};
    const half halves[] = {half{1.5F}, half{-2.0F}};
    REQUIRE(writer->append_elements<std::int32_t>(positions));
    REQUIRE(writer->append_elements<half>(halves));
    REQUIRE(writer->finish());

    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        auto reader = FileReader::open("f", {.access = access, .files = &disk});
        REQUIRE(reader);
        std::vector<half> h(2);
        REQUIRE(reader->read<half>(*reader->find("h"), h));
        CHECK((h[0].bits == halves[0].bits && h[1].bits == halves[1].bits));
        std::vector<std::int32_t> p(3);
        REQUIRE(reader->read<std::int32_t>(*reader->find("p"), p));
        CHECK(std::equal(p.begin(), p.end(), positions));
        auto piece = reader->next();
        REQUIRE(piece);
        CHECK(piece->bytes[0] == std::byte{1});
        from_little_endian<std::int32_t>(piece->bytes, p);
        CHECK(std::equal(p.begin(), p.end(), positions));
    }
}

TEST_CASE("the writer and the reader report progress up to the end") {
    const FilePlan plan{{{"a", Dtype::u8, {1'000'000}}, {"b", Dtype::u8, {5}}}, {}};
    std::uint64_t done = 0;
    const auto follow = [&](std::uint64_t now, std::uint64_t total) {
        CHECK(now > done);
        CHECK(total == 1'000'005);
        done = now;
    };
    Disk disk;
    auto writer = FileWriter::create("f", plan, {.progress = follow, .files = &disk});
    REQUIRE(writer);
    CHECK(writer->total_bytes() == 1'000'005);
    REQUIRE(disk::write_tensors(*writer, plan, 1));
    CHECK(done == 1'000'005);
    done = 0;
    auto reader = FileReader::open("f", {.progress = follow, .files = &disk});
    REQUIRE(reader);
    REQUIRE(disk::read_all(*reader));
    CHECK(done == 1'000'005);
}

TEST_CASE("a progress callback that throws ends a write, and the old file stays") {
    const FilePlan plan{{{"a", Dtype::u8, {1'000'000}}}, {}};
    Disk disk;
    disk.put("f", disk::file_of(disk::small_plan(), 1));
    const auto stop = [](std::uint64_t, std::uint64_t) { throw std::runtime_error{"stop"}; };
    {
        auto writer = FileWriter::create("f", plan, {.progress = stop, .files = &disk});
        REQUIRE(writer);
        CHECK_THROWS_AS(static_cast<void>(disk::write_tensors(*writer, plan, 1)), std::runtime_error);
    }
    CHECK(disk.now.size() == 1);
    CHECK(disk.now.at("f")->now == disk::file_of(disk::small_plan(), 1));
}

TEST_CASE("after a progress callback threw, every call of the writer returns an error") {
    const FilePlan plan{{{"a", Dtype::u8, {1'000}}}, {}}; // written by `finish`
    const Bytes old = disk::file_of(disk::small_plan(), 1);
    Disk disk;
    disk.put("f", old);
    int calls = 0;
    const auto stop_once = [&](std::uint64_t, std::uint64_t) {
        if (calls++ == 0) throw std::runtime_error{"stop"};
    };
    auto writer = FileWriter::create("f", plan, {.progress = stop_once, .files = &disk});
    REQUIRE(writer);
    CHECK_THROWS_AS(static_cast<void>(disk::write_tensors(*writer, plan, 1)), std::runtime_error);
    CHECK(disk.now.size() == 1);
    for (const auto& result : {writer->finish(), writer->append(Bytes(1)), writer->finish()}) {
        REQUIRE(!result);
        CHECK(result.error() == FileReason::cannot_write);
        CHECK(result.error().message == "f: was not written: the progress callback threw an exception");
    }
    CHECK(calls == 1);
    CHECK(disk.now.size() == 1);
    CHECK(disk.now.at("f")->now == old);
}

TEST_CASE("pieces have whole units of 64 bytes, and one at least") {
    using Sizes = std::vector<std::size_t>;
    const FilePlan plan{{{"a", Dtype::u8, {150}}, {"b", Dtype::u8, {3}}}, {}};
    Disk disk;
    disk.put("f", disk::file_of(plan, 1));
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        const auto sizes = [&](std::size_t at_most) {
            auto reader = FileReader::open("f", {.access = access, .files = &disk});
            REQUIRE(reader);
            Sizes found;
            for (;;) {
                const auto piece = reader->next(at_most);
                REQUIRE(piece);
                if (piece->tensor == nullptr) return found;
                found.push_back(piece->bytes.size());
            }
        };
        for (const std::size_t at_most : Sizes{0, 1, 63, 64, 65, 127}) CHECK(sizes(at_most) == Sizes{64, 64, 22, 3});
        for (const std::size_t at_most : Sizes{128, 191}) CHECK(sizes(at_most) == Sizes{128, 22, 3});
        CHECK(sizes(192) == Sizes{150, 3});
    }
}

TEST_CASE("after a progress callback threw, the reader delivers the same bytes again") {
    const FilePlan plan{{{"a", Dtype::u8, {1'000}}}, {}};
    Disk disk;
    disk.put("f", disk::file_of(plan, 1));
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        int calls = 0;
        const auto stop_once = [&](std::uint64_t done, std::uint64_t) {
            CHECK(done == std::min<std::uint64_t>(1'000, 256 * static_cast<std::uint64_t>(std::max(calls, 1))));
            if (calls++ == 0) throw std::runtime_error{"stop"};
        };
        auto reader = FileReader::open("f", {.access = access, .progress = stop_once, .files = &disk});
        REQUIRE(reader);
        CHECK_THROWS_AS(static_cast<void>(reader->next(256)), std::runtime_error);
        const auto content = disk::read_all(*reader, 256);
        REQUIRE(content);
        CHECK(*content == disk::content_of(plan, 1));
    }
}

TEST_CASE("verify reads everything, and reading starts again") {
    Disk disk;
    disk.put("f", disk::file_of(disk::small_plan(), 3));
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    REQUIRE(reader->next());
    REQUIRE(reader->verify());
    auto content = disk::read_all(*reader);
    REQUIRE(content);
    CHECK(*content == disk::content_of(disk::small_plan(), 3));
}

TEST_CASE_TEMPLATE("a file on the disk of this machine comes back", Files, detail::PosixFiles, detail::StreamFiles) {
    Files files;
    const Folder folder;
    const auto path = folder.path / "f.safetensors";
    FilePlan plan = disk::small_plan();
    plan.tensors.push_back({"big", Dtype::f32, {300'001}});
    for (const unsigned seed : {1U, 2U}) { // the second one replaces the first
        auto writer = FileWriter::create(path, plan, {.files = &files});
        REQUIRE(writer);
        CHECK(folder.names().size() == (seed == 1 ? 1 : 2));
        REQUIRE(disk::write_tensors(*writer, plan, seed, 100'000));
        CHECK(folder.names() == std::vector<std::string>{"f.safetensors"});
        for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
            auto reader = FileReader::open(path, {.access = access, .files = &files});
            REQUIRE(reader);
            auto moved = std::move(*reader);
            auto content = disk::read_all(moved);
            REQUIRE(content);
            CHECK(*content == disk::content_of(plan, seed));
        }
    }
}

TEST_CASE_TEMPLATE("a writer that is dropped leaves nothing behind", Files, detail::PosixFiles, detail::StreamFiles) {
    Files files;
    const Folder folder;
    {
        auto writer = FileWriter::create(folder.path / "f", disk::small_plan(), {.files = &files});
        REQUIRE(writer);
        REQUIRE(writer->append(Bytes(20)));
        const auto moved = std::move(*writer);
        CHECK(folder.names().size() == 1);
    }
    CHECK(folder.names().empty());
}

TEST_CASE_TEMPLATE("what is no file is refused with its path", Files, detail::PosixFiles, detail::StreamFiles) {
    Files files;
    const Folder folder;
    const auto missing = FileReader::open(folder.path / "none", {.files = &files});
    CHECK(missing.error() == FileReason::cannot_open);
    CHECK(missing.error().message == (folder.path / "none").string() + ": cannot be opened: No such file or directory");
    const auto a_folder = FileReader::open(folder.path, {.files = &files});
    CHECK(a_folder.error().message == folder.path.string() + ": cannot be opened: Is a directory");
    const auto nowhere = FileWriter::create(folder.path / "none" / "f", disk::small_plan(), {.files = &files});
    CHECK(nowhere.error() == FileReason::cannot_write);
}

} // namespace test_round_trip
