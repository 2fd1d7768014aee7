// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "folder.hpp"
#include "python.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>
#include <cellar/element/element.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/prefix_file.hpp>
#include <cellar/files/sequence_file.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/format/blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_page {

namespace {

using namespace cellar;

// [save]
/// Saves sequence 0, and brings it back, as sequence 1 of another memory.
FileResult<void> through_a_file(const std::filesystem::path& path, Cache<>& from, Cache<StandardV<half>>& to) {
    const CellSnapshot turn = from.snapshot(Sequence{0}).value();
    if (auto done = save(path, from, turn, {.model = "tiny"}); !done) return done;
    auto found = load(path, to, {.model = "tiny"});
    if (!found) return std::move(found).error();
    if (auto restored = to.restore(Sequence{1}, *found); !restored) FAIL(to_string(restored.error()));
    return {};
}
// [/save]

// [sequence]
/// The same without a snapshot.
FileResult<void> sequence_through_a_file(const std::filesystem::path& path, Cache<>& from, Cache<StandardV<half>>& to) {
    if (auto done = save(path, from, Sequence{0}); !done) return done;
    return load(path, to, Sequence{1});
}
// [/sequence]

// [convert]
/// Saves a sequence in half of its bytes, and brings it back into a memory of other formats.
FileResult<void> in_fewer_bits(const std::filesystem::path& path, Cache<StandardV<half>>& from,
                               Cache<StandardV<q8_0, q4_0>>& to) {
    if (auto done = save(path, from, Sequence{0}, {.store_as = stored_as<q8_0>}); !done) return done;
    return load(path, to, Sequence{1}, {.convert_from = formats<half, q8_0>}); // whichever the file has
}
// [/convert]

// [notes]
/// Saves a sequence with its tokens. Returns the tokens that a file has, once sequence 1 has what they belong to.
FileResult<std::string> with_notes(const std::filesystem::path& path, Cache<>& from, Cache<>& to) {
    if (auto done = save(path, from, Sequence{0}, {.notes = {{"tokens", "7 8 9"}}}); !done) return done.error();
    auto notes = read_notes(path); // reads no keys and values
    if (!notes) return std::move(notes).error();
    if (auto done = load(path, to, Sequence{1}, {.notes = *notes}); !done) return done.error();
    return notes->at("tokens");
}
// [/notes]

// [all]
/// Everything that a server has.
FileResult<void> all_through_a_file(const std::filesystem::path& path, Cache<>& from, Cache<>& to) {
    if (auto done = save(path, from, all_sequences, {.model = "tiny"}); !done) return done;
    return load(path, to, all_sequences, {.model = "tiny"});
}
// [/all]

// [prefixes]
/// What a server has computed, for the next start. It uses sequence 0 meanwhile.
FileResult<void> prefixes_through_a_file(const std::filesystem::path& path, PrefixTree<Cache<>>& from,
                                         PrefixTree<Cache<>>& to) {
    if (auto done = save(path, from, {.model = "tiny"}); !done) return done;
    return load(path, to, Sequence{0}, {.model = "tiny"});
}
// [/prefixes]

// [write]
FileResult<void> write(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                       std::span<const half> rows) {
    const FilePlan plan{
        {{"tokens", dtype_of<std::int32_t>, {tokens.size()}}, {"rows", dtype_of<half>, {rows.size() / 4, 4}}},
        {{"model", "tiny"}}};
    auto writer = FileWriter::create(path, plan);
    if (!writer) return std::move(writer).error();
    if (auto done = writer->append_elements(tokens); !done) return done;
    if (auto done = writer->append_elements(rows); !done) return done; // or in many pieces
    return writer->finish();
}
// [/write]

// [read]
FileResult<std::vector<std::byte>> read(const std::filesystem::path& path) {
    auto reader = FileReader::open(path, {.access = FileAccess::map});
    if (!reader) return std::move(reader).error();
    std::vector<std::byte> rows;
    for (;;) {
        auto piece = reader->next();
        if (!piece) return std::move(piece).error(); // not one byte of the file counts
        if (piece->tensor == nullptr) return rows;   // all data was read, and the checksum is right
        if (piece->tensor->name == "rows") rows.insert(rows.end(), piece->bytes.begin(), piece->bytes.end());
    }
}
// [/read]

const std::vector<std::int32_t> tokens = {3, -1, 1 << 20};
const std::vector<half> rows(8, half{1.5F});

} // namespace

