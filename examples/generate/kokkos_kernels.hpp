// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

// Kernels for attention and recurrences. They read and write device memory.

namespace llama {

/// Adds one term of the product of a query and a key.
template <class Element>
struct AddProduct {
    const float* query;
    const Element* key;
    std::int64_t key_step;

    KOKKOS_FUNCTION void operator()(int i, float& sum) const {
        sum += query[i] * static_cast<float>(key[i * key_step]);
    }
};

/// out = keep * out + weight * value. Does not read `out` if `keep` is 0.
template <class Element>
struct AddValue {
    float* out;
    const Element* value;
    std::int64_t value_step;
    float keep;
    float weight;

    KOKKOS_FUNCTION void operator()(int i) const {
        const float kept = keep > 0 ? keep * out[i] : 0.0F;
        out[i] = kept + weight * static_cast<float>(value[i * value_step]);
    }
};

struct Divide {
    float* out;
    float divisor;

    KOKKOS_FUNCTION void operator()(int i) const { out[i] /= divisor; }
};

/// softmax(query * keys^T / sqrt(dim)) * values, over the cells that a token sees. One team per head of each token
/// reads the cells once: a larger product scales the sum so far down. (Online softmax, arXiv:1805.02867)
template <class Element, class Team>
struct Attention {
    cellar::StridedView<const float, 3> queries;  // [tokens, heads, dim]
    cellar::StridedView<const Element, 3> keys;   // [history, kv_heads, dim]
    cellar::StridedView<const Element, 3> values; // [history, kv_heads, dim]
    cellar::StridedView<const bool, 2> sees;      // [tokens, history]
    cellar::StridedView<float, 3> out;            // [tokens, heads, dim]

    KOKKOS_FUNCTION void operator()(const Team& team) const {
        const std::int64_t token = team.league_rank() / queries.extent(1);
        const std::int64_t head = team.league_rank() % queries.extent(1);
        const std::int64_t kv_head = head * keys.extent(1) / queries.extent(1);
        const auto elements = Kokkos::ThreadVectorRange(team, static_cast<int>(queries.extent(2)));
        const float scale = 1.0F / Kokkos::sqrt(static_cast<float>(queries.extent(2)));
        float* const result = &out(token, head, 0);
        float largest = -Kokkos::Experimental::infinity_v<float>;
        float sum = 0;
        for (std::int64_t cell = 0; cell < keys.extent(0); ++cell) {
            if (!sees(token, cell)) continue; // the cell may hold anything
            float product = 0;
            const AddProduct<Element> add{&queries(token, head, 0), &keys(cell, kv_head, 0), keys.stride(2)};
            Kokkos::parallel_reduce(elements, add, product);
            const float before = largest;
            largest = Kokkos::fmax(largest, product * scale);
            const float keep = Kokkos::exp(before - largest);
            const float weight = Kokkos::exp(product * scale - largest);
            sum = keep * sum + weight;
            Kokkos::parallel_for(elements,
                                 AddValue<Element>{result, &values(cell, kv_head, 0), values.stride(2), keep, weight});
        }
        Kokkos::parallel_for(elements, Divide{result, sum});
    }
};

/// The causal convolution. One index per channel of each token.
struct Convolution {
    cellar::StridedView<const float, 2> taps;   // [width, taps]
    cellar::StridedView<const float, 2> bias;   // [1, width]
    cellar::StridedView<const float, 3> before; // [1, taps - 1, width], inputs before the first token
    cellar::StridedView<const float, 2> x;      // [tokens, width]
    cellar::StridedView<float, 2> out;          // [tokens, width]

    KOKKOS_FUNCTION void operator()(std::int64_t index) const {
        const std::int64_t token = index / x.extent(1);
        const std::int64_t channel = index % x.extent(1);
        float sum = bias(0, channel);
        for (std::int64_t tap = 0; tap < taps.extent(1); ++tap) {
            const std::int64_t at = token + tap - before.extent(1);
            sum += taps(channel, tap) * (at < 0 ? before(0, token + tap, channel) : x(at, channel));
        }
        out(token, channel) = sum;
    }
};

/// A `BlockGate`.
struct Gate {
    cellar::StridedView<const float, 2> weight; // [width, width / blocks]
    cellar::StridedView<const float, 2> bias;   // [1, width]

    KOKKOS_FUNCTION float operator()(const cellar::StridedView<float, 2>& x, std::int64_t token,
                                     std::int64_t channel) const {
        const std::int64_t size = weight.extent(1);
        const std::int64_t first = channel / size * size;
        float sum = bias(0, channel);
        for (std::int64_t i = 0; i < size; ++i) sum += x(token, first + i) * weight(channel, i);
        return 1.0F / (1.0F + Kokkos::exp(-sum));
    }
};

/// The share of a state that a token keeps, and what the token adds. One index per channel of each token.
struct Gates {
    Gate decay_gate;
    Gate input_gate;
    cellar::StridedView<const float, 2> decay; // [1, width]
    cellar::StridedView<float, 2> x;           // [tokens, width], of the convolution
    cellar::StridedView<float, 2> kept;        // [tokens, width]
    cellar::StridedView<float, 2> added;       // [tokens, width]

    KOKKOS_FUNCTION void operator()(std::int64_t index) const {
        const std::int64_t token = index / x.extent(1);
        const std::int64_t channel = index % x.extent(1);
        const float log = decay_gate(x, token, channel) * decay(0, channel);
        kept(token, channel) = Kokkos::exp(log);
        added(token, channel) =
            Kokkos::sqrt(-Kokkos::expm1(2 * log)) * input_gate(x, token, channel) * x(token, channel);
    }
};

/// The recurrence over all tokens. Replaces the inputs by the outputs, and the state by that after the last token. One
/// index per channel.
struct Recurrence {
    cellar::StridedView<const float, 2> kept;  // [tokens, width], of `Gates`
    cellar::StridedView<const float, 2> added; // [tokens, width], of `Gates`
    cellar::StridedView<float, 3> before;      // [1, taps - 1, width]
    cellar::StridedView<float, 2> state;       // [1, width]
    cellar::StridedView<float, 2> x;           // [tokens, width]

    KOKKOS_FUNCTION void operator()(std::int64_t channel) const {
        for (std::int64_t i = 0; i < before.extent(1); ++i) {
            const std::int64_t at = i + x.extent(0) - before.extent(1);
            before(0, i, channel) = at < 0 ? before(0, i + x.extent(0), channel) : x(at, channel);
        }
        float h = state(0, channel);
        for (std::int64_t token = 0; token < x.extent(0); ++token) {
            h = kept(token, channel) * h + added(token, channel);
            x(token, channel) = h;
        }
        state(0, channel) = h;
    }
};

} // namespace llama
