// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attend.hpp>
#include <cellar/attention/attend_residual.hpp>
#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/op_threads.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/view.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/layer_memory.hpp>
#include <cellar/element/element.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/mapping.hpp>
#include <cellar/memory/memory.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>
#include <initializer_list>
#include <iterator>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

// A memory in graphs of ggml: docs/how-to/put-it-under-ggml.md. Either `attend` is an operation of the graph
// (`Attention`), or keys, values and mask are tensors for ggml's own attention (`Tensors`, `PassInputs`).

namespace cellar::ggml {

/// ggml's name of a format; GGML_TYPE_COUNT if it has none.
template <StorageFormat F>
inline constexpr ggml_type type_of = GGML_TYPE_COUNT;
template <>
inline constexpr ggml_type type_of<float> = GGML_TYPE_F32;
template <>
inline constexpr ggml_type type_of<half> = GGML_TYPE_F16;
template <>
inline constexpr ggml_type type_of<bfloat16> = GGML_TYPE_BF16;
template <>
inline constexpr ggml_type type_of<q8_0> = GGML_TYPE_Q8_0;
template <>
inline constexpr ggml_type type_of<q5_1> = GGML_TYPE_Q5_1;
template <>
inline constexpr ggml_type type_of<q5_0> = GGML_TYPE_Q5_0;
template <>
inline constexpr ggml_type type_of<q4_1> = GGML_TYPE_Q4_1;
template <>
inline constexpr ggml_type type_of<q4_0> = GGML_TYPE_Q4_0;
template <>
inline constexpr ggml_type type_of<iq4_nl> = GGML_TYPE_IQ4_NL;

/// A format that ggml has, too, with the same bits.
template <class F>
concept GgmlFormat = StorageFormat<F> && type_of<F>
!= GGML_TYPE_COUNT;

namespace detail {

inline bool in_host_memory(const ggml_tensor& tensor) {
    return tensor.data != nullptr && (tensor.buffer == nullptr || ggml_backend_buffer_is_host(tensor.buffer));
}

inline void expect_type(const char* call, const ggml_tensor& tensor, ggml_type expected) {
    CELLAR_EXPECTS(tensor.type == expected, call, ": the tensor '", tensor.name, "' is of type ",
                   ggml_type_name(tensor.type), ", expected ", ggml_type_name(expected));
}

/// The memory of a contiguous tensor, for a cache.
inline RowsMemory memory_of(const ggml_tensor& tensor, ggml_type expected) {
    expect_type("layer_memory", tensor, expected);
    CELLAR_EXPECTS(in_host_memory(tensor), "layer_memory: the tensor '", tensor.name,
                   "' has no memory of the host, expected a tensor that was allocated there");
    CELLAR_EXPECTS(ggml_is_contiguous(&tensor), "layer_memory: the tensor '", tensor.name,
                   "' has gaps, expected rows that follow one another");
    return {tensor.data, static_cast<std::int64_t>(ggml_nbytes(&tensor)), {}};
}

} // namespace detail

/// The rows of a tensor [dim, heads, tokens] as [tokens, heads, dim], for `put` and `attend`. (ggml names the innermost
/// extent first.) Any strides. Violations: elements of another type, a fourth extent, memory that is not the host's.
template <Element T>
StridedView<const T, 3> rows(const ggml_tensor& tensor, Where where = Where::current()) {
    const cellar::detail::Caller caller{where};
    constexpr std::int64_t bytes = sizeof(T);
    detail::expect_type("rows", tensor, type_of<T>);
    CELLAR_EXPECTS(tensor.ne[3] == 1, "rows: the tensor '", tensor.name, "' has a fourth extent of ", tensor.ne[3],
                   ", expected [dim, heads, tokens]");
    CELLAR_EXPECTS(detail::in_host_memory(tensor), "rows: the tensor '", tensor.name,
                   "' has no memory of the host, expected a tensor that was allocated there");
    StridedView<const T, 3> view{static_cast<const T*>(tensor.data), {}, {}};
    for (int r = 0; r < 3; ++r) {
        const auto stride = static_cast<std::int64_t>(tensor.nb[2 - r]);
        CELLAR_EXPECTS(stride % bytes == 0, "rows: the tensor '", tensor.name, "' has a stride of ", stride,
                       " bytes, expected a multiple of ", bytes);
        view.extents[r] = tensor.ne[2 - r];
        view.strides[r] = stride / bytes;
    }
    return view;
}

/// Memory for a cache in tensors of your own, [kv_heads * dim, cells] each: for its constructor. `values` is null if
/// the layer stores keys alone. The cache sets it to zeros. Violations: elements of other types, gaps between rows,
/// memory that is not the host's.
template <GgmlFormat Key, GgmlFormat Value = Key>
LayerMemory layer_memory(const ggml_tensor& keys, const ggml_tensor* values, Where where = Where::current()) {
    const cellar::detail::Caller caller{where};
    LayerMemory memory{.keys = detail::memory_of(keys, type_of<Key>)};
    if (values != nullptr) memory.values = detail::memory_of(*values, type_of<Value>);
    return memory;
}

/// How long the nodes of an `Attention` have taken, in seconds.
struct AttentionTimes {
    double put = 0;
    double attend = 0;
};

/// Attention over a memory as nodes of graphs, one for each layer: a node puts the keys and values of the batch, and
/// attends, on ggml's threads. There is no mask and no list of cells, so a graph serves every pass of as many tokens.
///
/// - `Pass`: `PassOf<Memory>` of a `Cache`, an `EncoderMemory` or a `Hybrid`, on a backend whose memory the host
///   reaches. Layers are those of the model. With a residual (`WithResidual`), a node attends over both caches.
/// - The nodes run on ggml's CPU backend. ggml's scheduler copies their inputs there, if they are elsewhere.
/// - The nodes point to this object: it outlives the graphs. One computation at a time.
template <MemoryPass Pass>
class Attention {

