// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "peer.hpp"

#include <cstring>
#include <limits>
#include <torch/torch.h>
#include <type_traits>

/// PyTorch's `scaled_dot_product_attention`, and products of matrices for the queries of a group together. Keys and
/// values are [kv_heads, length, dim], as its caches keep them.
namespace cellar::bench {
namespace {

template <class E>
constexpr at::ScalarType type = std::is_same_v<E, half>       ? at::kHalf
                                : std::is_same_v<E, bfloat16> ? at::kBFloat16
                                                              : at::kFloat;

/// The same for all ways to compute.
template <class E>
struct Tensors {
    Tensors(const Shape& the_shape, const Numbers<E>& numbers) : shape{the_shape} {
        for (int layer = 0; layer < shape.layers; ++layer) {
            at::Tensor k = at::empty({1, kv_heads, shape.length, dim}, type<E>);
            at::Tensor v = at::empty({1, kv_heads, shape.length, dim}, type<E>);
            for (std::int32_t token = 0; token < shape.length; ++token)
                for (int head = 0; head < kv_heads; ++head) {
                    const std::int64_t at = (std::int64_t{head} * shape.length + token) * dim;
                    std::memcpy(static_cast<E*>(k.data_ptr()) + at, numbers.key(layer, token) + head * dim,
                                dim * sizeof(E));
                    std::memcpy(static_cast<E*>(v.data_ptr()) + at, numbers.value(layer, token) + head * dim,
                                dim * sizeof(E));
                }
            keys.push_back(k);
            values.push_back(v);
        }
        std::vector<float> q = numbers.queries();
        queries = at::from_blob(q.data(), {1, shape.tokens, query_heads, dim}, at::kFloat)
                      .to(type<E>)
                      .transpose(1, 2)
                      .contiguous()
                      .clone();
        if (shape.tokens > 1)
            mask = at::full({shape.tokens, shape.length}, -std::numeric_limits<float>::infinity(), at::kFloat)
                       .triu(shape.before() + 1)
                       .to(type<E>);
    }

    Shape shape;
    std::vector<at::Tensor> keys;
    std::vector<at::Tensor> values;
    at::Tensor queries; // [1, query_heads, tokens, dim]
    at::Tensor mask;    // [tokens, length], added to the scores; undefined for one token
};

template <class E>
class Torch : public Peer {
public:
    explicit Torch(std::shared_ptr<const Tensors<E>> tensors) : tensors_{std::move(tensors)} {}

    std::vector<float> result() const override {
        const at::Tensor rows =
            out_.reshape({query_heads, tensors_->shape.tokens, dim}).transpose(0, 1).to(at::kFloat).contiguous();
        return {rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel()};
    }

protected:
    std::shared_ptr<const Tensors<E>> tensors_;
    at::Tensor out_; // [heads, tokens, dim], any number of extents
};

template <class E>
class Fused final : public Torch<E> {
public:
    using Torch<E>::Torch;

    std::string name() const override { return "torch"; }

    void attend(int layer) override {
        const at::NoGradGuard no_grad;
        const auto l = static_cast<std::size_t>(layer);
        const Tensors<E>& t = *this->tensors_;
        const std::optional<at::Tensor> mask = t.mask.defined() ? std::optional{t.mask} : std::nullopt;
        this->out_ =
            at::scaled_dot_product_attention(t.queries, t.keys[l], t.values[l], mask, 0.0, false, std::nullopt, true);
    }
};

template <class E>
class Grouped final : public Torch<E> {
public:
    using Torch<E>::Torch;

    std::string name() const override { return "torch_grouped"; }

    void attend(int layer) override {
        const at::NoGradGuard no_grad;
        const auto l = static_cast<std::size_t>(layer);
        const Tensors<E>& t = *this->tensors_;
        constexpr int group = query_heads / kv_heads;
        const at::Tensor q = t.queries.view({kv_heads, std::int64_t{group} * t.shape.tokens, dim});
        at::Tensor scores = at::bmm(q, t.keys[l][0].transpose(1, 2)).mul_(attention_scale);
        if (t.mask.defined()) scores.view({kv_heads, group, t.shape.tokens, t.shape.length}).add_(t.mask);
        this->out_ = at::bmm(at::softmax(scores, -1), t.values[l][0]);
    }
};

} // namespace

template <class E>
Peers torch_peers(const Shape& shape, const Numbers<E>& numbers) {
    at::set_num_threads(shape.threads);
    const auto tensors = std::make_shared<const Tensors<E>>(shape, numbers);
    Peers peers;
    peers.push_back(std::make_unique<Fused<E>>(tensors));
    peers.push_back(std::make_unique<Grouped<E>>(tensors));
    return peers;
}

template Peers torch_peers(const Shape&, const Numbers<half>&);
template Peers torch_peers(const Shape&, const Numbers<bfloat16>&);
template Peers torch_peers(const Shape&, const Numbers<float>&);

} // namespace cellar::bench
