// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/convert_stored.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/arriving_heads.hpp>
#include <cellar/memory/format_conversion.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cellar::detail {

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
    /// Both outlive it.
    SavedSource(FileReader& reader, const LoadOptions& options) : reader_{reader}, options_{options} {}

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

    Checked<const FormatCodec*> conversion(const std::string& name, const StoredFormat& own) const override {
        const StoredTensor* const tensor = reader_.find(name);
        if (tensor == nullptr) return nullptr;
        return find_conversion(options_.convert_from, name, units_of(reader_, *tensor), own);
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
        bytes = in_native_order(bytes, element_bytes, swapped);
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

/// Where the data of a file goes.
class LoadTargets {
public:
    LoadTargets(const FileReader& reader, const SavedSource& source) : reader_{reader}, source_{source} {}

    /// Adds the first of these arrays, which outlive it; if that is converted, with its scales. Returns how many.
    Checked<std::size_t> add(std::span<const StoredArray> arrays) {
        const StoredArray& array = arrays.front();
        const StoredTensor* const tensor = reader_.find(array.name);
        if (array.codec != nullptr) {
            const auto codec = source_.conversion(array.name, array.format);
            if (!codec) return codec.error();
            if (*codec != nullptr) return add_heads(**codec, *tensor, arrays);
        }
        const StoredFormat from = tensor == nullptr ? StoredFormat{"none"} : units_of(reader_, *tensor);
        if (from != array.format && conversion_of(from, array.format) == nullptr)
            return other_type(array.name, from.name, types_for(array.format));
        rows_.emplace(tensor, LoadTarget{from, array.format, array.on_host().data(), bytes_of(tensor->dtype)});
        return std::size_t{1};
    }

    /// Where the bytes of a tensor from `offset` on are copied to; null if they are not.
    std::byte* place(const StoredTensor& tensor, std::uint64_t offset) const {
        const auto target = rows_.find(&tensor);
        return target == rows_.end() || !target->second.is_copied() ? nullptr : target->second.place(offset);
    }
    void take(const FilePiece& piece) {
        if (const auto target = rows_.find(piece.tensor); target != rows_.end())
            target->second.take(piece.bytes, piece.offset);
        if (const auto target = heads_.find(piece.tensor); target != heads_.end()) {
            std::vector<std::byte> swapped;
            const auto bytes = in_native_order(piece.bytes, bytes_of(piece.tensor->dtype), swapped);
            target->second.heads->take(bytes, target->second.are_scales);
        }
    }

private:
    struct PlaneOfHeads {
        std::shared_ptr<ArrivingHeads> heads;
        bool are_scales;
    };

    Checked<std::size_t> add_heads(const FormatCodec& from, const StoredTensor& units,
                                   std::span<const StoredArray> arrays) {
        const StoredTensor* const scales =
            from.scales == nullptr ? nullptr : reader_.find(scales_name(arrays.front().name));
        if (scales != nullptr && units_of(reader_, *scales) != from.scales())
            return other_type(scales->name, units_of(reader_, *scales).name, from.scales().name);
        const std::size_t count = arrays.front().codec->scales == nullptr ? 1 : 2;
        const auto heads = std::make_shared<ArrivingHeads>(from, arrays.front(), count == 1 ? nullptr : &arrays[1]);
        heads_.emplace(&units, PlaneOfHeads{heads, false});
        if (scales != nullptr) heads_.emplace(scales, PlaneOfHeads{heads, true});
        return count;
    }

    const FileReader& reader_;
    const SavedSource& source_;
    std::map<const StoredTensor*, LoadTarget> rows_;
    std::map<const StoredTensor*, PlaneOfHeads> heads_;
};

/// Reads all data once: fills the arrays, which were allocated just now, and checks the checksum. After an error they
/// may be filled in part.
inline FileResult<void> read_arrays(const std::filesystem::path& path, FileReader& reader, const SavedSource& source,
                                    std::span<const StoredArray> arrays) {
    LoadTargets targets{reader, source};
    for (std::size_t i = 0; i < arrays.size();) {
        const auto added = targets.add(arrays.subspan(i));
        if (!added) return unsuitable(path, added.error().text);
        i += *added;
    }
    const auto place = [&](const StoredTensor& tensor, std::uint64_t offset) { return targets.place(tensor, offset); };
    reader.rewind();
    for (;;) {
        auto piece = ReaderAccess::next_into_new(reader, place);
        if (!piece) return std::move(piece).error();
        if (piece->tensor == nullptr) return {};
        targets.take(*piece);
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
