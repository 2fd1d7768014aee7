// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "file.hpp"
#include <cellar/layout/element.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace llama {

/// A model file in the safetensors format: 8 bytes length of the header, the header as JSON, then
/// the tensors' data. (https://huggingface.co/docs/safetensors). The constructor checks all of it, so
/// that what it lets pass can be read without a further check.
class Safetensors {
public:
    using Metadata = std::map<std::string, std::string>;

    explicit Safetensors(File file) : file_{std::move(file)} {
        const std::string header = header_text();
        const auto json = nlohmann::json::parse(header, nullptr, false);
        if (!json.is_object()) fail("the header is not a JSON object");
        for (const auto& [name, entry] : json.items()) {
            if (name == "__metadata__") {
                read_metadata(entry);
            } else {
                tensors_.emplace(name, read_tensor(name, entry));
            }
        }
        check_coverage();
    }

    Safetensors(const Safetensors&) = delete; // data_ points into file_
    Safetensors& operator=(const Safetensors&) = delete;
    Safetensors(Safetensors&&) = default;
    Safetensors& operator=(Safetensors&&) = default;

    static Safetensors read(const std::string& path) { return Safetensors{read_file(path)}; }

    const std::string& name() const { return file_.name; }
    const Metadata& metadata() const { return metadata_; }

    std::vector<std::string> tensor_names() const {
        std::vector<std::string> names;
        for (const auto& [name, tensor] : tensors_) names.push_back(name);
        return names;
    }

    /// The elements of a tensor as float, rows one after another.
    std::vector<float> tensor(const std::string& name, const std::vector<std::int64_t>& shape) const {
        const auto found = tensors_.find(name);
        if (found == tensors_.end()) fail("tensor " + in_quotes(name) + " is missing");
        const Tensor& tensor = found->second;
        if (tensor.shape != shape) {
            fail("tensor " + in_quotes(name) + " has the shape " + text(tensor.shape) + ", expected " + text(shape));
        }
        std::vector<float> values = convert(tensor);
        const auto finite = [](float x) { return std::isfinite(x); };
        if (!std::all_of(values.begin(), values.end(), finite)) {
            fail("tensor " + in_quotes(name) + " holds values that are not finite numbers");
        }
        return values;
    }

    [[noreturn]] void fail(const std::string& what) const { throw FileError{file_.name, what}; }

private:
    enum class Type { f16, bf16, f32 };

    struct Tensor {
        Type type{};
        std::vector<std::int64_t> shape;
        std::uint64_t begin = 0; // in data_
        std::uint64_t end = 0;
    };

    static std::uint64_t size_of(Type type) { return type == Type::f32 ? 4 : 2; }

    static std::string text(const std::vector<std::int64_t>& shape) {
        std::string result = "[";
        for (const std::int64_t extent : shape) {
            if (result.size() > 1) result += ", ";
            result += std::to_string(extent);
        }
        return result + "]";
    }

    /// Checks the lengths, sets data_, and gives the header.
    std::string header_text() {
        constexpr std::uint64_t prefix = 8;
        const std::uint64_t size = file_.bytes.size();
        if (size < prefix) {
            fail("not a safetensors file: it has " + std::to_string(size) + " bytes, expected at least 8");
        }
        const auto length = load<std::uint64_t>(file_.bytes.data());
        if (length > size - prefix) {
            fail("not a safetensors file, or cut off: it announces a header of " + std::to_string(length)
                 + " bytes, and only " + std::to_string(size - prefix) + " follow");
        }
        data_ = std::span{file_.bytes}.subspan(prefix + length);
        return {file_.bytes.data() + prefix, static_cast<std::size_t>(length)};
    }

    void read_metadata(const nlohmann::json& entry) {
        if (!entry.is_object()) fail("__metadata__ is not a JSON object");
        for (const auto& [key, value] : entry.items()) {
            if (!value.is_string()) fail("metadata " + in_quotes(key) + " is not a string");
            metadata_.emplace(key, value.get<std::string>());
        }
    }

