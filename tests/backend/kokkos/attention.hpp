// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "attention/attended.hpp"
#include "backend/kokkos/device_on_host.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/backend/eigen.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace cellar_test {

using Floats = std::vector<float>;

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// Elements in the memory of a backend.
template <class Backend, class T = float>
class OnDevice {
    using View = Kokkos::View<T*, typename Backend::memory_space>;
    using HostView = Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

public:
    explicit OnDevice(const std::vector<T>& elements) : view_{"elements", elements.size()} {
        Kokkos::deep_copy(view_, HostView{elements.data(), elements.size()});
    }

    T* data() const { return view_.data(); }

    std::vector<T> read() const {
        std::vector<T> elements(view_.extent(0));
        Kokkos::deep_copy(
            Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>{elements.data(), elements.size()}, view_);
        return elements;
    }

private:
    View view_;
};

/// A batch as lists.
struct RandomBatch {
    std::vector<cellar::Position> positions;
    std::vector<cellar::Sequence> sequences;
    std::vector<std::int32_t> groups;
    std::vector<std::int32_t> parents;
    std::vector<std::uint8_t> stored;

    int count() const { return static_cast<int>(positions.size()); }
    cellar::Batch batch() const { return {positions, sequences, groups, stored, parents}; }
};

/// A cache on a device and one on the backend for reference, which do the same at random. Free cells hold NaN. The
/// device is not waited for until several passes are over.
template <class Layout, class Window, class Backend>
class AttentionTrial {
    static constexpr int layers = 2;
    static constexpr int sequences = 4;
    template <class B>
    using Cache = cellar::Cache<Layout, Window, cellar::DisabledShift, B>;

public:
    /// Dims are multiples of `step`.
    AttentionTrial(unsigned seed, const Window& window, int step)
        : random_{seed},
          shapes_{some_shape(step), some_shape(step)},
          device_{cellar::CacheShape{.each_layer = shapes_}, limits(), window},
          exact_{cellar::CacheShape{.each_layer = shapes_}, limits(), window} {
        poison();
    }

    void run() {
        for (int i = draw(2, 8); i > 0; --i) {
            if (draw(1, 6) == 1) copy();
            if (draw(1, 8) == 1) remove();
            if (draw(1, 4) == 1) read_long_text();
            attend_to(next_tokens());
            if (draw(1, 3) == 1) compare();
        }
        compare();
    }

    /// Queries of a head that were compared.
    std::int64_t cases() const { return cases_; }

private:
    /// Results that a device may still be working on, and what goes into them.
    struct Pending {
        std::vector<OnDevice<Backend>> inputs;
        OnDevice<Backend> out, sums;
        Floats expected, expected_sums;
        double allowed;
    };

    static cellar::CacheLimits limits() {
        return {.sequences = sequences, .cells = 1600, .batch = 400, .positions = cellar::Positions::any};
    }

    int draw(int from, int to) { return std::uniform_int_distribution<int>{from, to}(random_); }
    bool draw_true(int of = 2) { return draw(1, of) == 1; }

    Floats random(int n, float size) {
        Floats floats(static_cast<std::size_t>(n));
        std::uniform_real_distribution<float> any{-size, size};
        for (float& x : floats) x = any(random_);
        return floats;
    }

    // Most dims fit a tile, and some take several.
    int some_dim(int step) { return draw_true() ? step * draw(1, 24 / step + 1) : draw_true() ? 16 * draw(1, 9) : 80; }
    cellar::LayerShape some_shape(int step) {
        const int key_dim = some_dim(step);
        return {draw(1, 2), key_dim, draw_true(6) ? 0 : some_dim(step)};
    }

    void poison() {
        for (int i = 0; i < 4; ++i) {
            auto pass = device_.begin(cellar::BatchBuilder{cellar::Sequence{3}, device_.next(cellar::Sequence{3}), 400})
                            .value();
            for (int layer = 0; layer < layers; ++layer) put(pass, layer, Floats(1, not_a_number), true);
            pass.commit();
            compare();
        }
        REQUIRE(device_.remove(cellar::Sequence{3}, cellar::Position{0}, cellar::to_end));
    }

