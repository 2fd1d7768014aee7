// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "rounding.hpp"

#include <cellar/attention/attend_residual.hpp>
#include <cellar/cellar.hpp>
#include <cellar/element/half.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/interop/ggml.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace engine {

namespace {

using cellar::detail::format_of;
using cellar::detail::has_scale_plane;
using cellar::detail::max_encoded_dim;
using cellar::detail::scale_of;
using cellar::detail::scales_in;
using cellar::detail::unit_of;
using cellar::detail::values_per_unit;

/// Encodes and decodes the values of a head.
template <class F>
void round(std::span<const float> values, std::span<float> to) {
    using Format = format_of<F>;
    std::array<unit_of<F>, std::size_t{max_encoded_dim} / values_per_unit<F>> units;
    const std::span some{units.data(), values.size() / values_per_unit<F>};
    if constexpr (has_scale_plane<F>) {
        std::array<scale_of<F>, max_encoded_dim> scales;
        const std::span factors{scales.data(), static_cast<std::size_t>(scales_in<F>(static_cast<int>(values.size())))};
        Format::encode(values, some, factors);
        Format::decode(some, factors, to);
    } else {
        Format::encode(values, some);
        Format::decode(some, to);
    }
}

struct Format {
    std::string_view name; ///< in files; what encodes in different ways may have the same one
    void (*round)(std::span<const float> values, std::span<float> to);
    int values; ///< a head has a multiple of them
    double (*bits)(int dim);
};

template <class F>
double bits_of(int dim) {
    const double bytes =
        static_cast<double>(sizeof(unit_of<F>)) * dim
            / values_per_unit<
                F> + (has_scale_plane<F> ? static_cast<double>(sizeof(scale_of<F>)) * scales_in<F>(dim) : 0);
    return 8 * bytes / dim;
}
template <class F>
constexpr Format format() {
    return {format_of<F>::name, round<F>, cellar::detail::values_of_part<format_of<F>>(1), bits_of<F>};
}

template <class... F>
constexpr auto with_rotations() {
    return std::array{format<F>()..., format<cellar::Rotated<cellar::Hadamard<64>, F>>()...,
                      format<cellar::Rotated<cellar::Hadamard<128>, F>>()...};
}

constexpr auto formats_of_fewer_bits =
    with_rotations<cellar::q8_0, cellar::int8_per_head, cellar::fp8_e4m3, cellar::fp8_e5m2, cellar::Affine<8>,
                   cellar::Affine<6>, cellar::q5_1, cellar::q5_0, cellar::q4_1, cellar::iq4_nl, cellar::q4_0,
                   cellar::nvfp4_four_over_six, cellar::Affine<4>, cellar::mxfp4, cellar::Affine<3>,
                   cellar::Affine<2>>();
constexpr Format halves = format<cellar::half>();

/// Null: floats.
const Format* find(const std::string& name) {
    if (name == "float") return nullptr;
    if (name == "half") return &halves;
    for (const Format& format : formats_of_fewer_bits)
        if (format.name == name) return &format;
    std::string names = "'float'";
    for (const std::string& known : Rounding::formats()) names += ", '" + known + "'";
    throw std::runtime_error{"the format is '" + name + "', expected one of " + names};
}

/// A format and what comes before it.
struct NamedFormat {
    const Format* format; ///< null: floats
    int exact = 0;        ///< so many layers are in half
    double power = 0;     ///< of factors
    double queries = 0;
    int residual = 0; ///< tokens
    int sinks = 0;

    explicit NamedFormat(std::string name) {
        residual = count(name, "residual");
        sinks = count(name, "sinks");
        if (sinks > 0 && residual == 0)
            throw std::runtime_error{"sinks" + std::to_string(sinks) + " without a residual"};
        if (const auto number = taken(name, "exact"))
            exact = static_cast<int>(number->empty() ? 1 : std::stoi(*number));
        if (const auto number = taken(name, "scaled")) power = number->empty() ? 1 : std::stod(*number);
        if (const auto number = taken(name, "queries")) queries = number->empty() ? 1 : std::stod(*number);
        format = find(name);
    }

private:
    // The number behind the word; 0 without the word.
    static int count(std::string& name, const std::string& word) {
        const auto number = taken(name, word);
        if (!number) return 0;
        int found = 0;
        const auto [end, error] = std::from_chars(number->data(), number->data() + number->size(), found);
        if (error != std::errc{} || end != number->data() + number->size() || found < 1)
            throw std::runtime_error{word + " has the number '" + *number + "', expected 1 or more tokens"};
        return found;
    }
    // What lies between the word and a point before a letter, if the name begins with the word. It goes.
    static std::optional<std::string> taken(std::string& name, const std::string& word) {
        if (!name.starts_with(word)) return {};
        const std::size_t end = name.find_first_not_of("0123456789.", word.size());
        if (end == std::string::npos || name[end - 1] != '.') return {};
        std::string number = name.substr(word.size(), end - 1 - word.size());
        name = name.substr(end);
        return number;
    }
};

cellar::RopeShift<cellar::RunTimePairing> shift_of(const Shape& shape) {
    std::vector<std::vector<double>> pairs;
    const LayerDescription* rotated = &shape.memory.layers.front();
    for (const LayerDescription& layer : shape.memory.layers) {
        if (layer.rope.dims > 0) rotated = &layer;
        pairs.emplace_back(static_cast<std::size_t>(layer.rope.dims / 2), 1.0);
    }
    const bool interleaved = rotated->rope.pairing == cellar::models::Pairing::interleaved;
    return cellar::RopeShift<cellar::RunTimePairing>::per_layer(std::move(pairs), {interleaved}, rotated->rope.begin);
}

} // namespace

