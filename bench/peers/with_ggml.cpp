// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "peer.hpp"
#include <cellar/format/blocks.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <limits>
#include <type_traits>

/// `ggml_flash_attn_ext` on the processor.
namespace cellar::bench {
namespace {

/// Where the rows of a head are.
enum class Rows {
    by_token, ///< as llama.cpp keeps them: a token's heads together, [length, kv_heads, dim]
    by_head,  ///< a head's rows together, [kv_heads, length, dim]
};

template <class T>
T* expect_made(T* made, const char* what) {
    if (made != nullptr) return made;
    std::fprintf(stderr, "cellar_bench_peers: ggml could not make %s\n", what);
    std::exit(1);
}

template <class Format>
constexpr ggml_type type = std::is_same_v<Format, half>       ? GGML_TYPE_F16
                           : std::is_same_v<Format, bfloat16> ? GGML_TYPE_BF16
                           : std::is_same_v<Format, q8_0>     ? GGML_TYPE_Q8_0
                           : std::is_same_v<Format, q4_0>     ? GGML_TYPE_Q4_0
                                                              : GGML_TYPE_F32;

template <class Format, class E>
class Ggml final : public Peer {
public:
    Ggml(const Shape& shape, const Numbers<E>& numbers, Rows rows) : shape_{shape}, rows_{rows} {
        static const bool loaded = (ggml_backend_load_all(), true);
        static_cast<void>(loaded);
        backend_.reset(expect_made(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr), "a backend"));
        set_threads();
        const std::size_t tensors = 16 * static_cast<std::size_t>(shape.layers) + 16;
        context_.reset(expect_made(
            ggml_init({.mem_size = tensors * ggml_tensor_overhead()
                                   + static_cast<std::size_t>(shape.layers) * ggml_graph_overhead_custom(16, false),
                       .mem_buffer = nullptr,
                       .no_alloc = true}),
            "a context"));
        ggml_context* const c = context_.get();
        q_ = ggml_new_tensor_3d(c, GGML_TYPE_F32, dim, query_heads, shape.tokens);
        mask_ = ggml_new_tensor_2d(c, GGML_TYPE_F16, shape.length, shape.tokens);
        for (int layer = 0; layer < shape.layers; ++layer) add_layer();
        buffer_.reset(expect_made(ggml_backend_alloc_ctx_tensors(c, backend_.get()), "its tensors"));
        ggml_backend_tensor_set(q_, numbers.queries().data(), 0, ggml_nbytes(q_));
        write_mask();
        for (int layer = 0; layer < shape.layers; ++layer) write_layer(layer, numbers);
    }

    std::string name() const override { return rows_ == Rows::by_token ? "ggml" : "ggml_heads"; }

    void attend(int layer) override {
        last_ = &layers_[static_cast<std::size_t>(layer)];
        if (ggml_backend_graph_compute(backend_.get(), last_->graph) != GGML_STATUS_SUCCESS) std::abort();
    }

    std::vector<float> result() const override {
        std::vector<float> out(static_cast<std::size_t>(ggml_nelements(last_->out)));
        ggml_backend_tensor_get(last_->out, out.data(), 0, ggml_nbytes(last_->out));
        return out;
    }

private:
    struct Layer {
        ggml_tensor* keys;
        ggml_tensor* values;
        ggml_tensor* out; // [tokens, query_heads, dim]
        ggml_cgraph* graph;
    };

    void set_threads() {
        ggml_backend_reg_t const reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_.get()));
        const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
            ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"));
        expect_made(set, "threads");
        set(backend_.get(), shape_.threads);
    }

    void add_layer() {
        ggml_context* const c = context_.get();
        Layer layer{};
        layer.keys = ggml_new_tensor_1d(c, type<Format>, Numbers<E>::row * shape_.length);
        layer.values = ggml_new_tensor_1d(c, type<Format>, Numbers<E>::row * shape_.length);
        ggml_tensor* const q = ggml_permute(c, q_, 0, 2, 1, 3); // [dim, tokens, heads]
        layer.out =
            ggml_flash_attn_ext(c, q, heads_of(layer.keys), heads_of(layer.values), mask_, attention_scale, 0, 0);
        ggml_prec_set(layer.out);
        layer.graph = ggml_new_graph_custom(c, 16, false);
        ggml_build_forward_expand(layer.graph, layer.out);
        layers_.push_back(layer);
    }

    // As llama.cpp asks for it; the older name is still there.
    static void ggml_prec_set(ggml_tensor* out) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
