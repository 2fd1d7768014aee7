// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "made_files.hpp"
#include <cellar/files/file_result.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace test_damage {

namespace {

using namespace cellar;
using disk::Bytes;

/// A header with one tensor, `t`, whose entry is given, of a file that is right otherwise.
std::string with_tensor(const std::string& entry) {
    return R"({"__metadata__":{"cellar.header_crc32":"CRC-H","cellar.data_crc32":"CRC-D","cellar.format":"1"},"t":)"
           + entry + "}";
}

/// The same with these entries after the metadata. Three spaces, which let the data begin at a multiple of 8.
std::string with_tensors(const std::string& entries) {
    std::string header =
        R"({"__metadata__":{"cellar.header_crc32":"CRC-H","cellar.data_crc32":"CRC-D","cellar.format":"1"},)" + entries
        + "}";
    while ((header.size() + 6) % 8 != 0) header += ' ';
    return header;
}

struct Refused {
    FileReason reason;
    std::string message;
};

Refused refused(const Bytes& bytes) {
    auto content = disk::read_bytes(bytes);
    REQUIRE_FALSE(content);
    CHECK(content.error().message.starts_with("f: "));
    return {content.error().reason, content.error().message.substr(3)};
}

void check_refused(const std::string& header, std::string_view data, FileReason reason, const std::string& message) {
    CAPTURE(header);
    const Refused found = refused(disk::made(header, data));
    CHECK(found.reason == reason);
    CHECK(found.message == message);
}

} // namespace

TEST_CASE("a file with any byte changed is refused") {
    const Bytes whole = disk::file_of(disk::small_plan(), 1);
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const auto flipped : {0x01, 0x20, 0x80, 0xff}) {
            Bytes bytes = whole;
            bytes[at] ^= static_cast<std::byte>(flipped);
            CAPTURE(at);
            CHECK_FALSE(disk::read_bytes(bytes));
            CHECK_FALSE(disk::read_bytes(bytes, {.access = FileAccess::map}));
        }
    }
}

TEST_CASE("a file of any other length is refused") {
    const Bytes whole = disk::file_of(disk::small_plan(), 1);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const Refused found = refused({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
        CHECK(found.reason == FileReason::truncated);
    }
    Bytes longer = whole;
    longer.push_back({});
    CHECK(refused(longer).reason == FileReason::malformed);
}

TEST_CASE("two neighbouring blocks that changed places are noticed") {
    Bytes bytes = disk::file_of({{{"a", Dtype::u8, {4096}}}, {}}, 1);
    const auto middle = bytes.end() - 2048;
    std::swap_ranges(middle - 512, middle, middle);
    CHECK(refused(bytes).reason == FileReason::altered);
}

TEST_CASE("the message of an altered file has both checksums") {
    Bytes bytes = disk::made(with_tensors(R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), "a");
    CHECK(disk::read_bytes(bytes));
    bytes.back() = std::byte{'b'};
    CHECK(refused(bytes).message == "the data was altered: its checksum is 71beeff9, and 'e8b7be43' is stored");
    bytes[8 + 71] = std::byte{'x'}; // in the stored checksum of the data
    CHECK(refused(bytes).message == "the header was altered: its checksum is 6f8b97c8, and '2245ed26' is stored");
}

TEST_CASE("a header length that lies takes no memory") {
    Bytes bytes(100);
    for (std::size_t k = 0; k < 8; ++k) bytes[k] = std::byte{0xff};
    CHECK(refused(bytes).reason == FileReason::foreign);
    bytes[7] = bytes[6] = bytes[5] = bytes[4] = std::byte{};
    bytes[3] = std::byte{4};
    CHECK(refused(bytes).message == "has 92 bytes after the first 8, expected at least 83886079 of the header");
}

TEST_CASE("a file of another program is refused as such") {
    check_refused(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a", FileReason::foreign,
                  "was not written by cellar: its metadata lacks cellar.format");
    check_refused(R"({"__metadata__":{"format":"pt"}})", "", FileReason::foreign,
                  "was not written by cellar: its metadata lacks cellar.format");
    check_refused("{}", "", FileReason::foreign, "was not written by cellar: its metadata lacks cellar.format");
}

TEST_CASE("a newer format is refused as such") {
    check_refused(R"({"__metadata__":{"cellar.format":"2"}})", "", FileReason::newer,
                  "has format '2', and this version of cellar reads up to 1");
    for (const std::string format : {"", "0", "01", "1.0", "-1", "12345678901"}) {
        check_refused(R"({"__metadata__":{"cellar.format":")" + format + "\"}}", "", FileReason::malformed,
                      "has format '" + format + "', and this version of cellar reads up to 1");
    }
}

