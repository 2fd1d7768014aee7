// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/convert_stored.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <bit>
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

inline FileError unsuitable(const std::filesystem::path& path, const std::string& problem) {
    return {FileReason::unsuitable, path.string() + ": " + problem};
}

/// True if the last extent counts the bytes of a unit: see `tensor_of`.
inline bool is_of_bytes(const FileReader& reader, const StoredTensor& tensor) {
    return tensor.dtype == Dtype::u8 && !tensor.shape.empty()
           && reader.metadata(format_name_key + tensor.name) != nullptr;
}

inline StoredFormat units_of(const FileReader& reader, const StoredTensor& tensor) {
    if (is_of_bytes(reader, tensor)) return {*reader.metadata(format_name_key + tensor.name), tensor.shape.back()};
    return {std::string{to_string(tensor.dtype)}, bytes_of(tensor.dtype)};
}

/// A file, for the memory that checks whether it takes the snapshot.
class SavedSource final : public StoredSource {
public:
    explicit SavedSource(FileReader& reader) : reader_{reader} {}

    /// Why the model or the notes are not those that the caller expects.
    Checked<void> check(const LoadOptions& expected) const {
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
    std::optional<FileError> failure_;
};

/// Where the units of a tensor go.
struct LoadTarget {
    StoredFormat from;
    StoredFormat to;
    std::byte* data;
    std::size_t element_bytes; ///< in the file

    /// Whether bytes are copied, because nothing is converted.
    bool is_copied() const { return from == to; }

    /// The place of the bytes from `offset` on in the tensor.
    std::byte* place(std::uint64_t offset) const { return data + offset / from.unit_bytes * to.unit_bytes; }

    /// Fills that place. If bytes are copied, they already are there.
    void take(std::span<const std::byte> bytes, std::uint64_t offset) const {
        if (is_copied()) return swap_to_little_endian({place(offset), bytes.size()}, element_bytes);
        std::vector<std::byte> swapped;
        if constexpr (std::endian::native == std::endian::big) {
            swapped.assign(bytes.begin(), bytes.end());
            swap_to_little_endian(swapped, element_bytes);
            bytes = swapped;
        }
        conversion_of(from, to)(bytes.data(), place(offset), bytes.size() / from.unit_bytes);
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
inline FileResult<void> read_arrays(const std::filesystem::path& path, FileReader& reader,
                                    std::span<const StoredArray> arrays) {
    std::map<const StoredTensor*, LoadTarget> targets;
    for (const StoredArray& array : arrays) {
        const StoredTensor* const tensor = reader.find(array.name);
        const StoredFormat from = tensor == nullptr ? StoredFormat{"none"} : units_of(reader, *tensor);
        const bool is_element = conversion_of(array.format, StoredFormat::f32()) != nullptr;
        if (from != array.format && conversion_of(from, array.format) == nullptr)
            return unsuitable(path,
                              "its " + array.name + " has elements of type "
                                  + (tensor == nullptr || dtype_named(from.name) ? from.name : in_quotes(from.name))
                                  + ", expected " + (is_element ? "F32, F16 or BF16" : array.format.name));
        targets.emplace(tensor, LoadTarget{from, array.format, array.on_host().data(), bytes_of(tensor->dtype)});
    }
    const auto place = [&](const StoredTensor& tensor, std::uint64_t offset) -> std::byte* {
        const auto target = targets.find(&tensor);
        return target == targets.end() || !target->second.is_copied() ? nullptr : target->second.place(offset);
    };
    reader.rewind();
    for (;;) {
        auto piece = ReaderAccess::next_into_new(reader, place);
        if (!piece) return std::move(piece).error();
        if (piece->tensor == nullptr) return {};
        if (const auto target = targets.find(piece->tensor); target != targets.end())
            target->second.take(piece->bytes, piece->offset);
    }
}

/// Opens a file, lets `prepare(source, arrays)` check it and make room, and fills the arrays that it adds.
template <class Prepare>
FileResult<void> load_arrays(const std::filesystem::path& path, const LoadOptions& options, Prepare prepare) {
    auto reader = FileReader::open(path, options.read);
    if (!reader) return std::move(reader).error();
    SavedSource source{*reader};
    std::vector<StoredArray> arrays;
    Checked<void> suits = source.check(options);
    if (suits) suits = prepare(source, arrays);
    if (source.failure()) return *source.failure();
    if (!suits) return unsuitable(path, suits.error().text);
    return read_arrays(path, *reader, arrays);
}

} // namespace cellar::detail