    struct Layer {
        Attention* owner = nullptr;
        int index = 0;
        AttentionOptions options{};
        OpThreads threads{};
    };

public:
    /// For the layers of a model; see `Memory::layers`.
    explicit Attention(int layers, Where where = Where::current()) : layers_(checked(layers, where)) {
        for (Layer& layer : layers_) {
            layer.owner = this;
            layer.index = static_cast<int>(&layer - layers_.data());
        }
    }
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

    /// How a layer weighs what its tokens see, in all graphs: scale, soft cap, slopes, sinks, `reads_shared_once`. The
    /// slopes and sinks stay where they are. A layer for which this is not called has the options' defaults.
    /// Violation: a log_sum_exp, which is no property of a layer.
    void set_options(int layer, const AttentionOptions& options, Where where = Where::current()) {
        CELLAR_EXPECTS_AT(where, options.log_sum_exp.pointer == nullptr,
                          "set_options: a log_sum_exp, expected options of a layer alone");
        of(layer, "set_options", where).options = options;
    }

    /// A node that puts k [key_dim, kv_heads, tokens] and v [value_dim, kv_heads, tokens] of a layer, and attends for
    /// q [key_dim, heads, tokens]. Its result is [value_dim, heads, tokens], contiguous. All are F32, q and k rotated
    /// where the model has rotary positions, but k not for a cache with `RotateOnRead`; views with any strides.
    ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v,
                        Where where = Where::current()) {
        CELLAR_EXPECTS_AT(where, k != nullptr && v != nullptr,
                          "attend: no keys or no values, expected both, or the value_dim of the results");
        return node(context, layer, {q, k, v}, v->ne[0], where);
    }

    /// The same for a layer that stores keys alone (MLA): the values are their first `value_dim` elements. With k null,
    /// for a layer that stores nothing itself: it reads the memory of another layer, or an encoder's inputs.
    ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q, ggml_tensor* k, std::int64_t value_dim,
                        Where where = Where::current()) {
        if (k == nullptr) return node(context, layer, {q}, value_dim, where);
        return node(context, layer, {q, k}, value_dim, where);
    }

    /// Computes a graph with such nodes over the open pass. The pass stays open: commit it if the status is
    /// GGML_STATUS_SUCCESS, and drop it otherwise. An exception of `put` or `attend`, or of the handler of a violation,
    /// leaves `compute` when the computation has ended; no later layer was put then, and its results are zeros.
    /// Allocates nothing in a steady state.
    ggml_status compute(Pass& pass, ggml_backend_t backend, ggml_cgraph* graph, Where where = Where::current()) {
        return compute(
            pass, [&] { return ggml_backend_graph_compute(backend, graph); }, where);
    }

    /// The same with a function that computes the graph, for example by a scheduler, and returns its ggml_status.
    template <std::invocable F>
    ggml_status compute(Pass& pass, F&& compute_graph, Where where = Where::current()) {
        const cellar::detail::Caller caller{where};
        CELLAR_EXPECTS(pass_ == nullptr, "compute: another computation is under way, expected one at a time");
        for (Layer& layer : layers_) layer.threads.reset();
        thrown_ = nullptr;
        const Computation computation{pass_, pass};
        const ggml_status status = std::forward<F>(compute_graph)();
        if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
        return status;
    }

    /// Since this object was made, on ggml's first thread.
    AttentionTimes times() const { return times_; }