TEST_CASE("a header without checksums is refused") {
    check_refused(R"({"__metadata__":{"cellar.format":"1"}})", "", FileReason::malformed,
                  "its metadata lacks a checksum");
    check_refused(R"({"__metadata__":{"cellar.format":"1","cellar.header_crc32":"CRC-H","cellar.data_crc32":"0"}})", "",
                  FileReason::altered, "the data was altered: its checksum is 00000000, and '0' is stored");
    check_refused(R"({"__metadata__":{"cellar.format":"1","cellar.header_crc32":"0","cellar.data_crc32":"CRC-D"}})", "",
                  FileReason::altered, "the header was altered: its checksum is 6474f4fd, and '0' is stored");
}

TEST_CASE("what is not JSON is refused") {
    const std::string message = "the header is not JSON from byte ";
    check_refused("", "", FileReason::malformed, message + "1 on");
    check_refused("{", "", FileReason::malformed, message + "2 on");
    check_refused("{}x", "", FileReason::malformed, message + "3 on");
    check_refused("{\"\xff\":1}", "", FileReason::malformed, message + "3 on");
    check_refused(R"({"t":{"dtype":"U8","shape":[1e400]}})", "", FileReason::malformed, message + "33 on");
}

TEST_CASE("JSON that the format does not have is refused") {
    const auto has = [](const char* what) {
        return std::string{"the header has "} + what + " where the format has none";
    };
    check_refused("[]", "", FileReason::malformed, has("an array"));
    check_refused("1", "", FileReason::malformed, has("a number"));
    check_refused("null", "", FileReason::malformed, has("null"));
    check_refused("true", "", FileReason::malformed, has("a boolean"));
    check_refused(R"("text")", "", FileReason::malformed, has("a string"));
    check_refused(R"({"t":1})", "", FileReason::malformed, has("a number"));
    check_refused(R"({"t":[[[[[)", "", FileReason::malformed, has("an array"));
    check_refused(R"({"__metadata__":{"k":1}})", "", FileReason::malformed, has("a number"));
    check_refused(R"({"__metadata__":{"k":{}}})", "", FileReason::malformed, has("an object"));
    check_refused(R"({"__metadata__":["k"]})", "", FileReason::malformed, has("an array"));
    check_refused(R"({"t":{"shape":[-1]}})", "", FileReason::malformed, has("a negative number"));
    check_refused(R"({"t":{"shape":[1.5]}})", "", FileReason::malformed, has("a number that is no integer"));
    check_refused(R"({"t":{"shape":[[1]]}})", "", FileReason::malformed, has("an array"));
    check_refused(R"({"t":{"shape":"1"}})", "", FileReason::malformed, has("a string"));
    check_refused(R"({"t":{"shape":{}}})", "", FileReason::malformed, has("an object"));
    check_refused(R"({"t":{"dtype":[]}})", "", FileReason::malformed, has("an array"));
}