struct Rounding::Sample {
    cellar::ChannelCalibration* samples;
    int layer;

    ggml_tensor* node(ggml_context* context, ggml_tensor* k, ggml_tensor* v, ggml_tensor* q) {
        return ggml_map_custom3(context, ggml_cont(context, k), ggml_cont(context, v), ggml_cont(context, q), run, 1,
                                this);
    }
    static void run(ggml_tensor* to, const ggml_tensor* k, const ggml_tensor* v, const ggml_tensor* q, int thread, int,
                    void* sample) {
        if (thread != 0) return; // ggml calls it on all threads
        const auto& self = *static_cast<Sample*>(sample);
        const auto floats = [](const ggml_tensor* t) {
            return std::span{static_cast<const float*>(t->data), static_cast<std::size_t>(ggml_nelements(t))};
        };
        self.samples->add(self.layer, floats(q), floats(k), floats(v));
        std::copy_n(static_cast<const float*>(k->data), ggml_nelements(k), static_cast<float*>(to->data));
    }
};

struct Rounding::Side {
    struct Sums {
        double errors = 0;
        double values = 0;
    };
    struct OfLayer {
        Side* side;
        const Format* format;
        std::vector<float> factors; ///< [heads, dim], or none
    };

    NamedFormat name;
    int dim = 1;
    std::vector<OfLayer> layers{};
    std::vector<Sums> of_threads = std::vector<Sums>(512);

    Side(const std::string& of, int count) : name{of} {
        for (int i = 0; i < count; ++i)
            layers.push_back({this, name.format != nullptr && i < name.exact ? &halves : name.format, {}});
    }

    ggml_tensor* node(ggml_context* context, int layer, ggml_tensor* rows) {
        if (name.format == nullptr) return rows;
        dim = static_cast<int>(rows->ne[0]);
        if (dim % name.format->values != 0 || dim > max_encoded_dim)
            throw std::runtime_error{std::string{name.format->name} + " takes heads of a multiple of "
                                     + std::to_string(name.format->values) + " values, but they have "
                                     + std::to_string(dim)};
        OfLayer& own = layers[static_cast<std::size_t>(layer)];
        return ggml_map_custom1(context, ggml_cont(context, rows), run, GGML_N_TASKS_MAX, &own);
    }

    static void run(ggml_tensor* to, const ggml_tensor* from, int thread, int threads, void* layer) {
        const auto& own = *static_cast<OfLayer*>(layer);
        Sums& sums = own.side->of_threads[static_cast<std::size_t>(thread)];
        const auto dim = static_cast<std::size_t>(from->ne[0]);
        const std::int64_t heads = from->ne[1] * from->ne[2];
        std::vector<float> divided(dim);
        for (std::int64_t head = thread; head < heads; head += threads) {
            const std::span values{static_cast<const float*>(from->data) + head * from->ne[0], dim};
            const std::span rounded{static_cast<float*>(to->data) + head * from->ne[0], dim};
            const float* const factors =
                own.factors.empty() ? nullptr : own.factors.data() + head % from->ne[1] * from->ne[0];
            for (std::size_t i = 0; i < dim; ++i) divided[i] = factors == nullptr ? values[i] : values[i] / factors[i];
            own.format->round(divided, rounded);
            for (std::size_t i = 0; i < dim; ++i) {
                if (factors != nullptr) rounded[i] *= factors[i];
                sums.errors += std::pow(double{rounded[i]} - values[i], 2);
                sums.values += std::pow(double{values[i]}, 2);
            }
        }
    }

    double error() const {
        Sums all;
        for (const Sums& sums : of_threads) {
            all.errors += sums.errors;
            all.values += sums.values;
        }
        return all.values == 0 ? 0 : std::sqrt(all.errors / all.values);
    }
    double bits() const {
        double sum = 0;
        for (const OfLayer& layer : layers) sum += layer.format == nullptr ? 32 : layer.format->bits(dim);
        return sum / static_cast<double>(layers.size());
    }
};

/// Attention of a layer over two memories of floats: one has what was stored, the other one the newest tokens, in half.
struct Rounding::Residual {
    using Stored = cellar::Cache<cellar::StandardV<float>>;
    using Newest = cellar::Cache<cellar::StandardV<cellar::half>, cellar::SlidingWindow<>>;