private:
    using Clock = std::chrono::steady_clock;

    /// Lets the nodes find the pass as long as it lives.
    struct Computation {
        Computation(Pass*& the_place, Pass& pass) : place{the_place} { place = &pass; }
        ~Computation() { place = nullptr; }
        Computation(const Computation&) = delete;
        Computation& operator=(const Computation&) = delete;
        Pass*& place;
    };

    static std::size_t checked(int layers, Where where) {
        CELLAR_EXPECTS_AT(where, layers > 0, "Attention: ", layers, " layers, expected at least 1");
        return static_cast<std::size_t>(layers);
    }

    Layer& of(int layer, const char* call, Where where) {
        CELLAR_EXPECTS_AT(where, layer >= 0 && layer < std::ssize(layers_), call, ": layer ", layer, ", expected 0 to ",
                          std::ssize(layers_) - 1);
        return layers_[static_cast<std::size_t>(layer)];
    }

    ggml_tensor* node(ggml_context* context, int layer, std::initializer_list<ggml_tensor*> sources,
                      std::int64_t value_dim, Where where) {
        const cellar::detail::Caller caller{where};
        Layer& own = of(layer, "attend", where);
        std::vector<ggml_tensor*> arguments{sources};
        for (const ggml_tensor* tensor : arguments) {
            CELLAR_EXPECTS(tensor != nullptr, "attend: null queries in layer ", layer, ", expected a tensor");
            detail::expect_type("attend", *tensor, GGML_TYPE_F32);
        }
        const ggml_tensor& q = *arguments[0];
        return ggml_custom_4d(context, GGML_TYPE_F32, value_dim, q.ne[1], q.ne[2], 1, arguments.data(),
                              static_cast<int>(arguments.size()), &run, GGML_N_TASKS_MAX, &own);
    }

    // Called by each of ggml's threads, from C: nothing may be thrown.
    static void run(ggml_tensor* node, int ith, int nth, void* userdata) noexcept {
        Layer& layer = *static_cast<Layer*>(userdata);
        layer.threads.op(ith, nth, [&](const OpThreads& threads) { layer.owner->work(layer, *node, threads); });
    }

    // On the first thread. What it throws waits for the end of the computation.
    void work(const Layer& layer, ggml_tensor& node, const OpThreads& threads) noexcept {
        CELLAR_EXPECTS(pass_ != nullptr, "attend: a graph was computed without a pass, expected Attention::compute");
        if (thrown_ == nullptr) {
            try {
                const auto work_in = [&](auto& own, int index) { put_and_attend(own, index, layer, node, threads); };
                return pass_->visit(layer.index, work_in);
            } catch (...) {
                thrown_ = std::current_exception();
            }
        }
        std::memset(node.data, 0, ggml_nbytes(&node)); // later nodes read it
    }

    template <class Own>
    void put_and_attend(Own& own, int index, const Layer& layer, ggml_tensor& node, const OpThreads& threads) {
        constexpr bool has_cells = cellar::detail::attended_pass<Own> || cellar::detail::pass_with_residual<Own>;
        constexpr bool stores = requires {
            own.mark_put(index);
        };
        CELLAR_EXPECTS(has_cells, "attend: layer ", layer.index, " has no keys and values, expected one of attention");
        if constexpr (has_cells) {
            const auto begin = Clock::now();
            const ggml_tensor* const k = node.src[1];
            const ggml_tensor* const v = node.src[2];
            CELLAR_EXPECTS(stores || k == nullptr, "attend: layer ", layer.index,
                           " only reads an encoder's inputs, expected no keys");
            if constexpr (stores) {
                const StridedView<const float, 3> no_values{};
                if (k != nullptr) own.put(index, rows<float>(*k), v == nullptr ? no_values : rows<float>(*v));
            }
            const auto was_put = Clock::now();
            const auto out = contiguous_view(static_cast<float*>(node.data), node.ne[2], node.ne[1], node.ne[0]);
            cellar::attend(own, index, rows<float>(*node.src[0]), out, layer.options, threads);
            times_.put += std::chrono::duration<double>(was_put - begin).count();
            times_.attend += std::chrono::duration<double>(Clock::now() - was_put).count();
        }
    }

    std::vector<Layer> layers_; // whose addresses nodes have
    Pass* pass_ = nullptr;      // while a graph is computed
    std::exception_ptr thrown_;
    AttentionTimes times_{};
};

