// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/stored_format.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/arriving_arrays.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cellar::detail {

/// True if the last extent counts the bytes of a unit: see `tensor_of`. No unit has 0 bytes: a file could then have any
/// number of them.
inline bool is_of_bytes(const FileReader& reader, const StoredTensor& tensor) {
    return tensor.dtype == Dtype::u8 && !tensor.shape.empty() && tensor.shape.back() != 0
           && reader.metadata(format_name_key + tensor.name) != nullptr;
}

/// A file, for the memory that checks whether it takes the snapshot.
class SavedSource final : public StoredSource {
public:
    /// Both outlive it.
    SavedSource(FileReader& reader, const LoadOptions& options)
        : StoredSource{options.convert_from}, reader_{reader}, options_{options} {}

    /// Why the model or the notes are not those that the caller expects.
    Checked<void> check() const {
        const LoadOptions& expected = options_;
        const std::string* const model = reader_.metadata(model_key);
        const std::string found = model == nullptr ? "" : *model;
        if (!expected.model.empty() && found != expected.model)
            return Problem{"its model is " + in_quotes(found) + ", expected " + in_quotes(expected.model)};
        for (const auto& [name, text] : expected.notes) {
            const std::string* const note = reader_.metadata(note_key + name);
            if (note != nullptr && *note == text) continue;
            return Problem{"its note " + in_quotes(name) + " is " + (note == nullptr ? "missing" : in_quotes(*note))
                           + ", expected " + in_quotes(text)};
        }
        return {};
    }

    /// Of the last `read` that the operating system refused.
    const std::optional<FileError>& failure() const { return failure_; }

    std::optional<std::int64_t> number(const std::string& name) const override {
        const std::string* const text = reader_.metadata(number_key + name);
        if (text == nullptr) return std::nullopt;
        std::int64_t number = 0;
        const char* const end = text->data() + text->size();
        const auto [rest, error] = std::from_chars(text->data(), end, number);
        if (error != std::errc{} || rest != end) return std::nullopt;
        return number;
    }

    std::optional<std::vector<std::uint64_t>> shape(const std::string& name) const override {
        const StoredTensor* const tensor = reader_.find(name);
        if (tensor == nullptr) return std::nullopt;
        auto shape = tensor->shape;
        if (is_of_bytes(reader_, *tensor)) shape.pop_back();
        return shape;
    }

    std::optional<StoredFormat> format(const std::string& name) const override {
        const StoredTensor* const tensor = reader_.find(name);
        if (tensor == nullptr) return std::nullopt;
        if (is_of_bytes(reader_, *tensor))
            return StoredFormat{*reader_.metadata(format_name_key + name), tensor->shape.back()};
        return StoredFormat{std::string{to_string(tensor->dtype)}, bytes_of(tensor->dtype)};
    }

    bool read(const std::string& name, std::span<std::int32_t> to) override {
        const StoredTensor* const tensor = reader_.find(name);
        if (tensor == nullptr || tensor->dtype != Dtype::i32 || tensor->bytes != to.size_bytes()) return false;
        if (to.empty()) return true;
        auto done = reader_.read(*tensor, to);
        if (!done) failure_ = std::move(done).error();
        return !failure_;
    }

private:
    FileReader& reader_;
    const LoadOptions& options_;
    std::optional<FileError> failure_;
};

/// Where an array of a file goes. On a device, asking for its memory waits for work, so it is asked once.
struct LoadTarget {
    ArrivingArray array;
    std::byte* data; ///< null for heads

    explicit LoadTarget(const ArrivingArray& arriving)
        : array{arriving}, data{arriving.to == nullptr ? nullptr : arriving.to->on_host().data()} {}

    /// Of the units from a byte of the tensor on.
    std::byte* place(std::uint64_t offset) const {
        return data + offset / array.from.unit_bytes * array.to->format.unit_bytes;
    }

    /// Fills that place, or converts heads. If bytes are copied, they already are there.
    void take(const FilePiece& piece) const {
        const std::size_t element_bytes = bytes_of(piece.tensor->dtype);
        if (array.is_copied()) return swap_to_little_endian({place(piece.offset), piece.bytes.size()}, element_bytes);
        std::vector<std::byte> swapped;
        const auto bytes = in_native_order(piece.bytes, element_bytes, swapped);
        if (array.heads != nullptr) return array.heads->take(bytes, array.are_scales);
        array.convert(bytes.data(), place(piece.offset), bytes.size() / array.from.unit_bytes);
    }
};

/// Reaches what a reader does not offer in public.
struct ReaderAccess {
    template <class Place>
    static FileResult<FilePiece> next_into_new(FileReader& reader, Place place) {
        return reader.next_into_new(place);
    }
};

/// Reads all data once: fills the arrays, which were allocated just now, and checks the checksum. After an error they
/// may be filled in part.
inline FileResult<void> read_arrays(const std::filesystem::path& path, FileReader& reader, const SavedSource& source,
                                    std::span<const StoredArray> arrays) {
    const auto all = arriving_arrays(source, arrays);
    if (!all) return unsuitable(path, all.error().text);
    std::map<std::string, LoadTarget> targets;
    for (const auto& [name, array] : *all) targets.emplace(name, LoadTarget{array});
    const auto find = [&](const StoredTensor& tensor) {
        const auto found = targets.find(tensor.name);
        return found == targets.end() ? nullptr : &found->second;
    };
    const auto place = [&](const StoredTensor& tensor, std::uint64_t offset) {
        const LoadTarget* const target = find(tensor);
        return target != nullptr && target->array.is_copied() ? target->place(offset) : nullptr;
    };
    reader.rewind();
    for (;;) {
        auto piece = ReaderAccess::next_into_new(reader, place);
        if (!piece) return std::move(piece).error();
        if (piece->tensor == nullptr) return {};
        if (const LoadTarget* const target = find(*piece->tensor)) target->take(*piece);
    }
}

/// Opens a file, lets `prepare(source, arrays)` check it and make room, and fills the arrays that it adds.
template <class Prepare>
FileResult<void> load_arrays(const std::filesystem::path& path, const LoadOptions& options, Prepare prepare) {
    auto reader = FileReader::open(path, options.read);
    if (!reader) return std::move(reader).error();
    SavedSource source{*reader, options};
    std::vector<StoredArray> arrays;
    Checked<void> suits = source.check();
    if (suits) suits = prepare(source, arrays);
    if (source.failure()) return *source.failure();
    if (!suits) return unsuitable(path, suits.error().text);
    return read_arrays(path, *reader, source, arrays);
}

} // namespace cellar::detail
