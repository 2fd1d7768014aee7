// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recording.hpp"

#include "paths.hpp"

#include <nlohmann/json.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace cellar_test {

namespace {

using nlohmann::json;

/// The number that is stored at `bytes`, little-endian.
template <class T>
T stored(std::span<const char, sizeof(T)> bytes) {
    T number = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) number = number << 8 | static_cast<std::uint8_t>(bytes[i]);
    return number;
}

/// A file of safetensors: the length of the header, the header, and the tensors' elements.
class Tensors {
public:
    explicit Tensors(const std::string& path) {
        std::ifstream file{path, std::ios::binary};
        bytes_.assign(std::istreambuf_iterator<char>{file}, {});
        if (bytes_.size() < sizeof(std::uint64_t)) throw std::runtime_error{"cannot read " + path};
        const auto length = stored<std::uint64_t>(std::span{bytes_}.first<sizeof(std::uint64_t)>());
        first_ = sizeof(length) + static_cast<std::size_t>(length);
        if (first_ > bytes_.size()) throw std::runtime_error{path + " is cut short"};
        header_ = json::parse(bytes_.data() + sizeof(length), bytes_.data() + first_);
    }

    const json& header() const { return header_; }

    std::vector<float> values(const std::string& name) const {
        const json& tensor = header_.at(name);
        if (tensor.at("dtype") != "F32") throw std::runtime_error{name + " is not of float32"};
        const std::size_t begin = tensor.at("data_offsets").at(0);
        const std::size_t end = tensor.at("data_offsets").at(1);
        std::vector<float> values((end - begin) / sizeof(float));
        const std::span<const char> data = std::span{bytes_}.subspan(first_ + begin, end - begin);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = std::bit_cast<float>(
                stored<std::uint32_t>(data.subspan(i * sizeof(float)).first<sizeof(std::uint32_t)>()));
        return values;
    }

    Rows rows(const std::string& name) const {
        const json& shape = header_.at(name).at("shape");
        return {shape.at(0), shape.at(1), shape.at(2), values(name)};
    }

private:
    std::vector<char> bytes_;
    std::size_t first_ = 0;
    json header_;
};

} // namespace

void Rows::append(const Rows& more) {
    tokens += more.tokens;
    heads = more.heads;
    dim = more.dim;
    values.insert(values.end(), more.values.begin(), more.values.end());
}

void Rows::append_row(const Rows& from, std::int64_t token) {
    append({1, from.heads, from.dim, {from.at(token), from.at(token + 1)}});
}

Recording read_recording(const std::string& model) {
    const Tensors tensors{cellar_test::source_dir() + "/tests/conformance/transformers/" + model + ".safetensors"};
    const json about = json::parse(tensors.header().at("__metadata__").at("cellar").get<std::string>());
    Recording found;
    for (std::size_t layer = 0; layer < about.at("layers").size(); ++layer) {
        const std::string name = std::to_string(layer);
        const json& given = about.at("layers").at(name);
        const auto number_or_0 = [&](const char* key) {
            return given.at(key).is_null() ? 0.0F : given.at(key).get<float>();
        };
        found.layers.push_back(
            {given.at("heads"), given.at("kv_heads"), given.at("key_dim"), given.at("value_dim"), given.at("scale"),
             number_or_0("softcap"), static_cast<int>(number_or_0("window")),
             given.at("sinks").get<bool>() ? tensors.values("sinks.layer" + name) : std::vector<float>{}});
    }
    for (std::size_t sequence = 0; sequence < about.at("sequences").size(); ++sequence) {
        std::vector<Attention>& of_layers = found.sequences.emplace_back(found.layers.size());
        const json& steps = about.at("sequences").at(std::to_string(sequence));
        for (std::size_t step = 0; step < steps.size(); ++step)
            for (std::size_t layer = 0; layer < of_layers.size(); ++layer) {
                const std::string name = "seq" + std::to_string(sequence) + ".step" + std::to_string(step) + ".layer"
                                         + std::to_string(layer) + ".";
                Attention& joined = of_layers[layer];
                joined.q.append(tensors.rows(name + "q"));
                joined.k.append(tensors.rows(name + "k"));
                joined.v.append(tensors.rows(name + "v"));
                joined.out.append(tensors.rows(name + "out"));
            }
    }
    return found;
}

} // namespace cellar_test