TEST_CASE("the code of the page writes and reads") {
    const Folder folder;
    REQUIRE(write(folder.path / "f", tokens, rows));
    auto bytes = read(folder.path / "f");
    REQUIRE(bytes);
    CHECK(bytes->size() == 16);
    CHECK(read(folder.path / "none").error() == FileReason::cannot_open);
}

TEST_CASE("Python reads the same values, and finds the checksums right") {
    const Folder folder;
    REQUIRE(write(folder.path / "f", tokens, rows));
    const PythonOutcome outcome = run_python(folder, R"(
metadata, tensors = tensors_of("f")
assert metadata["model"] == "tiny" and metadata["cellar.format"] == "1", metadata
assert set(tensors) == {"tokens", "rows"}, tensors
assert tensors["tokens"].tolist() == [3, -1, 1 << 20] and tensors["tokens"].dtype == "int32", tensors
assert tensors["rows"].tolist() == [[1.5] * 4] * 2 and tensors["rows"].dtype == "float16", tensors
assert is_whole("f"), checksums("f")
whole = open("f", "rb").read()
for at in (len(whole) - 1, 50, 200):
    open("f", "wb").write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert not is_whole("f"), at
)");
    if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
    CHECK(outcome == PythonOutcome::right);
}

TEST_CASE("a file that Python sealed is read") {
    const Folder folder;
    const PythonOutcome outcome = run_python(folder, R"(
import numpy
tensors = {"rows": numpy.arange(6, dtype="float32").reshape(2, 3), "tokens": numpy.array([1, 2], dtype="int64")}
save_for_cellar(tensors, "f", {"note": "\u20ac \" \\"})
)");
    if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
    REQUIRE(outcome == PythonOutcome::right);
    auto reader = FileReader::open(folder.path / "f");
    REQUIRE(reader);
    CHECK(reader->verify());
    CHECK(*reader->metadata("note") == "\xe2\x82\xac \" \\");
    std::vector<float> values(6);
    REQUIRE(reader->read<float>(*reader->find("rows"), values));
    CHECK(values == std::vector<float>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a snapshot goes from one cache to another through a file") {
    const Folder folder;
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 2};
    const CacheLimits limits{.sequences = 2, .capacity = 8, .batch = 4};
    Cache<> from{shape, limits};
    Cache<StandardV<half>> to{shape, limits};
    auto pass = from.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    pass.put(0, std::vector<float>(6, 1.0F), std::vector<float>(6, 2.0F));
    pass.commit();
    REQUIRE(through_a_file(folder.path / "turn.safetensors", from, to));
    CHECK(to.next(Sequence{1}) == Position{3});
    REQUIRE(to.remove(Sequence{1}, Position{0}, to_end));
    REQUIRE(sequence_through_a_file(folder.path / "sequence.safetensors", from, to));
    CHECK(to.next(Sequence{1}) == Position{3});
    Cache<> same{from.shape(), from.limits()};
    CHECK(with_notes(folder.path / "notes.safetensors", from, same).value() == "7 8 9");
    CHECK(same.next(Sequence{1}) == Position{3});
    REQUIRE(same.remove(Sequence{1}, Position{0}, to_end));
    PrefixTree before{from};
    const std::vector<std::int32_t> words{7, 8, 9};
    REQUIRE(before.insert(Sequence{0}, words));
    Cache<> next{from.shape(), from.limits()};
    PrefixTree later{next};
    REQUIRE(prefixes_through_a_file(folder.path / "prefixes.safetensors", before, later));
    CHECK(later.match(words).length == 3);
    REQUIRE(all_through_a_file(folder.path / "all.safetensors", from, same));
    CHECK(same.next(Sequence{0}) == Position{3});
}

TEST_CASE("a sequence goes through a file of fewer bits into a memory of other formats") {
    const Folder folder;
    const CacheShape shape{.layers = 1, .kv_heads = 1, .head_dim = 32};
    const CacheLimits limits{.sequences = 2, .capacity = 8, .batch = 4};
    Cache<StandardV<half>> from{shape, limits};
    Cache<StandardV<q8_0, q4_0>> to{shape, limits};
    auto pass = from.begin(Sequence{0}, 3).value();
    pass.put(0, std::vector<float>(96, 1.0F), std::vector<float>(96, 2.0F));
    pass.commit();
    REQUIRE(in_fewer_bits(folder.path / "f", from, to));
    CHECK(to.next(Sequence{1}) == Position{3});
    CHECK(FileReader::open(folder.path / "f").value().find("layers.0.values")->shape
          == std::vector<std::uint64_t>{3, 1, 1, 34});
}

} // namespace test_page
