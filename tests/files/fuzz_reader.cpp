// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Feeds the reader with any bytes: as they are, and with a header length and checksums that are right, so that the
// checks behind them are reached. What it accepts is written again, and must come back equal. A small cache also loads
// them, and converts units.
#include "disk.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/int8.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace cellar;
using disk::Bytes;
using disk::Disk;

void expect(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::abort();
}

struct Read {
    FilePlan plan;
    std::vector<Bytes> data;
};

std::optional<Read> read(const Bytes& bytes, FileAccess access) {
    Disk disk;
    disk.put("f", bytes);
    auto reader = FileReader::open("f", {.access = access, .files = &disk});
    if (!reader) {
        expect(reader.error().message.size() < 500, "a message is short");
        return std::nullopt;
    }
    Read result;
    for (const auto& [key, value] : reader->metadata())
        if (!key.starts_with("cellar.")) result.plan.metadata.emplace(key, value);
    for (const StoredTensor& tensor : reader->tensors()) {
        result.plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
        result.data.emplace_back();
    }
    for (;;) {
        auto piece = reader->next(256);
        if (!piece) return std::nullopt;
        if (piece->tensor == nullptr) break;
        Bytes& to = result.data[static_cast<std::size_t>(piece->tensor - reader->tensors().data())];
        expect(piece->offset == to.size(), "pieces follow one another");
        expect(reinterpret_cast<std::uintptr_t>(piece->bytes.data()) % bytes_of(piece->tensor->dtype) == 0
                   || access == FileAccess::map, // a vector's memory, not a page
               "pieces are aligned");
        to.insert(to.end(), piece->bytes.begin(), piece->bytes.end());
    }
    for (std::size_t k = 0; k < result.data.size(); ++k)
        expect(result.data[k].size() == reader->tensors()[k].bytes, "tensors are complete");
    return result;
}

Bytes written(const Read& content) {
    Disk disk;
    auto writer = FileWriter::create("f", content.plan, {.files = &disk});
    expect(writer.has_value(), "the content can be written");
    for (const Bytes& bytes : content.data) expect(writer->append(bytes).has_value(), "the data can be written");
    expect(writer->finish().has_value(), "the file can be finished");
    return disk.now.at("f")->now;
}

/// It is refused, or becomes a snapshot; then the cache is as it was.
void check_load(const Bytes& bytes) {
    static Cache<StandardV<half>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                        {.sequences = 1, .cells = 4, .batch = 4}};
    Disk disk;
    disk.put("f", bytes);
    const auto snapshot = load("f", cache, {.convert_from = formats<q8_0, int8_per_head>, .read = {.files = &disk}});
    expect(cache.statistics().offloaded == (snapshot ? 1 : 0), "a snapshot is loaded, or nothing");
    expect(audit(cache).empty(), "the bookkeeping is in order");
    if (snapshot) return;
    expect(snapshot.error().message.size() < 500, "a message is short");
}

void check(const Bytes& bytes) {
    check_load(bytes);
    const std::optional<Read> streamed = read(bytes, FileAccess::stream);
    const std::optional<Read> mapped = read(bytes, FileAccess::map);
    expect(streamed.has_value() == mapped.has_value(), "a stream and a map agree");
    if (!streamed) return;
    expect(streamed->data == mapped->data, "a stream and a map have the same data");
    const std::optional<Read> again = read(written(*streamed), FileAccess::stream);
    expect(again && again->plan.metadata == streamed->plan.metadata && again->data == streamed->data,
           "what was written again is equal");
}

/// The same with the length and the checksums that a reader expects, if the header is long enough to have them. The
/// header ends before the last `}` and the spaces behind it.
Bytes sealed(std::span<const std::byte> bytes) {
    const std::string text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (text.size() < detail::prefix_bytes) return {};
    std::size_t end = text.rfind("}}");
    end = end == std::string::npos ? text.size() : end + 2;
    while (end < text.size() && text[end] == ' ') ++end;
    std::string header = text.substr(detail::prefix_bytes, std::max(end, detail::prefix_bytes) - detail::prefix_bytes);
    const auto data = bytes.subspan(std::max(end, detail::prefix_bytes));
    if (const auto at = detail::find_digits(header, detail::data_crc_key))
        header.replace(*at, 8, detail::hex_digits(detail::crc32_of(data)));
    if (const auto at = detail::find_digits(header, detail::header_crc_key))
        header.replace(*at, 8, detail::hex_digits(detail::header_crc(header, *at)));
    const auto prefix = detail::length_prefix(header.size());
    Bytes result(prefix.begin(), prefix.end());
    for (const char c : header) result.push_back(static_cast<std::byte>(c));
    result.insert(result.end(), data.begin(), data.end());
    return result;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span{data, size});
    check({bytes.begin(), bytes.end()});
    check(sealed(bytes));
    return 0;
}
