// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "disk.hpp"
#include <cellar/crc/crc32.hpp>
#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/tensor.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace disk {

/// A file as values, to compare.
struct Content {
    std::map<std::string, std::string> metadata; ///< of the caller
    std::vector<std::pair<std::string, Bytes>> tensors;

    bool operator==(const Content&) const = default;
};

/// Different bytes for each tensor and each seed.
inline Bytes bytes_of(std::size_t size, unsigned seed) {
    Bytes bytes(size);
    std::uint32_t state = seed * 2654435761U + 1;
    for (std::byte& b : bytes) {
        state = state * 1664525U + 1013904223U;
        b = static_cast<std::byte>(state >> 24);
    }
    return bytes;
}

inline cellar::FilePlan small_plan(const std::string& model = "m") {
    using cellar::Dtype;
    return {{{"positions", Dtype::i32, {5}}, {"layer.0.k", Dtype::f16, {3, 2, 4}}, {"x", Dtype::u8, {3}}},
            {{"model", model}}};
}

/// Writes every tensor in pieces of at most `piece` bytes.
template <class FileWriter>
cellar::FileResult<void> write_tensors(FileWriter& writer, const cellar::FilePlan& plan, unsigned seed,
                                       std::size_t piece = SIZE_MAX) {
    for (const cellar::TensorPlan& tensor : plan.tensors) {
        std::size_t size = cellar::bytes_of(tensor.dtype);
        for (const std::uint64_t extent : tensor.shape) size *= extent;
        const Bytes bytes = bytes_of(size, seed++);
        for (std::size_t at = 0; at < size; at += std::min(piece, size - at)) {
            auto written = writer.append(std::span{bytes}.subspan(at, std::min(piece, size - at)));
            if (!written) return written;
        }
    }
    return writer.finish();
}

inline Content content_of(const cellar::FilePlan& plan, unsigned seed) {
    Content content{plan.metadata, {}};
    for (const cellar::TensorPlan& tensor : plan.tensors) {
        std::size_t size = cellar::bytes_of(tensor.dtype);
        for (const std::uint64_t extent : tensor.shape) size *= extent;
        content.tensors.emplace_back(tensor.name, bytes_of(size, seed++));
    }
    return content;
}

/// The content of the rest of the file, whose checksum must be right.
template <class FileReader>
cellar::FileResult<Content> read_all(FileReader& reader, std::size_t at_most = std::size_t{256} << 10) {
    Content content;
    for (const auto& [key, value] : reader.metadata())
        if (!key.starts_with("cellar.")) content.metadata.emplace(key, value);
    for (const cellar::StoredTensor& tensor : reader.tensors()) content.tensors.emplace_back(tensor.name, Bytes{});
    for (;;) {
        auto piece = reader.next(at_most);
        if (!piece) return std::move(piece).error();
        if (piece->tensor == nullptr) return content;
        Bytes& to = content.tensors[static_cast<std::size_t>(piece->tensor - reader.tensors().data())].second;
        CHECK(piece->offset == to.size());
        CHECK(reinterpret_cast<std::uintptr_t>(piece->bytes.data()) % cellar::bytes_of(piece->tensor->dtype) == 0);
        to.insert(to.end(), piece->bytes.begin(), piece->bytes.end());
    }
}

inline Bytes file_of(const cellar::FilePlan& plan, unsigned seed) {
    Disk disk;
    auto writer = cellar::FileWriter::create("f", plan, {.files = &disk});
    REQUIRE(writer);
    REQUIRE(write_tensors(*writer, plan, seed));
    return disk.now.at("f")->now;
}

/// What a reader makes of these bytes.
inline cellar::FileResult<Content> read_bytes(const Bytes& bytes, cellar::ReadOptions options = {}) {
    Disk disk;
    disk.put("f", bytes);
    options.files = &disk;
    auto reader = cellar::FileReader::open("f", std::move(options));
    if (!reader) return std::move(reader).error();
    return read_all(*reader);
}

/// The file with other entries of the metadata, whose names begin with "snapshot.".
inline Bytes with(const Bytes& bytes, const std::map<std::string, std::string>& changes) {
    Disk disk;
    disk.put("f", bytes);
    auto reader = cellar::FileReader::open("f", {.files = &disk}).value();
    const Content content = read_all(reader).value();
    cellar::FilePlan plan{{}, content.metadata};
    for (const auto& [key, value] : changes) plan.metadata.insert_or_assign("snapshot." + key, value);
    for (const cellar::StoredTensor& tensor : reader.tensors())
        plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    auto writer = cellar::FileWriter::create("g", plan, {.files = &disk}).value();
    for (const auto& [name, data] : content.tensors) REQUIRE(writer.append(data));
    REQUIRE(writer.finish());
    return disk.now.at("g")->now;
}

/// A file from a header and data by hand. `CRC-H` and `CRC-D` in the header become the right checksums.
inline Bytes made(std::string header, std::string_view data) {
    const auto replace = [&](std::string_view what, std::uint32_t crc) {
        if (const std::size_t at = header.find(what); at != std::string::npos)
            header.replace(at, what.size(), cellar::detail::hex_digits(crc));
    };
    replace("CRC-D", cellar::detail::crc32_of(std::as_bytes(std::span{data})));
    if (const std::size_t at = header.find("CRC-H"); at != std::string::npos) {
        header.replace(at, 5, "00000000");
        header.replace(at, 8, cellar::detail::hex_digits(cellar::detail::header_crc(header, at)));
    }
    const auto prefix = cellar::detail::length_prefix(header.size());
    Bytes bytes(prefix.begin(), prefix.end());
    for (const std::string_view part : {std::string_view{header}, data})
        for (const char c : part) bytes.push_back(static_cast<std::byte>(c));
    return bytes;
}

} // namespace disk