/// The keys and values of a cache as tensors [kv_heads * dim, cells], over the cache's memory, which must outlive them:
/// what a graph with ggml's own attention writes and reads. For caches in formats that ggml has, too, in rows
/// [cells, heads, dim] (`StandardV`), in memory of the host.
class Tensors {
public:
    /// Violations: a cache that may grow (`CacheLimits::initial_cells`), because its memory moves then; one with
    /// `CacheShape::factors`, because ggml's kernels do not multiply by them; memory of a program's own that is not
    /// aligned to 32 bytes. Throws `std::bad_alloc`.
    template <class Cache>
    explicit Tensors(Cache& cache, Where where = Where::current())
        : shape_{cache.shape()}, context_{ggml_init({context_bytes(shape_), nullptr, true})} {
        using Layout = typename Cache::layout_type;
        using Key = typename Layout::key_format;
        using Value = typename Layout::value_format;
        constexpr bool in_rows =
            std::is_same_v<typename Layout::key_mapping,
                           CellsHeadsDims> && std::is_same_v<typename Layout::value_mapping, CellsHeadsDims>;
        static_assert(GgmlFormat<Key> && GgmlFormat<Value> && in_rows,
                      "Tensors: expected a cache of formats that ggml has, too, in rows [cells, heads, dim], as "
                      "StandardV");
        static_assert(
            !requires { requires Cache::shift_type::rotates_on_read; },
            "Tensors: ggml's attention reads keys as they are stored, and this cache stores them without "
            "positions (RotateOnRead), expected another shift; or Attention, whose attend rotates them");
        static_assert(Cache::backend_type::host_reaches, "Tensors: the host cannot read the memory of this backend");
        const cellar::detail::Caller caller{where};
        if (context_ == nullptr) throw std::bad_alloc{};
        CELLAR_EXPECTS(cache.statistics().allocated == cache.cells(), "Tensors: ", cache.statistics().allocated, " of ",
                       cache.cells(), " cells have memory, expected all: no initial_cells");
        CELLAR_EXPECTS(shape_.factors.empty(),
                       "Tensors: the cache has factors of channels, expected none: ggml does not multiply by them");
        for (int layer = 0; layer < shape_.layers; ++layer) {
            if (shape_[layer].shares_layer >= 0) continue;
            const auto rows = cache.rows(layer);
            layers_.push_back(
                {layer, tensor<Key>("keys", layer, rows.keys), tensor<Value>("values", layer, rows.values)});
        }
    }

    /// The keys of a layer. Layers that share memory have one tensor.
    ggml_tensor* keys(int layer) const { return of(layer).keys; }
    /// The values of a layer; null if it stores keys alone.
    ggml_tensor* values(int layer) const { return of(layer).values; }

    /// The shape of the cache.
    const CacheShape& shape() const { return shape_; }

    /// After a computation that wrote the keys and values of all layers, in place of `put`.
    template <class Pass>
    void mark_put(Pass& pass, Where where = Where::current()) const {
        for (const Layer& layer : layers_) pass.mark_put(layer.index, where);
    }

private:
    struct Layer {
        int index;
        ggml_tensor* keys;
        ggml_tensor* values;
    };

    static std::size_t context_bytes(const CacheShape& shape) {
        return 2 * static_cast<std::size_t>(shape.layers) * ggml_tensor_overhead();
    }

