// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/element/bfloat16.hpp>
#include <cellar/element/half.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Attention by other libraries over the same keys and values.
namespace cellar::bench {

inline constexpr int query_heads = 32;
inline constexpr int kv_heads = 8;
inline constexpr int dim = 128;
inline constexpr float attention_scale = 0.08838834764831845F; // 1 / sqrt(dim)

/// What is measured: `tokens` new tokens of one sequence, which see `length` tokens, themselves included.
struct Shape {
    std::int32_t length;
    std::int32_t tokens;
    int layers;
    int threads;

    std::int32_t before() const { return length - tokens; }
};

/// Random numbers, the same for all libraries. The rows of keys and values of a token have kv_heads * dim elements.
template <class E>
class Numbers {
public:
    explicit Numbers(const Shape& shape) : elements_(period + row), queries_(queries(shape)) {
        for (E& e : elements_) e = static_cast<E>(next());
        // So large that the weights of a softmax differ, and rounded to what all element types hold.
        for (float& q : queries_) q = static_cast<float>(static_cast<bfloat16>(6 * next()));
    }

    const E* key(int layer, std::int32_t token) const { return at(2 * layer, token); }
    const E* value(int layer, std::int32_t token) const { return at(2 * layer + 1, token); }
    /// [tokens, query_heads, dim]
    const std::vector<float>& queries() const { return queries_; }

    static constexpr std::int64_t row = std::int64_t{kv_heads} * dim;

private:
    static constexpr std::size_t period = std::size_t{1} << 20;

    static std::size_t queries(const Shape& shape) {
        return static_cast<std::size_t>(shape.tokens) * query_heads * dim;
    }

    const E* at(int tensor, std::int32_t token) const {
        const std::uint64_t mixed =
            (static_cast<std::uint64_t>(tensor) << 32 | static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15;
        return elements_.data() + (mixed >> 40) % period;
    }
    // In [-1, 1).
    float next() {
        state_ = state_ * 6364136223846793005 + 1442695040888963407;
        return static_cast<float>(static_cast<std::int32_t>(state_ >> 32)) * 0x1p-31F;
    }

    std::uint64_t state_ = 1;
    std::vector<E> elements_;
    std::vector<float> queries_;
};

/// A library, and how it keeps the keys and values of all layers.
class Peer {
public:
    virtual ~Peer() = default;

    virtual std::string name() const = 0;
    /// Before and after some calls of `attend`. In between, and up to some milliseconds later, threads may spin.
    virtual void wake() {}
    virtual void rest() {}
    virtual void attend(int layer) = 0;
    /// [tokens, query_heads, dim] of the newest call.
    virtual std::vector<float> result() const = 0;
};

using Peers = std::vector<std::unique_ptr<Peer>>;

/// `Format`: how keys and values are stored: E, or a format that ggml has, too.
template <class Format, class E>
Peers ggml_peers(const Shape& shape, const Numbers<E>& numbers);
template <class E>
Peers torch_peers(const Shape& shape, const Numbers<E>& numbers);

} // namespace cellar::bench