    cellar::SlidingWindow<> window;
    float scale;

    ggml_tensor* node(ggml_context* context, std::array<ggml_tensor*, 6> sources) {
        const ggml_tensor& out = *sources.back();
        return ggml_custom_4d(context, GGML_TYPE_F32, out.ne[0], out.ne[1], 1, 1, sources.data(),
                              static_cast<int>(sources.size()), run, 1, this);
    }
    static void run(ggml_tensor* to, int thread, int, void* residual) {
        if (thread != 0) return; // ggml calls it on all threads
        const auto& self = *static_cast<Residual*>(residual);
        const auto rows = [&](int source) { return cellar::ggml::rows<float>(*to->src[source]); };
        const auto q = rows(0), k = rows(1), v = rows(2);
        const auto tokens = static_cast<std::int32_t>(k.extent(0));
        const cellar::CacheShape shape{.layers = 1,
                                       .kv_heads = static_cast<int>(k.extent(1)),
                                       .head_dim = static_cast<int>(k.extent(2)),
                                       .value_dim = static_cast<int>(v.extent(2))};
        const cellar::CacheLimits limits{.capacity = tokens, .batch = tokens};
        Stored stored{shape, limits};
        Newest newest{shape, limits, self.window};
        auto pass = stored.begin(cellar::Sequence{0}, tokens).value();
        auto residual_pass = newest.begin(cellar::Sequence{0}, tokens).value();
        pass.put(0, rows(3), rows(4));
        residual_pass.put(0, k, v);
        const auto out = cellar::contiguous_view(static_cast<float*>(to->data), k.extent(0), q.extent(1), v.extent(2));
        cellar::attend_residual(pass, residual_pass, 0, q, out, {.scale = self.scale});
    }
};

Rounding::Rounding(const std::string& keys, const std::string& values, const Shape& shape,
                   const cellar::ChannelCalibration& samples)
    : keys_{std::make_unique<Side>(keys, shape.layers())}, values_{std::make_unique<Side>(values, shape.layers())} {
    const auto factors = samples.factors(
        {.keys = keys_->name.power, .queries = keys_->name.queries, .values = values_->name.power}, shift_of(shape));
    for (std::size_t i = 0; i < factors.size(); ++i) {
        if (keys_->name.power != 0) keys_->layers[i].factors = factors[i].keys;
        if (values_->name.power != 0) values_->layers[i].factors = factors[i].values;
    }
    const NamedFormat& name = keys_->name;
    if (values != keys && values_->name.residual > 0)
        throw std::runtime_error{"a residual is that of keys and values: name it before the format of keys alone"};
    for (const LayerDescription& layer : shape.memory.layers)
        if (name.residual > 0 && layer.window > 0)
            throw std::runtime_error{"a layer has a window of " + std::to_string(layer.window)
                                     + " tokens, expected none beside a residual"};
    for (int i = 0; i < shape.layers() && name.residual > 0; ++i)
        residuals_.push_back({cellar::SlidingWindow<>{name.residual, {.sinks = name.sinks}},
                              shape.architecture.scaled_queries ? 1.0F : shape.scale(i)});
}
Rounding::Rounding(const Shape& shape, cellar::ChannelCalibration& samples)
    : keys_{std::make_unique<Side>("float", shape.layers())}, values_{std::make_unique<Side>("float", shape.layers())} {
    for (int i = 0; i < shape.layers(); ++i) samples_.push_back({&samples, i});
}
Rounding::~Rounding() = default;

std::pair<ggml_tensor*, ggml_tensor*> Rounding::nodes(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k,
                                                      ggml_tensor* v) {
    if (!samples_.empty()) return {samples_[static_cast<std::size_t>(layer)].node(context, k, v, q), v};
    return {keys_->node(context, layer, k), values_->node(context, layer, v)};
}
ggml_tensor* Rounding::attended(ggml_context* context, int layer, ggml_tensor* q,
                                std::pair<ggml_tensor*, ggml_tensor*> exact,
                                std::pair<ggml_tensor*, ggml_tensor*> stored, ggml_tensor* rounded) {
    if (residuals_.empty()) return rounded;
    return residuals_[static_cast<std::size_t>(layer)].node(
        context, {q, exact.first, exact.second, stored.first, stored.second, rounded});
}
double Rounding::key_error() const {
    return keys_->error();
}
double Rounding::value_error() const {
    return values_->error();
}
double Rounding::bits_a_value(int tokens) const {
    const NamedFormat& name = keys_->name;
    const int twice = name.residual == 0 ? 0 : std::min(name.residual + name.sinks, tokens);
    return (keys_->bits() + values_->bits()) / 2 + 16.0 * twice / tokens;
}

std::vector<std::string> Rounding::formats() {
    std::vector<std::string> names{"half"};
    for (const Format& format : formats_of_fewer_bits) names.emplace_back(format.name);
    return names;
}

} // namespace engine