    // The same number everywhere, or random ones.
    void put(auto& pass, int layer, Floats k, bool fill) {
        const cellar::LayerShape& shape = shapes_[static_cast<std::size_t>(layer)];
        const int n = pass.stored_tokens() * shape.kv_heads;
        Floats v;
        if (fill) {
            v.assign(static_cast<std::size_t>(n * shape.value_dim), k[0]);
            k.assign(static_cast<std::size_t>(n * shape.key_dim), k[0]);
        } else {
            v = random(n * shape.value_dim, 1);
        }
        held_.emplace_back(k);
        const float* const keys = held_.back().data();
        held_.emplace_back(v);
        put_rows(pass, layer, keys, held_.back().data());
        last_values_ = std::move(v);
    }
    void put_rows(auto& pass, int layer, const float* k, const float* v) {
        const cellar::LayerShape& shape = shapes_[static_cast<std::size_t>(layer)];
        pass.put(layer, cellar::contiguous_view(k, pass.stored_tokens(), shape.kv_heads, shape.key_dim),
                 cellar::contiguous_view(v, pass.stored_tokens(), shape.kv_heads, shape.value_dim));
    }

    // Returns the largest key.
    float put_both(auto& device, auto& exact, int layer) {
        const cellar::LayerShape& shape = shapes_[static_cast<std::size_t>(layer)];
        const Floats k = random(device.stored_tokens() * shape.kv_heads * shape.key_dim, 1);
        put(device, layer, k, false);
        put_rows(exact, layer, k.data(), last_values_.data());
        return largest(k);
    }

    static float largest(const Floats& floats) {
        float most = 0;
        for (const float x : floats) most = std::max(most, std::abs(x));
        return most;
    }

    void copy() {
        const cellar::Sequence from{draw(0, 3)}, to{draw(0, 3)};
        const int length = draw(0, device_.next(from).value);
        CHECK(device_.copy_prefix(from, to, cellar::Position{length}).has_value()
              == exact_.copy_prefix(from, to, cellar::Position{length}).has_value());
    }
    void remove() {
        const cellar::Sequence s{draw(0, 3)};
        const int from = draw(0, device_.next(s).value);
        CHECK(device_.remove(s, cellar::Position{from}, cellar::to_end).has_value()
              == exact_.remove(s, cellar::Position{from}, cellar::to_end).has_value());
    }
    void read_long_text() {
        const cellar::Sequence s{draw(0, 3)};
        const cellar::BatchBuilder text{s, device_.next(s), draw(60, 300)};
        auto device = device_.begin(text);
        auto exact = exact_.begin(text);
        REQUIRE(device.has_value() == exact.has_value());
        if (!device) return;
        for (int layer = 0; layer < layers; ++layer) put_both(*device, *exact, layer);
        device->commit();
        exact->commit();
    }

    RandomBatch next_tokens() {
        RandomBatch tokens;
        std::vector<int> next;
        for (int s = 0; s < sequences; ++s) next.push_back(device_.next(cellar::Sequence{s}).value);
        const bool grouped = draw_true(4);
        const bool tree = !grouped && draw_true(3);
        const bool in_part = draw_true(4);
        const int count = draw_true() ? draw(1, 6) : draw(1, 40);
        std::vector<int> depth;
        int s = draw(0, 3);
        for (int i = 0; i < count; ++i) {
            if (draw_true(5)) s = draw(0, 3);
            int& end = next[static_cast<std::size_t>(s)];
            tokens.sequences.push_back(cellar::Sequence{s});
            if (tree) {
                const int parent = draw(-1, i - 1);
                const bool same = parent >= 0 && tokens.sequences[static_cast<std::size_t>(parent)].value == s;
                tokens.parents.push_back(same ? parent : -1);
                depth.push_back(same ? depth[static_cast<std::size_t>(parent)] + 1 : 0);
                tokens.positions.push_back(cellar::Position{end + depth.back()});
            } else {
                tokens.positions.push_back(cellar::Position{end++});
            }
            if (in_part) tokens.stored.push_back(draw_true() ? 1 : 0);
            const auto first = std::find(tokens.sequences.begin(), tokens.sequences.end(), cellar::Sequence{s});
            if (grouped) tokens.groups.push_back(draw_true() ? -1 : static_cast<int>(first - tokens.sequences.begin()));
        }
        return tokens;
    }

