// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/files/tensor.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace cellar::detail {

inline constexpr std::string_view format_key = "cellar.format";
inline constexpr std::string_view header_crc_key = "cellar.header_crc32";
inline constexpr std::string_view data_crc_key = "cellar.data_crc32";
inline constexpr std::string_view metadata_name = "__metadata__";
inline constexpr std::string_view padding_name = "cellar.padding.";
inline constexpr std::uint64_t format_version = 1;

inline constexpr std::size_t prefix_bytes = 8;                 ///< the length of the header, before the header
inline constexpr std::uint64_t max_header_bytes = 100'000'000; ///< the limit of the safetensors library
inline constexpr std::uint64_t tensor_alignment = 64;
inline constexpr std::size_t max_dimensions = 8;
inline constexpr auto max_file_bytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

/// Eight hexadecimal digits, as in the metadata.
inline std::string hex_digits(std::uint32_t value) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text(8, '0');
    for (std::size_t k = 0; k < 8; ++k) text[7 - k] = digits[(value >> (4 * k)) & 15];
    return text;
}

inline std::array<std::byte, prefix_bytes> length_prefix(std::uint64_t length) {
    std::array<std::byte, prefix_bytes> prefix{};
    for (std::size_t k = 0; k < prefix_bytes; ++k) prefix[k] = static_cast<std::byte>(length >> (8 * k));
    return prefix;
}

/// Where the digits of this metadata entry begin in the text of a header. In JSON, this text is an entry of an object:
/// within a string, a backslash stands before each quotation mark.
inline std::optional<std::size_t> find_digits(std::string_view text, std::string_view key) {
    std::string entry = "\"";
    entry.append(key).append("\":\"");
    const std::size_t found = text.find(entry);
    if (found == std::string_view::npos || text.size() - found < entry.size() + 8) return std::nullopt;
    return found + entry.size();
}

/// The checksum of a file's beginning: the length of the header, and the header with its own digits as zeros.
inline std::uint32_t header_crc(std::string_view header, std::size_t digits) {
    Crc32 crc;
    crc.add(length_prefix(header.size()));
    crc.add(std::as_bytes(std::span{header.substr(0, digits)}));
    crc.add(std::as_bytes(std::span{std::string_view{"00000000"}}));
    crc.add(std::as_bytes(std::span{header.substr(digits + 8)}));
    return crc.value();
}

/// The bytes of a tensor, unless the number does not fit into 63 bits.
inline std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::uint64_t> shape) {
    std::uint64_t bytes = bytes_of(dtype);
    for (const std::uint64_t extent : shape) {
        if (extent != 0 && bytes > max_file_bytes / extent) return std::nullopt;
        bytes *= extent;
    }
    return bytes;
}

/// Composes the header of a file. Checks the plan: a wrong one is a violation.
class HeaderText {
public:
    explicit HeaderText(const FilePlan& plan) {
        add_metadata(plan.metadata);
        for (const TensorPlan& tensor : plan.tensors) add_tensor(tensor);
        text_ += '}';
        const std::size_t end = prefix_bytes + text_.size();
        text_.append((tensor_alignment - end % tensor_alignment) % tensor_alignment, ' ');
        CELLAR_EXPECTS(text_.size() <= max_header_bytes, "the names, shapes and metadata take ", text_.size(),
                       " bytes of JSON, expected at most ", max_header_bytes);
    }

    /// In the order of the plan, padding included.
    const std::vector<StoredTensor>& tensors() const { return tensors_; }
    std::uint64_t data_begin() const { return prefix_bytes + text_.size(); }
    std::uint64_t data_bytes() const { return end_; }

    /// The beginning of the file, up to the data.
    std::string finished(std::uint32_t data_crc) const {
        std::string text = text_;
        text.replace(*find_digits(text, data_crc_key), 8, hex_digits(data_crc));
        const std::size_t digits = *find_digits(text, header_crc_key);
        text.replace(digits, 8, hex_digits(header_crc(text, digits)));
        const auto prefix = length_prefix(text.size());
        return std::string{reinterpret_cast<const char*>(prefix.data()), prefix.size()} + text;
    }

private:
    void add_metadata(const std::map<std::string, std::string>& metadata) {
        write({quoted(metadata_name), ":{", quoted(header_crc_key), R"(:"00000000",)", quoted(data_crc_key),
               R"(:"00000000",)", quoted(format_key), ":", quoted(std::to_string(format_version))});
        for (const auto& [key, value] : metadata) {
            CELLAR_EXPECTS(key != header_crc_key && key != data_crc_key && key != format_key, "the metadata has ", key,
                           ", expected no entry that cellar itself writes");
            write({",", quoted(key), ":", quoted(value)});
        }
        text_ += '}';
    }

    void add_tensor(const TensorPlan& tensor) {
        CELLAR_EXPECTS(tensor.name != metadata_name && !tensor.name.starts_with(padding_name), "a tensor is named ",
                       tensor.name, ", expected a name that the format does not use");
        CELLAR_EXPECTS(names_.insert(tensor.name).second, "two tensors are named ", tensor.name,
                       ", expected different names");
        CELLAR_EXPECTS(tensor.shape.size() <= max_dimensions, "tensor ", tensor.name, " has ", tensor.shape.size(),
                       " dimensions, expected at most ", max_dimensions);
        if (const std::uint64_t over = end_ % tensor_alignment)
            append(std::string{padding_name}.append(std::to_string(paddings_++)), Dtype::u8, {tensor_alignment - over});
        append(tensor.name, tensor.dtype, tensor.shape);
    }

    void append(const std::string& name, Dtype dtype, const std::vector<std::uint64_t>& shape) {
        const std::optional<std::uint64_t> bytes = tensor_bytes(dtype, shape);
        CELLAR_EXPECTS(bytes && *bytes <= max_file_bytes - max_header_bytes - prefix_bytes - end_, "tensor ", name,
                       " makes the file larger than 2^63 bytes, expected less");
        write({",", quoted(name), R"(:{"dtype":")", to_string(dtype), R"(","shape":[)"});
        for (std::size_t k = 0; k < shape.size(); ++k) write({k == 0 ? "" : ",", std::to_string(shape[k])});
        write({R"(],"data_offsets":[)", std::to_string(end_), ",", std::to_string(end_ + *bytes), "]}"});
        tensors_.push_back({name, dtype, shape, end_, *bytes});
        end_ += *bytes;
    }

    void write(std::initializer_list<std::string_view> parts) {
        for (const std::string_view part : parts) text_ += part;
    }

    static std::string quoted(std::string_view text) {
        const nlohmann::json string = text;
        try {
            return string.dump();
        } catch (const nlohmann::json::exception&) {
            CELLAR_EXPECTS(false, "a name or an entry of the metadata is not UTF-8: ", text);
        }
        return {};
    }

    std::string text_ = "{";
    std::vector<StoredTensor> tensors_;
    std::unordered_set<std::string> names_;
    std::uint64_t end_ = 0;
    std::uint64_t paddings_ = 0;
};

} // namespace cellar::detail
