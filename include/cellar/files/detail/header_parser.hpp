// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/in_quotes.hpp>
#include <cellar/files/detail/header_text.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/tensor.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Reads a header event by event, and stops at the first event that the format does not have. So it needs no more
/// memory than the text, whatever the text claims. Duplicate names are refused.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
public:
    std::map<std::string, std::string> metadata;
    std::vector<StoredTensor> tensors;
    std::string wrong; ///< what is wrong, for a message

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
    bool number_float(number_float_t, const string_t&) override { return unexpected("a number that is no integer"); }
    bool binary(binary_t&) override { return unexpected("binary data"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (where_ != Where::shape && where_ != Where::offsets) return unexpected("a number");
        const bool is_shape = where_ == Where::shape;
        std::vector<std::uint64_t>& list = is_shape ? tensors.back().shape : offsets_;
        if (value > max_file_bytes) return fail(which() + " has a size above 2^63");
        if (is_shape && list.size() == max_dimensions)
            return fail(which() + " has more than " + std::to_string(max_dimensions) + " dimensions");
        if (!is_shape && list.size() == 2) return fail(which() + " has more than two data_offsets");
        list.push_back(value);
        return true;
    }

    bool string(string_t& value) override {
        if (where_ == Where::metadata) {
            if (!metadata.emplace(std::move(key_), std::move(value)).second) return fail("a metadata key occurs twice");
            return true;
        }
        if (where_ != Where::tensor || key_ != "dtype") return unexpected("a string");
        const std::optional<Dtype> dtype = dtype_named(value);
        if (!dtype) return fail(which() + " has the dtype " + in_quotes(value) + ", which cellar does not know");
        tensors.back().dtype = *dtype;
        return true;
    }

    bool start_object(std::size_t) override {
        if (where_ == Where::outside) {
            where_ = Where::top;
        } else if (where_ != Where::top) {
            return unexpected("an object");
        } else if (key_ == metadata_name) {
            where_ = Where::metadata;
        } else {
            where_ = Where::tensor;
            seen_ = 0;
            offsets_.clear();
            tensors.push_back({std::move(key_), {}, {}, 0, 0});
        }
        return true;
    }

    bool key(string_t& name) override {
        if (where_ == Where::top) {
            if (!names_.insert(name).second) return fail("two tensors are named " + in_quotes(name));
        } else if (where_ == Where::tensor) {
            const unsigned entry = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
            if (entry == 0) return fail(which() + " has the unknown entry " + in_quotes(name));
            if ((seen_ & entry) != 0) return fail(which() + " has " + name + " twice");
            seen_ |= entry;
        }
        key_ = std::move(name);
        return true;
    }

    bool start_array(std::size_t) override {
        if (where_ != Where::tensor || key_ == "dtype") return unexpected("an array");
        where_ = key_ == "shape" ? Where::shape : Where::offsets;
        return true;
    }

    bool end_array() override {
        where_ = Where::tensor;
        return true;
    }

    bool end_object() override {
        if (where_ == Where::tensor && !finish_tensor()) return false;
        where_ = where_ == Where::top ? Where::outside : Where::top;
        return true;
    }

    bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
        return fail("the header is not JSON from byte " + std::to_string(at) + " on");
    }

private:
    enum class Where { outside, top, metadata, tensor, shape, offsets };

    bool fail(std::string what) {
        wrong = std::move(what);
        return false;
    }

    bool unexpected(const char* what) {
        return fail(std::string{"the header has "} + what + " where the format has none");
    }

    std::string which() const { return "tensor " + in_quotes(tensors.back().name); }

    /// Compares the extent by the offsets with the one by type and shape.
    bool finish_tensor() {
        StoredTensor& tensor = tensors.back();
        if (seen_ != 7) return fail(which() + " lacks its dtype, shape or data_offsets");
        if (offsets_.size() != 2 || offsets_[0] > offsets_[1])
            return fail(which() + ": its data_offsets are not a begin and an end");
        tensor.begin = offsets_[0];
        tensor.bytes = offsets_[1] - offsets_[0];
        const std::optional<std::uint64_t> expected = tensor_bytes(tensor.dtype, tensor.shape);
        if (expected == tensor.bytes) return true;
        return fail(which() + " has " + std::to_string(tensor.bytes) + " bytes, expected "
                    + (expected ? std::to_string(*expected) : "more than 2^63") + " from its type and shape");
    }

    Where where_ = Where::outside;
    std::string key_;
    std::vector<std::uint64_t> offsets_;
    unsigned seen_ = 0; ///< the entries of this tensor, as bits
    std::unordered_set<std::string> names_;
};