    Tensor read_tensor(const std::string& name, const nlohmann::json& entry) const {
        const std::string who = "tensor " + in_quotes(name);
        if (!entry.is_object()) fail(who + " is not described by a JSON object");
        Tensor tensor{read_type(who, entry), {}, 0, 0};
        std::uint64_t bytes = size_of(tensor.type);
        for (const std::uint64_t extent : read_numbers(who, entry, "shape")) {
            if (extent != 0 && bytes > data_.size() / extent) {
                fail(who + " is larger than the file");
            }
            bytes *= extent;
            tensor.shape.push_back(static_cast<std::int64_t>(extent));
        }
        const std::vector<std::uint64_t> offsets = read_numbers(who, entry, "data_offsets");
        if (offsets.size() != 2 || offsets[0] > offsets[1]) {
            fail(who + ": data_offsets are not a begin and an end");
        }
        tensor.begin = offsets[0];
        tensor.end = offsets[1];
        if (tensor.end > data_.size()) {
            fail(who + " ends at byte " + std::to_string(tensor.end) + " of the data, which is only "
                 + std::to_string(data_.size()) + " bytes long");
        }
        if (tensor.end - tensor.begin != bytes) {
            fail(who + " occupies " + std::to_string(tensor.end - tensor.begin) + " bytes, expected "
                 + std::to_string(bytes) + " from its type and the shape " + text(tensor.shape));
        }
        return tensor;
    }

    Type read_type(const std::string& who, const nlohmann::json& entry) const {
        const auto found = entry.find("dtype");
        if (found == entry.end() || !found->is_string()) fail(who + " has no dtype");
        const auto name = found->get<std::string>();
        if (name == "F16") return Type::f16;
        if (name == "BF16") return Type::bf16;
        if (name == "F32") return Type::f32;
        fail(who + " has the dtype " + in_quotes(name) + ", expected F16, BF16 or F32");
    }

    std::vector<std::uint64_t> read_numbers(const std::string& who, const nlohmann::json& entry,
                                            const char* key) const {
        constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        const auto found = entry.find(key);
        if (found == entry.end() || !found->is_array()) fail(who + " has no " + key);
        std::vector<std::uint64_t> numbers;
        for (const auto& number : *found) {
            if (!number.is_number_unsigned() || number.get<std::uint64_t>() > largest) {
                fail(who + ": " + key + " holds something that is not a size");
            }
            numbers.push_back(number.get<std::uint64_t>());
        }
        return numbers;
    }

    /// Every byte of the data belongs to exactly one tensor.
    void check_coverage() const {
        std::vector<std::pair<const Tensor*, const std::string*>> order;
        for (const auto& [name, tensor] : tensors_) order.emplace_back(&tensor, &name);
        std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
            return std::pair{a.first->begin, a.first->end} < std::pair{b.first->begin, b.first->end};
        });
        std::uint64_t end = 0;
        for (const auto& [tensor, name] : order) {
            if (tensor->begin != end) {
                fail("tensor " + in_quotes(*name) + " begins at byte " + std::to_string(tensor->begin)
                     + " of the data, expected " + std::to_string(end)
                     + (tensor->begin < end ? ": it overlaps another" : ": there is a gap before it"));
            }
            end = tensor->end;
        }
        if (end != data_.size()) {
            fail("the tensors end at byte " + std::to_string(end) + " of the data, which is "
                 + std::to_string(data_.size()) + " bytes long");
        }
    }

    std::vector<float> convert(const Tensor& tensor) const {
        const std::uint64_t size = size_of(tensor.type);
        std::vector<float> values((tensor.end - tensor.begin) / size);
        const char* bytes = data_.data() + tensor.begin;
        for (std::size_t i = 0; i < values.size(); ++i, bytes += size) {
            switch (tensor.type) {
            case Type::f16:
                values[i] = static_cast<float>(load<cellar::half>(bytes));
                break;
            case Type::bf16:
                values[i] = static_cast<float>(load<cellar::bfloat16>(bytes));
                break;
            case Type::f32:
                values[i] = load<float>(bytes);
                break;
            }
        }
        return values;
    }

    File file_;
    std::span<const char> data_;
    Metadata metadata_;
    std::map<std::string, Tensor> tensors_;
};

} // namespace llama
