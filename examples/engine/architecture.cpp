// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "architecture.hpp"

#include <cmath>

namespace engine {

namespace {

constexpr Architecture table[] = {
    {.name = "llama", .neox = false}, // Mistral and SmolLM2, too
    {.name = "qwen2"},
    {.name = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .head_norms = true,
     .post_norms = true,
     .gelu = true,
     .scaled_embedding = true,
     .scaled_queries = true,
     .full_every = 6},
    {.name = "lfm2", .head_norms = true, .convolves = true},
};

const Architecture& architecture_of(const GgufFile& file) {
    const std::string name = file.text("general.architecture").value_or("");
    std::string known;
    for (const Architecture& a : table) {
        if (a.name == name) return a;
        known += (known.empty() ? "" : ", ") + std::string{a.name};
    }
    file.fail("the architecture is '" + name + "', expected one of " + known);
}

/// Numbers of one architecture.
class Numbers {
public:
    Numbers(const GgufFile& file, std::string_view architecture)
        : file_{file}, prefix_{std::string{architecture} + "."} {}

    double real(const std::string& key) const {
        const auto found = file_.number(prefix_ + key);
        if (!found) file_.fail(prefix_ + key + " is missing");
        return checked(key, *found);
    }
    double real(const std::string& key, double otherwise) const {
        return checked(key, file_.number(prefix_ + key).value_or(otherwise));
    }
    int count(const std::string& key) const { return whole(key, real(key)); }
    int count(const std::string& key, int otherwise) const { return whole(key, real(key, otherwise)); }
    std::string text(const std::string& key) const { return file_.text(prefix_ + key).value_or(""); }
    /// The same for all layers, but for those where it is 0.
    int count_of_all_layers(const std::string& key, int otherwise) const {
        const auto found = file_.numbers(prefix_ + key);
        if (!found || found->empty()) return otherwise;
        const double most = *std::max_element(found->begin(), found->end());
        if (std::any_of(found->begin(), found->end(), [&](double n) { return n != 0 && n != most; }))
            file_.fail(prefix_ + key + " differs between layers, expected one number");
        return whole(key, most);
    }
    /// Which of the layers have 0 there.
    std::vector<bool> zeros(const std::string& key, int layers) const {
        std::vector<bool> zeros(static_cast<std::size_t>(layers));
        const auto found = file_.numbers(prefix_ + key);
        if (!found || found->size() < 2) return zeros;
        if (std::ssize(*found) != layers)
            file_.fail(prefix_ + key + " has " + std::to_string(found->size()) + " numbers, expected "
                       + std::to_string(layers));
        for (std::size_t i = 0; i < zeros.size(); ++i) zeros[i] = (*found)[i] == 0;
        return zeros;
    }

private:
    double checked(const std::string& key, double number) const {
        if (!std::isfinite(number) || number < 0)
            file_.fail(prefix_ + key + " is " + std::to_string(number) + ", expected a number of 0 or more");
        return number;
    }
    int whole(const std::string& key, double number) const {
        constexpr double most = 1 << 24;
        if (number < 1 || number > most || number != std::floor(number))
            file_.fail(prefix_ + key + " is " + std::to_string(number) + ", expected a whole number from 1 to 2^24");
        return static_cast<int>(number);
    }

    const GgufFile& file_;
    std::string prefix_;
};

Rope full_rope(const GgufFile& file, const Numbers& numbers, int head_dim) {
    Rope rope{.dims = numbers.count("rope.dimension_count", head_dim),
              .base = static_cast<float>(numbers.real("rope.freq_base", 10000))};
    const std::string scaling = numbers.text("rope.scaling.type");
    if (scaling == "linear") {
        const double factor = numbers.real("rope.scaling.factor", 1);
        if (factor > 0) rope.scale = static_cast<float>(1 / factor);
    } else if (!scaling.empty() && scaling != "none") {
        file.fail("the rotary positions are scaled by '" + scaling + "', expected 'none' or 'linear'");
    }
    if (rope.base <= 0) file.fail("the base of the rotary positions is 0, expected more");
    if (rope.dims % 2 != 0 || rope.dims > head_dim)
        file.fail(std::to_string(rope.dims) + " rotary elements, expected an even number up to the "
                  + std::to_string(head_dim) + " of a head");
    return rope;
}

std::vector<LayerKind> kinds(const GgufFile& file, const Numbers& numbers, const Shape& s) {
    std::vector<LayerKind> kinds;
    const std::vector<bool> without_keys = numbers.zeros("attention.head_count_kv", s.layers);
    for (int layer = 0; layer < s.layers; ++layer) {
        const bool sees_all = (layer + 1) % s.architecture.full_every == 0;
        kinds.push_back(sees_all ? LayerKind::full : LayerKind::sliding);
        if (!without_keys[static_cast<std::size_t>(layer)]) continue;
        if (!s.architecture.convolves)
            file.fail("layer " + std::to_string(layer) + " has no heads of keys and values, expected some");
        kinds.back() = LayerKind::convolution;
    }
    return kinds;
}

} // namespace

std::vector<std::string_view> architectures() {
    std::vector<std::string_view> names;
    for (const Architecture& a : table) names.push_back(a.name);
    return names;
}

Shape read_shape(const GgufFile& file) {
    Shape s{.architecture = architecture_of(file)};
    const Numbers numbers{file, s.architecture.name};
    s.layers = numbers.count("block_count");
    s.width = numbers.count("embedding_length");
    s.heads = numbers.count_of_all_layers("attention.head_count", 0);
    s.kv_heads = numbers.count_of_all_layers("attention.head_count_kv", s.heads);
    if (s.heads == 0 || s.heads % s.kv_heads != 0)
        file.fail(std::to_string(s.heads) + " attention heads cannot share " + std::to_string(s.kv_heads)
                  + " heads of keys and values equally");
    s.head_dim = numbers.count("attention.key_length", std::max(1, s.width / s.heads));
    if (numbers.count("attention.value_length", s.head_dim) != s.head_dim)
        file.fail("keys and values have heads of different sizes, expected equal ones");
    s.kinds = kinds(file, numbers, s);
    s.feed_forward = numbers.count_of_all_layers("feed_forward_length", 0);
    s.context = numbers.count("context_length");
    s.epsilon = static_cast<float>(numbers.real("attention.layer_norm_rms_epsilon"));
    s.scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    const double scale = numbers.real("attention.scale", 0);
    if (scale > 0) s.scale = static_cast<float>(scale);
    s.full = full_rope(file, numbers, s.head_dim);
    if (s.architecture.full_every > 1) {
        s.window = numbers.count("attention.sliding_window");
        s.sliding = {.dims = s.full.dims, .base = static_cast<float>(numbers.real("rope.freq_base_swa", 10000))};
    }
    if (s.count(LayerKind::convolution) > 0) s.taps = numbers.count("shortconv.l_cache");
    if (s.taps == 1) file.fail("the convolutions see 1 token, expected at least 2");
    // The largest Gemma 3 scales by the width of a query's share.
    if (s.architecture.name == "gemma3" && s.layers == 62)
        s.scale = 1.0F / std::sqrt(static_cast<float>(s.width) / static_cast<float>(s.heads));
    return s;
}

} // namespace engine