    template <class Format, class T>
    ggml_tensor* tensor(const char* name, int layer, const StridedView<T, 3>& rows) {
        if (rows.size() == 0) return nullptr;
        auto* const first = const_cast<std::remove_const_t<T>*>(rows.pointer);
        constexpr std::uintptr_t alignment = 32; // ggml's for memory of the host
        CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(first) % alignment == 0, "Tensors: the ", name, " of layer ",
                       layer, " are not aligned, expected an address that is a multiple of ", alignment);
        const std::int64_t row = rows.extent(1) * rows.extent(2) * cellar::detail::values_per_unit<Format>;
        ggml_tensor* const made = ggml_new_tensor_2d(context_.get(), type_of<Format>, row, rows.extent(0));
        ggml_backend_buffer_ptr buffer{ggml_backend_cpu_buffer_from_ptr(first, ggml_nbytes(made))};
        if (buffer == nullptr || ggml_backend_tensor_alloc(buffer.get(), made, first) != GGML_STATUS_SUCCESS)
            throw std::bad_alloc{};
        buffers_.push_back(std::move(buffer));
        ggml_format_name(made, "%s of layer %d", name, layer);
        return made;
    }

    const Layer& of(int layer) const {
        const int owner = shape_[layer].shares_layer < 0 ? layer : shape_[layer].shares_layer;
        const auto is_owner = [&](const Layer& each) { return each.index == owner; };
        return *std::find_if(layers_.begin(), layers_.end(), is_owner);
    }

    CacheShape shape_;
    ggml_context_ptr context_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::vector<Layer> layers_; // those with memory of their own
};

/// How a layer weighs scores in ggml's attention.
struct FlashOptions {
    float scale = 0;              ///< 0: 1 / sqrt(key_dim)
    float soft_cap = 0;           ///< as in Gemma 2; 0: none
    ggml_tensor* sinks = nullptr; ///< learned, F32 [heads], as in gpt-oss
};

/// The inputs of a graph with ggml's own attention over a memory: which cells the batch's tokens have, and what they
/// see. The same for all layers of one cache; a hybrid needs one for each member (`HybridPass::of`).
///
/// A graph serves every pass of as many tokens with the same history (`fits`). `CacheLimits::padding` of 256, as ggml's
/// kernels want it, and `start_padding` of 0 let it change with every 256th cell alone.
class PassInputs {
public:
    /// Makes the inputs in a context of the graph, for passes like this one.
    template <class Pass>
    PassInputs(ggml_context* context, const Pass& pass)
        : tokens_{pass.tokens()},
          history_{pass.history()},
          cells_{ggml_new_tensor_1d(context, GGML_TYPE_I64, tokens_)},
          mask_{ggml_new_tensor_2d(context, GGML_TYPE_F16, history_.count, tokens_)} {
        for (ggml_tensor* const input : {cells_, mask_}) ggml_set_input(input);
        ggml_set_name(cells_, "cells");
        ggml_set_name(mask_, "mask");
    }

    /// Cells of the tokens, I64 [tokens], for `ggml_set_rows`.
    ggml_tensor* cells() const { return cells_; }
    /// 0 where visible, else -infinity: F16 [history, tokens].
    ggml_tensor* mask() const { return mask_; }

    /// True if the graph serves this pass. Otherwise make another one.
    template <class Pass>
    bool fits(const Pass& pass) const {
        return pass.tokens() == tokens_ && pass.history() == history_;
    }

    /// Writes the inputs, after they were allocated, and before every computation: ggml may use their memory for other
    /// tensors during one. In place, if the host reaches their memory. O(tokens * history).
    template <class Pass>
    void set(Pass& pass, Where where = Where::current()) const {
        const cellar::detail::Caller caller{where};
        CELLAR_EXPECTS(fits(pass), "set: a pass of ", pass.tokens(), " tokens with ", pass.history().count,
                       " cells from ", pass.history().first, " on, expected ", tokens_, " with ", history_.count,
                       " from ", history_.first, " on, as the graph was made for");
        // Where no layer stores keys, as those that read an encoder's inputs, no node uses the cells.
        if constexpr (requires { pass.copy_cells(std::span<std::int64_t>{}); }) {
            const auto copy = [&](void* to) {
                pass.copy_cells(std::span{static_cast<std::int64_t*>(to), static_cast<std::size_t>(tokens_)});
            };
            if (cells_->data != nullptr) write(cells_, copy);
        }
        write(mask_,
              [&](void* to) { pass.mask_into(contiguous_view(static_cast<half*>(to), tokens_, history_.count)); });
    }