#pragma GCC diagnostic pop
    }

    // A view [dim, length, kv_heads].
    ggml_tensor* heads_of(ggml_tensor* all) const {
        const std::size_t of_row = ggml_row_size(type<Format>, dim);
        const bool by_token = rows_ == Rows::by_token;
        const std::size_t of_token = by_token ? of_row * kv_heads : of_row;
        const std::size_t of_head = by_token ? of_row : of_row * static_cast<std::size_t>(shape_.length);
        return ggml_view_3d(context_.get(), all, dim, shape_.length, kv_heads, of_token, of_head, 0);
    }

    void write_mask() const {
        std::vector<ggml_fp16_t> mask(static_cast<std::size_t>(ggml_nelements(mask_)));
        std::size_t at = 0;
        for (std::int32_t token = 0; token < shape_.tokens; ++token)
            for (std::int32_t cell = 0; cell < shape_.length; ++cell)
                mask[at++] =
                    ggml_fp32_to_fp16(cell <= shape_.before() + token ? 0.0F : -std::numeric_limits<float>::infinity());
        ggml_backend_tensor_set(mask_, mask.data(), 0, ggml_nbytes(mask_));
    }

    void write_layer(int layer, const Numbers<E>& numbers) const {
        const Layer& to = layers_[static_cast<std::size_t>(layer)];
        std::vector<E> keys(static_cast<std::size_t>(Numbers<E>::row * shape_.length));
        std::vector<E> values(keys.size());
        for (std::int32_t token = 0; token < shape_.length; ++token)
            for (int head = 0; head < kv_heads; ++head) {
                const std::int64_t nth = rows_ == Rows::by_token ? std::int64_t{token} * kv_heads + head
                                                                 : std::int64_t{head} * shape_.length + token;
                std::memcpy(keys.data() + nth * dim, numbers.key(layer, token) + head * dim, dim * sizeof(E));
                std::memcpy(values.data() + nth * dim, numbers.value(layer, token) + head * dim, dim * sizeof(E));
            }
        write(to.keys, keys);
        write(to.values, values);
    }

    void write(ggml_tensor* to, const std::vector<E>& elements) const {
        if constexpr (std::is_same_v<Format, E>) {
            ggml_backend_tensor_set(to, elements.data(), 0, ggml_nbytes(to));
        } else {
            std::vector<char> units(ggml_nbytes(to));
            ggml_quantize_chunk(type<Format>, elements.data(), units.data(), 0,
                                static_cast<std::int64_t>(elements.size()) / dim, dim, nullptr);
            ggml_backend_tensor_set(to, units.data(), 0, units.size());
        }
    }

    Shape shape_;
    Rows rows_;
    ggml_backend_ptr backend_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor* q_ = nullptr;
    ggml_tensor* mask_ = nullptr;
    std::vector<Layer> layers_;
    const Layer* last_ = nullptr;
};

} // namespace

template <class Format, class E>
Peers ggml_peers(const Shape& shape, const Numbers<E>& numbers) {
    Peers peers;
    peers.push_back(std::make_unique<Ggml<Format, E>>(shape, numbers, Rows::by_token));
    peers.push_back(std::make_unique<Ggml<Format, E>>(shape, numbers, Rows::by_head));
    return peers;
}

template Peers ggml_peers<half>(const Shape&, const Numbers<half>&);
template Peers ggml_peers<bfloat16>(const Shape&, const Numbers<bfloat16>&);
template Peers ggml_peers<float>(const Shape&, const Numbers<float>&);
template Peers ggml_peers<q8_0>(const Shape&, const Numbers<float>&);
template Peers ggml_peers<q4_0>(const Shape&, const Numbers<float>&);

} // namespace cellar::bench
