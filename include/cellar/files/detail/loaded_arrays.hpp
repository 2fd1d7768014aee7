// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/convert_stored.hpp>
#include <cellar/element/stored_element.hpp>
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

/// A file, for the memory that checks whether it takes the snapshot.
template <class Reader>
class SavedSource final : public StoredSource {
public:
    explicit SavedSource(Reader& reader) : reader_{reader} {}

    /// Why the model or the notes are not those that the caller expects; else an empty string.
    std::string problem_of(const LoadOptions& expected) const {
        const std::string* const model = reader_.metadata(model_key);
        const std::string found = model == nullptr ? "" : *model;
        if (!expected.model.empty() && found != expected.model)
            return "its model is \"" + found + "\", expected \"" + expected.model + "\"";
        for (const auto& [name, text] : expected.notes) {
            const std::string* const note = reader_.metadata(note_key + name);
            if (note != nullptr && *note == text) continue;
            return "its note " + in_quotes(name) + " is " + (note == nullptr ? "missing" : in_quotes(*note))
                   + ", expected " + in_quotes(text);
        }
        return "";
    }

    std::optional<std::int64_t> number(const std::string& name) const override {
        const std::string* const text = reader_.metadata(number_key + name);
        if (text == nullptr) return std::nullopt;
        std::int64_t number = 0;
        const char* const end = text->data() + text->size();
        const auto [rest, error] = std::from_chars(text->data(), end, number);
        if (error != std::errc{} || rest != end) return std::nullopt;
        return number;
    }

    const std::vector<std::uint64_t>* shape(const std::string& name) const override {
        const StoredTensor* const tensor = reader_.find(name);
        return tensor == nullptr ? nullptr : &tensor->shape;
    }

    bool read(const std::string& name, std::span<std::int32_t> to) override {
        const StoredTensor* const tensor = reader_.find(name);
        if (tensor == nullptr || tensor->dtype != Dtype::i32 || tensor->bytes != to.size_bytes()) return false;
        return to.empty() || reader_.read(*tensor, to).has_value();
    }

private:
    Reader& reader_;
};

/// The type of elements of a file that an array can have; none if it can have no such elements.
inline std::optional<StoredElement> convertible_from(Dtype dtype) {
    for (const StoredElement element : {StoredElement::f32, StoredElement::f16, StoredElement::bf16})
        if (dtype_of_stored(element) == dtype) return element;
    return std::nullopt;
}

/// Reverses the bytes of elements of 2 or 4 bytes where the machine is big-endian.
inline void swap_to_little_endian(std::span<std::byte> bytes, std::size_t element_bytes) {
    element_bytes == 2 ? swap_to_little_endian<std::uint16_t>(bytes) : swap_to_little_endian<std::uint32_t>(bytes);
}

/// Where the elements of a tensor go.
struct LoadTarget {
    StoredElement from;
    StoredElement to;
    std::byte* data;

    /// Whether bytes are copied, because no element is converted.
    bool is_copied() const { return from == to; }

    /// The place of the bytes from `offset` on in the tensor.
    std::byte* place(std::uint64_t offset) const { return data + offset / bytes_of(from) * bytes_of(to); }

    /// Fills that place. If bytes are copied, they already are there.
    void take(std::span<const std::byte> bytes, std::uint64_t offset) const {
        const std::size_t size = bytes_of(from);
        if (is_copied()) return swap_to_little_endian({place(offset), bytes.size()}, size);
        std::vector<std::byte> swapped;
        if constexpr (std::endian::native == std::endian::big) {
            swapped.assign(bytes.begin(), bytes.end());
            swap_to_little_endian(swapped, size);
            bytes = swapped;
        }
        conversion_of(from, to)(bytes.data(), place(offset), bytes.size() / size);
    }
};

/// Reaches what a reader does not offer in public.
struct ReaderAccess {
    template <class Reader, class Place>
    static FileResult<FilePiece> next_into_new(Reader& reader, Place place) {
        return reader.next_into_new(place);
    }
};

/// Reads all data once: fills the arrays, which were allocated just now, and checks the checksum. After an error they
/// may be filled in part.
template <class Reader>
FileResult<void> read_arrays(const std::filesystem::path& path, Reader& reader, std::span<const StoredArray> arrays) {
    std::map<const StoredTensor*, LoadTarget> targets;
    for (const StoredArray& array : arrays) {
        const StoredTensor* const tensor = reader.find(array.name);
        const auto from = tensor == nullptr ? std::nullopt : convertible_from(tensor->dtype);
        if (!from)
            return unsuitable(path, "its " + array.name + " has elements of type "
                                        + (tensor == nullptr ? "none" : std::string{to_string(tensor->dtype)})
                                        + ", expected F32, F16 or BF16");
        targets.emplace(tensor, LoadTarget{*from, array.element, static_cast<std::byte*>(array.data)});
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

} // namespace cellar::detail