    /// Nodes that write the batch's keys and values to their cells, and attend: as `Attention::attend`, with k and v
    /// null for a layer that stores nothing itself. If a layer stores keys alone, v is the part of them that the values
    /// are. Reads follow writes only by the order of the graph, so the writes are added to it here. The result is
    /// [value_dim * heads, tokens].
    ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, const Tensors& tensors, int layer, ggml_tensor* q,
                        ggml_tensor* k, ggml_tensor* v, const FlashOptions& options = {},
                        Where where = Where::current()) const {
        const cellar::detail::Caller caller{where};
        const LayerShape shape = tensors.shape()[layer];
        ggml_tensor* const keys = tensors.keys(layer);
        ggml_tensor* values = tensors.values(layer);
        if (k != nullptr) put(context, graph, keys, k);
        if (v != nullptr && values != nullptr) put(context, graph, values, v);
        std::int64_t value_dim = shape.value_dim;
        if (values == nullptr) { // MLA: the first elements of the keys
            CELLAR_EXPECTS(v != nullptr, "attend: layer ", layer,
                           " stores keys alone and there are no values, expected the part of the keys that they are");
            values = keys;
            value_dim = v->ne[0];
        }
        const float scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<float>(shape.key_dim));
        ggml_tensor* const out = ggml_flash_attn_ext(
            context, ggml_permute(context, q, 0, 2, 1, 3), history(context, keys, shape.key_dim, shape.kv_heads),
            history(context, values, value_dim, shape.kv_heads), mask_, scale, 0, options.soft_cap);
        ggml_flash_attn_ext_add_sinks(out, options.sinks);
        ggml_prec_set_acc(out, GGML_PREC_F32);
        return ggml_reshape_2d(context, out, out->ne[0] * out->ne[1], out->ne[2]);
    }

private:
    template <class F>
    static void write(ggml_tensor* to, F fill) {
        CELLAR_EXPECTS(to->data != nullptr, "set: the tensor '", to->name,
                       "' has no memory, expected a graph that was allocated");
        if (detail::in_host_memory(*to)) return fill(to->data);
        std::vector<std::int64_t> copy((ggml_nbytes(to) + 7) / 8);
        fill(copy.data());
        ggml_backend_tensor_set(to, copy.data(), 0, ggml_nbytes(to));
    }

    void put(ggml_context* context, ggml_cgraph* graph, ggml_tensor* stored, ggml_tensor* given) const {
        CELLAR_EXPECTS(given->ne[0] * given->ne[1] == stored->ne[0] && given->ne[2] == tokens_, "attend: '",
                       given->name, "' is [", given->ne[0], ", ", given->ne[1], ", ", given->ne[2],
                       "], expected rows of ", stored->ne[0], " elements in ", tokens_, " tokens, as '", stored->name,
                       "' has");
        const bool has_rows =
            given->nb[0] == ggml_type_size(given->type) && given->nb[1] == ggml_row_size(given->type, given->ne[0]);
        if (!has_rows) given = ggml_cont(context, given);
        ggml_tensor* const rows = ggml_view_2d(context, given, stored->ne[0], tokens_, given->nb[2], 0);
        ggml_build_forward_expand(graph, ggml_set_rows(context, stored, rows, cells_));
    }

    // [dim, cells of the history, heads]
    ggml_tensor* history(ggml_context* context, ggml_tensor* stored, std::int64_t dim, int heads) const {
        const std::size_t head = stored->nb[1] / static_cast<std::size_t>(heads);
        const std::size_t offset = static_cast<std::size_t>(history_.first) * stored->nb[1];
        return ggml_view_3d(context, stored, dim, history_.count, heads, stored->nb[1], head, offset);
    }

    std::int32_t tokens_;
    CellRange history_;
    ggml_tensor* cells_;
    ggml_tensor* mask_;
};

} // namespace cellar::ggml
