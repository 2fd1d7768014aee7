// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "rounding.hpp"

#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
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

} // namespace

struct Rounding::Side {
    struct Sums {
        double errors = 0;
        double values = 0;
    };

    const Format* format;
    int dim = 1;
    std::vector<Sums> of_threads = std::vector<Sums>(512);

    explicit Side(const std::string& name) : format{find(name)} {}

    ggml_tensor* node(ggml_context* context, ggml_tensor* rows) {
        if (format == nullptr) return rows;
        dim = static_cast<int>(rows->ne[0]);
        if (dim % format->values != 0 || dim > max_encoded_dim)
            throw std::runtime_error{std::string{format->name} + " takes heads of a multiple of "
                                     + std::to_string(format->values) + " values, but they have "
                                     + std::to_string(dim)};
        return ggml_map_custom1(context, ggml_cont(context, rows), run, GGML_N_TASKS_MAX, this);
    }

    static void run(ggml_tensor* to, const ggml_tensor* from, int thread, int threads, void* side) {
        auto& self = *static_cast<Side*>(side);
        Sums& sums = self.of_threads[static_cast<std::size_t>(thread)];
        const auto dim = static_cast<std::size_t>(from->ne[0]);
        const std::int64_t heads = from->ne[1] * from->ne[2];
        for (std::int64_t head = thread; head < heads; head += threads) {
            const std::span values{static_cast<const float*>(from->data) + head * from->ne[0], dim};
            const std::span rounded{static_cast<float*>(to->data) + head * from->ne[0], dim};
            self.format->round(values, rounded);
            for (std::size_t i = 0; i < dim; ++i) {
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
    double bits() const { return format == nullptr ? 32 : format->bits(dim); }
};

Rounding::Rounding(const std::string& keys, const std::string& values)
    : keys_{std::make_unique<Side>(keys)}, values_{std::make_unique<Side>(values)} {}
Rounding::~Rounding() = default;

ggml_tensor* Rounding::keys(ggml_context* context, ggml_tensor* k) {
    return keys_->node(context, k);
}
ggml_tensor* Rounding::values(ggml_context* context, ggml_tensor* v) {
    return values_->node(context, v);
}
double Rounding::key_error() const {
    return keys_->error();
}
double Rounding::value_error() const {
    return values_->error();
}
double Rounding::bits_a_value() const {
    return (keys_->bits() + values_->bits()) / 2;
}

std::vector<std::string> Rounding::formats() {
    std::vector<std::string> names{"half"};
    for (const Format& format : formats_of_fewer_bits) names.emplace_back(format.name);
    return names;
}

} // namespace engine