TEST_CASE("a tensor that contradicts itself is refused") {
    const auto entry = [](const std::string& text, const std::string& message) {
        check_refused(with_tensor(text), "aaaa", FileReason::malformed, "tensor 't' " + message);
    };
    entry("{}", "lacks its dtype, shape or data_offsets");
    entry(R"({"dtype":"U8","shape":[4]})", "lacks its dtype, shape or data_offsets");
    entry(R"({"dtype":"X8","shape":[4]})", "has the dtype 'X8', which cellar does not know");
    entry(R"({"dtype":"U8","other":1})", "has the unknown entry 'other'");
    entry(R"({"dtype":"U8","dtype":"U8"})", "has dtype twice");
    entry(R"({"shape":[1,2,3,4,5,6,7,8,9]})", "has more than 8 dimensions");
    entry(R"({"data_offsets":[1,2,3]})", "has more than two data_offsets");
    entry(R"({"shape":[9223372036854775808]})", "has a size above 2^63");
    entry(R"({"dtype":"U8","shape":[5],"data_offsets":[0,4]})", "has 4 bytes, expected 5 from its type and shape");
    entry(R"({"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,4]})",
          "has 4 bytes, expected more than 2^63 from its type and shape");
    check_refused(with_tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), "aaaa", FileReason::malformed,
                  "tensor 't': its data_offsets are not a begin and an end");
    check_refused(with_tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[4]})"), "aaaa", FileReason::malformed,
                  "tensor 't': its data_offsets are not a begin and an end");
}

TEST_CASE("tensors that do not cover the data exactly are refused") {
    const auto entries = [](const std::string& text, FileReason reason, const std::string& message) {
        check_refused(with_tensors(text), "aaaa", reason, message);
    };
    entries(
        R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]})",
        FileReason::malformed, "tensor 'b' begins at byte 1 of the data, expected 2");
    entries(
        R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]})",
        FileReason::malformed, "tensor 'b' begins at byte 3 of the data, expected 1");
    entries(R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})", FileReason::malformed,
            "has 4 bytes of data, expected 3");
    entries(R"("a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]})", FileReason::truncated,
            "has 4 bytes of data, expected 5");
    entries(
        R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U16","shape":[1],"data_offsets":[1,3]})",
        FileReason::malformed, "tensor 'b' is not aligned to its elements");
    entries(R"("a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]})",
            FileReason::truncated, "has 4 bytes of data, expected 9223372036854775807");
}

TEST_CASE("duplicate names are refused") {
    const std::string entry = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    check_refused(with_tensors("\"a\":" + entry + ",\"a\":" + entry), "", FileReason::malformed,
                  "two tensors are named 'a'");
    check_refused(R"({"__metadata__":{},"__metadata__":{}})", "", FileReason::malformed,
                  "two tensors are named '__metadata__'");
    check_refused(R"({"__metadata__":{"k":"1","k":"1"}})", "", FileReason::malformed, "a metadata key occurs twice");
}

TEST_CASE("text of a file appears in messages printable and shortened") {
    check_refused("{\"" + std::string(70, 'n') + "\xc3\xbc\":{}}", "", FileReason::malformed,
                  "tensor '" + std::string(60, 'n') + "...' lacks its dtype, shape or data_offsets");
    check_refused(R"({"a\nb":{}})", "", FileReason::malformed, "tensor 'a?b' lacks its dtype, shape or data_offsets");
}

TEST_CASE("a file that becomes shorter while it is read is refused") {
    disk::Disk disk;
    disk.put("f", disk::file_of(disk::small_plan(), 1));
    auto reader = FileReader::open("f", {.files = &disk});
    REQUIRE(reader);
    disk.now.at("f")->now.resize(disk.now.at("f")->now.size() - 1);
    const auto content = disk::read_all(*reader);
    CHECK(content.error() == FileReason::truncated);
    CHECK(content.error().message.ends_with("and had more when it was opened"));
}

TEST_CASE("every call that fails while reading is an error with its path") {
    disk::Disk disk;
    disk.put("f", disk::file_of(disk::small_plan(), 1));
    for (const FileAccess access : {FileAccess::stream, FileAccess::map}) {
        int failures = 0;
        for (bool failed = true; failed; ++failures) {
            disk.calls = 0;
            disk.fail_at = failures;
            auto reader = FileReader::open("f", {.access = access, .files = &disk});
            auto content = reader ? disk::read_all(*reader) : FileResult<disk::Content>{reader.error()};
            failed = !content;
            if (failed) CHECK(content.error().message.starts_with("f: cannot be "));
        }
        CHECK(failures >= 4);
    }
}

} // namespace test_damage
