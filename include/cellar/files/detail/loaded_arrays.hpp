// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/convert_stored.hpp>
#include <cellar/element/half.hpp>
#include <cellar/files/detail/header_parser.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/little_endian.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <array>
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
#include <type_traits>
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

/// Converts n elements of a file to those of an array. `from` is aligned to its elements.
template <class From, class To>
void convert_stored(std::span<const std::byte> from, void* to, std::uint64_t first) {
    To* const begin = static_cast<To*>(to) + first;
    if constexpr (std::is_same_v<From, To>) {
        from_little_endian(from, std::span<To>{begin, from.size() / sizeof(From)});
    } else {
        std::span<To> target{begin, from.size() / sizeof(From)};
        std::array<From, 1024> own{};
        while (!target.empty()) {
            const std::size_t n = std::min(target.size(), own.size());
            from_little_endian(from.first(n * sizeof(From)), std::span{own}.first(n));
            convert_elements(std::span<const From>{own}.first(n), target.first(n));
            from = from.subspan(n * sizeof(From));
            target = target.subspan(n);
        }
    }
}

/// The conversion between elements of a file and those of an array; null if there is none.
using ConvertStored = void (*)(std::span<const std::byte> from, void* to, std::uint64_t first);

template <class To>
ConvertStored conversion_from(Dtype from) {
    if (from == Dtype::f32) return convert_stored<float, To>;
    if (from == Dtype::f16) return convert_stored<half, To>;
    if (from == Dtype::bfloat) return convert_stored<bfloat16, To>;
    return nullptr;
}
inline ConvertStored conversion(Dtype from, StoredElement to) {
    switch (to) {
    case StoredElement::f32:
        return conversion_from<float>(from);
    case StoredElement::f16:
        return conversion_from<half>(from);
    case StoredElement::bf16:
        return conversion_from<bfloat16>(from);
    case StoredElement::i32:
        break;
    }
    return nullptr;
}

/// Where a tensor goes, and how. Without a conversion, its bytes are copied.
struct LoadTarget {
    std::byte* data;
    ConvertStored convert;
    bool is_copied;
};

/// Reads all data once: fills the arrays, and checks the checksum. After an error they may be filled in part.
template <class Reader>
FileResult<void> read_arrays(const std::filesystem::path& path, Reader& reader, std::span<const StoredArray> arrays) {
    std::map<const StoredTensor*, LoadTarget> targets;
    for (const StoredArray& array : arrays) {
        const StoredTensor* const tensor = reader.find(array.name);
        const ConvertStored convert = tensor == nullptr ? nullptr : conversion(tensor->dtype, array.element);
        if (convert == nullptr)
            return unsuitable(path, "its " + array.name + " has elements of type "
                                        + (tensor == nullptr ? "none" : std::string{to_string(tensor->dtype)})
                                        + ", expected F32, F16 or BF16");
        const bool is_copied =
            std::endian::native == std::endian::little && tensor->dtype == dtype_of_stored(array.element);
        targets.emplace(tensor, LoadTarget{static_cast<std::byte*>(array.data), convert, is_copied});
    }
    const auto place = [&](const StoredTensor& tensor, std::uint64_t offset) -> std::byte* {
        const auto target = targets.find(&tensor);
        return target == targets.end() || !target->second.is_copied ? nullptr : target->second.data + offset;
    };
    reader.rewind();
    for (;;) {
        auto piece = reader.next_to(place);
        if (!piece) return std::move(piece).error();
        if (piece->tensor == nullptr) return {};
        const auto target = targets.find(piece->tensor);
        if (target == targets.end() || target->second.is_copied) continue;
        target->second.convert(piece->bytes, target->second.data, piece->offset / bytes_of(piece->tensor->dtype));
    }
}

} // namespace cellar::detail