    void attend_to(const RandomBatch& tokens) {
        auto device = device_.begin(tokens.batch());
        auto exact = exact_.begin(tokens.batch());
        REQUIRE(device.has_value() == exact.has_value());
        if (!device) return;
        for (int layer = 0; layer < layers; ++layer) {
            const float key = put_both(*device, *exact, layer);
            for (int i = draw(1, 2); i > 0; --i) attend_in(*device, *exact, layer, tokens, key);
        }
        if (!tokens.parents.empty()) return; // a tree is not kept
        device->commit();
        exact->commit();
    }

    void attend_in(auto& device, auto& exact, int layer, const RandomBatch& tokens, float key) {
        const cellar::LayerShape& shape = shapes_[static_cast<std::size_t>(layer)];
        const int n = tokens.count();
        const int heads = shape.kv_heads * draw(1, 6);
        const Floats q = random(n * heads * shape.key_dim, 4);
        const Floats slopes = random(draw_true(3) ? heads : 0, 0.1F), sinks = random(draw_true(3) ? heads : 0, 2);
        const int out_dim = shape.value_dim != 0 ? shape.value_dim : draw(1, shape.key_dim);
        cellar::AttentionOptions options{.scale = draw_true() ? 0.0F : 0.25F,
                                         .soft_cap = draw_true(3) ? 1.5F : 0.0F,
                                         .slopes = slopes,
                                         .sinks = sinks};
        const Floats nothing(static_cast<std::size_t>(n * heads * out_dim), not_a_number);
        const Floats no_sums(static_cast<std::size_t>(n * heads), not_a_number);
        const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(shape.key_dim);
        const double product = scale * shape.key_dim * 4.1 * std::max(key, 1.0F);
        const double score = options.soft_cap != 0 ? options.soft_cap : product;
        pending_.push_back(
            {{},
             OnDevice<Backend>{nothing},
             OnDevice<Backend>{no_sums},
             nothing,
             no_sums,
             attention_test::bound(shape.key_dim, product, score, largest(slopes) * 9000.0, 1.01, 4000)});
        Pending& call = pending_.back();
        call.inputs.emplace_back(q);
        const bool sums = draw_true();
        if (sums) options.log_sum_exp = cellar::contiguous_view(call.sums.data(), n, heads);
        attend(device, layer,
               cellar::contiguous_view(static_cast<const float*>(call.inputs[0].data()), n, heads, shape.key_dim),
               cellar::contiguous_view(call.out.data(), n, heads, out_dim), options);
        if (sums) options.log_sum_exp = cellar::contiguous_view(call.expected_sums.data(), n, heads);
        attend(exact, layer, q, cellar::contiguous_view(call.expected.data(), n, heads, out_dim), options);
        cases_ += n * heads;
    }

    void compare() {
        device_.fence();
        held_.clear();
        for (const Pending& call : pending_) {
            const Floats found = call.out.read(), sums = call.sums.read();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < found.size(); ++i)
                wrong += std::abs(found[i] - call.expected[i]) <= call.allowed ? 0U : 1U;
            for (std::size_t i = 0; i < sums.size(); ++i) {
                const float expected = call.expected_sums[i];
                const bool same = std::isfinite(expected) ? std::abs(sums[i] - expected) <= 8 * call.allowed
                                  : std::isnan(expected)  ? std::isnan(sums[i])
                                                          : sums[i] == expected;
                wrong += same ? 0U : 1U;
            }
            CHECK(wrong == 0);
        }
        pending_.clear();
    }

    std::mt19937 random_;
    std::vector<cellar::LayerShape> shapes_;
    std::vector<Pending> pending_;
    std::vector<OnDevice<Backend>> held_; // rows of puts
    Floats last_values_;
    Cache<Backend> device_;
    Cache<cellar::EigenBackend> exact_;
    std::int64_t cases_ = 0;
};

/// Random caches on a device, compared with the definition of attention.
template <class Layout, class Backend, class Window = cellar::FullCausal>
void check_attention(int trials, const Window& window = Window{}, int step = 1) {
    std::int64_t cases = 0;
    for (int seed = 0; seed < trials; ++seed) {
        CAPTURE(seed);
        AttentionTrial<Layout, Window, Backend> trial{static_cast<unsigned>(seed), window, step};
        trial.run();
        cases += trial.cases();
    }
    MESSAGE(cases << " queries of a head were compared");
    CHECK(cases > 0);
}

} // namespace cellar_test