/// What a header that passed every check says.
struct Header {
    std::map<std::string, std::string> metadata;
    std::vector<StoredTensor> tensors; ///< in the order of the data, padding included
    std::uint64_t data_bytes = 0;
    std::string data_crc;
};

/// Checks everything that can be checked without the data. Messages lack the path.
class HeaderCheck {
public:
    /// The header of a file of `file_bytes` bytes.
    static FileResult<Header> run(std::string_view text, std::uint64_t file_bytes) {
        HeaderParser parser;
        if (!nlohmann::json::sax_parse(text, &parser)) return FileError{FileReason::malformed, parser.wrong};
        Header header{std::move(parser.metadata), std::move(parser.tensors), 0, {}};
        if (auto same = check_format(header.metadata); !same) return std::move(same).error();
        if (auto same = check_crc(text, header); !same) return std::move(same).error();
        if (auto whole = check_cover(header, prefix_bytes + text.size()); !whole) return std::move(whole).error();
        const std::uint64_t data = file_bytes - prefix_bytes - text.size();
        if (data == header.data_bytes) return header;
        return FileError{data < header.data_bytes ? FileReason::truncated : FileReason::malformed,
                         "has " + std::to_string(data) + " bytes of data, expected "
                             + std::to_string(header.data_bytes)};
    }

private:
    using Metadata = std::map<std::string, std::string>;

    static FileResult<void> check_format(const Metadata& metadata) {
        const auto found = metadata.find(std::string{format_key});
        if (found == metadata.end())
            return FileError{FileReason::foreign,
                             "was not written by cellar: its metadata lacks " + std::string{format_key}};
        const std::string& version = found->second;
        if (version == std::to_string(format_version)) return {};
        const bool is_number = !version.empty() && version.size() < 10 && version[0] != '0'
                               && version.find_first_not_of("0123456789") == std::string::npos;
        return FileError{is_number ? FileReason::newer : FileReason::malformed,
                         "has format " + in_quotes(version) + ", and this version of cellar reads up to "
                             + std::to_string(format_version)};
    }

    static FileResult<void> check_crc(std::string_view text, Header& header) {
        const std::optional<std::size_t> digits = find_digits(text, header_crc_key);
        const auto found = header.metadata.find(std::string{header_crc_key});
        const auto data = header.metadata.find(std::string{data_crc_key});
        if (!digits || found == header.metadata.end() || data == header.metadata.end())
            return FileError{FileReason::malformed, "its metadata lacks a checksum"};
        header.data_crc = data->second;
        const std::string expected = hex_digits(header_crc(text, *digits));
        if (found->second == expected) return {};
        return FileError{FileReason::altered, "the header was altered: its checksum is " + expected + ", and "
                                                  + in_quotes(found->second) + " is stored"};
    }

    /// The tensors must cover the data: no gap, no overlap, and elements at addresses that suit them.
    static FileResult<void> check_cover(Header& header, std::uint64_t data_begin) {
        std::sort(header.tensors.begin(), header.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
            return std::pair{a.begin, a.bytes} < std::pair{b.begin, b.bytes};
        });
        for (const StoredTensor& tensor : header.tensors) {
            const std::string which = "tensor " + in_quotes(tensor.name);
            if (tensor.begin != header.data_bytes)
                return FileError{FileReason::malformed, which + " begins at byte " + std::to_string(tensor.begin)
                                                            + " of the data, expected "
                                                            + std::to_string(header.data_bytes)};
            if ((data_begin + tensor.begin) % bytes_of(tensor.dtype) != 0)
                return FileError{FileReason::malformed, which + " is not aligned to its elements"};
            header.data_bytes = tensor.begin + tensor.bytes;
        }
        return {};
    }
};

} // namespace cellar::detail
