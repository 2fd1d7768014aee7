// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "safetensors.hpp"

#include <cellar/element/convert.hpp>
#include <cellar/element/element.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

namespace llama {

namespace {

std::string text(const std::vector<std::int64_t>& shape) {
    std::string result = "[";
    for (const std::int64_t extent : shape) {
        if (result.size() > 1) result += ", ";
        result += std::to_string(extent);
    }
    return result + "]";
}

} // namespace

/// Reads the metadata and the entry of each tensor in the header.
class Safetensors::HeaderReader {
public:
    explicit HeaderReader(const Safetensors& file) : file_{file} {}

    Metadata metadata(const nlohmann::json& entry) const {
        if (!entry.is_object()) file_.fail("__metadata__ is not a JSON object");
        Metadata result;
        for (const auto& [key, value] : entry.items()) {
            if (!value.is_string()) file_.fail("metadata " + in_quotes(key) + " is not a string");
            result.emplace(key, value.get<std::string>());
        }
        return result;
    }

    Tensor tensor(const std::string& name, const nlohmann::json& entry) const {
        const std::string which = "tensor " + in_quotes(name);
        if (!entry.is_object()) file_.fail(which + " is not a JSON object");
        Tensor result{read_type(which, entry), {}, 0, 0};
        std::uint64_t bytes = size_of(result.type);
        for (const std::uint64_t extent : read_numbers(which, entry, "shape")) {
            if (extent != 0 && bytes > file_.data_.size() / extent) {
                file_.fail(which + " is larger than the file");
            }
            bytes *= extent;
            result.shape.push_back(static_cast<std::int64_t>(extent));
        }
        const std::vector<std::uint64_t> offsets = read_numbers(which, entry, "data_offsets");
        if (offsets.size() != 2 || offsets[0] > offsets[1]) {
            file_.fail(which + ": data_offsets are not a begin and an end");
        }
        result.begin = offsets[0];
        result.end = offsets[1];
        if (result.end > file_.data_.size()) {
            file_.fail(which + " ends at byte " + std::to_string(result.end) + " of the data, which has only "
                       + std::to_string(file_.data_.size()) + " bytes");
        }
        if (result.end - result.begin != bytes) {
            file_.fail(which + " occupies " + std::to_string(result.end - result.begin) + " bytes, expected "
                       + std::to_string(bytes) + " from its type and the shape " + text(result.shape));
        }
        return result;
    }

private:
    Type read_type(const std::string& which, const nlohmann::json& entry) const {
        const auto found = entry.find("dtype");
        if (found == entry.end() || !found->is_string()) file_.fail(which + " has no dtype");
        const auto name = found->get<std::string>();
        if (name == "F16") return Type::f16;
        if (name == "BF16") return Type::bf16;
        if (name == "F32") return Type::f32;
        file_.fail(which + " has the dtype " + in_quotes(name) + ", expected F16, BF16 or F32");
    }

    std::vector<std::uint64_t> read_numbers(const std::string& which, const nlohmann::json& entry,
                                            const char* key) const {
        constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        const auto found = entry.find(key);
        if (found == entry.end() || !found->is_array()) file_.fail(which + " has no " + key);
        std::vector<std::uint64_t> numbers;
        for (const auto& number : *found) {
            if (!number.is_number_unsigned() || number.get<std::uint64_t>() > largest) {
                file_.fail(which + ": " + key + " has an entry that is not a size");
            }
            numbers.push_back(number.get<std::uint64_t>());
        }
        return numbers;
    }

    const Safetensors& file_;
};

Safetensors::Safetensors(File file) : file_{std::move(file)} {
    const std::string header = header_text();
    const auto json = nlohmann::json::parse(header, nullptr, false);
    if (!json.is_object()) fail("the header is not a JSON object");
    const HeaderReader reader{*this};
    for (const auto& [name, entry] : json.items()) {
        if (name == "__metadata__") {
            metadata_ = reader.metadata(entry);
        } else {
            tensors_.emplace(name, reader.tensor(name, entry));
        }
    }
    check_coverage();
}

std::vector<std::string> Safetensors::tensor_names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
}

std::vector<float> Safetensors::tensor(const std::string& name, const std::vector<std::int64_t>& shape) const {
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

std::string Safetensors::header_text() {
    constexpr std::uint64_t prefix = 8;
    const std::uint64_t size = file_.bytes.size();
    if (size < prefix) {
        fail("not a safetensors file: it has " + std::to_string(size) + " bytes, expected at least 8");
    }
    const auto length = load<std::uint64_t>(file_.bytes.data());
    if (length > size - prefix) {
        fail("not a safetensors file, or cut off: its header should have " + std::to_string(length)
             + " bytes, but only " + std::to_string(size - prefix) + " follow");
    }
    data_ = std::span{file_.bytes}.subspan(prefix + length);
    return {file_.bytes.data() + prefix, static_cast<std::size_t>(length)};
}

void Safetensors::check_coverage() const {
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
        fail("the tensors end at byte " + std::to_string(end) + " of the data, which has "
             + std::to_string(data_.size()) + " bytes");
    }
}

std::vector<float> Safetensors::convert(const Tensor& tensor) const {
    const char* const bytes = data_.data() + tensor.begin;
    std::vector<float> values((tensor.end - tensor.begin) / size_of(tensor.type));
    const auto read = [&]<class Element>(Element) {
        std::vector<Element> elements(values.size());
        load(bytes, std::span{elements});
        cellar::convert(elements, values);
    };
    switch (tensor.type) {
    case Type::f16:
        read(cellar::half{});
        break;
    case Type::bf16:
        read(cellar::bfloat16{});
        break;
    case Type::f32:
        load(bytes, std::span{values});
        break;
    }
    return values;
}

} // namespace llama
