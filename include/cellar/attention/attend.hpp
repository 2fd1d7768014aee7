// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attention_options.hpp>
#include <cellar/attention/detail/attend_on_device.hpp>
#include <cellar/attention/detail/attend_on_host.hpp>
#include <cellar/attention/detail/attend_plainly.hpp>
#include <cellar/attention/detail/attention_call.hpp>
#include <cellar/attention/detail/attention_source.hpp>
#include <cellar/attention/detail/encoded_rows.hpp>
#include <cellar/attention/detail/rotated_rows.hpp>
#include <cellar/attention/detail/tile_kernels.hpp>
#include <cellar/attention/detail/unpacked_rows.hpp>
#include <cellar/backend/backend.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/layout/layer_shape.hpp>
#include <cellar/layout/stored_units.hpp>

#include <cstdint>
#include <iterator>
#include <type_traits>

namespace cellar {

namespace detail {

/// False for a Kokkos View of memory that the backend cannot reach.
template <class Backend, class Rows>
constexpr bool reaches_rows() {
    if constexpr (requires { Backend::template reaches<typename Rows::memory_space>; }) {
        return Backend::template reaches<typename Rows::memory_space>;
    } else {
        return true;
    }
}

/// Stands for a thread's work where a concept asks whether it can be called.
struct AnyThreadWork {
    void operator()(int) const {}
};

// clang-format off
template <class R>
concept attention_rows_given = strided<R> || requires(const R& rows) { std::data(rows); std::size(rows); };
// What `run` promises is at CallingThread.
template <class T>
concept attention_threads = requires(const T& threads) { threads.count() > 0; threads.run(AnyThreadWork{}); };
// clang-format on

/// Words for results that would be gone at the end of the line.
template <class Out>
constexpr bool expect_kept() {
    constexpr bool is_kept = std::is_lvalue_reference_v<Out> || !requires {
        typename std::remove_cvref_t<Out>::allocator_type;
    };
    static_assert(is_kept, "attend: the results go to a temporary container, expected one with a name");
    return is_kept;
}

/// Words for arguments of other types.
template <class Pass, class Queries, class Out, class Threads>
constexpr bool expect_types() {
    constexpr bool is_pass = attended_pass<Pass>;
    constexpr bool are_rows = attention_rows_given<Queries> && attention_rows_given<std::remove_cvref_t<Out>>;
    constexpr bool are_threads = attention_threads<Threads>;
    static_assert(is_pass,
                  "attend: expected the pass of a Cache or an EncoderMemory; a Result has it as its value, and "
                  "the pass of a hybrid gives it to what it visits, and one of WithResidual needs "
                  "<cellar/attention/attend_residual.hpp>");
    static_assert(are_rows, "attend: expected queries and results as views with strides or as contiguous ranges; for a "
                            "pointer, write contiguous_view(pointer, tokens, heads, dim)");
    static_assert(are_threads, "attend: expected threads with the functions of CallingThread, count() and run(f)");
    return is_pass && are_rows && are_threads && expect_kept<Out>();
}

/// The arguments of `attend` as views. They fit together.
template <class Q, class Out>
struct CheckedAttention {
    StridedView<Q, 3> q;
    StridedView<Out, 3> out;
    AttentionShape shape;
};

/// A violation if the arguments of `attend` do not fit together.
template <class Queries, class Out>
auto checked_call(const LayerShape& layer, std::int32_t tokens, const Queries& queries, Out&& results,
                  const AttentionOptions& options) {
    const auto q = attention_rows("queries", queries, tokens, layer.key_dim);
    const std::int64_t row = std::int64_t{tokens} * q.extent(1);
    const auto out = attention_rows("results", results, tokens, value_dim_of(layer, results, row));
    const AttentionShape shape = checked_attention(layer, tokens, q, out, options);
    return CheckedAttention<typename decltype(q)::element_type, typename decltype(out)::element_type>{q, out, shape};
}

/// The first elements of the rows of a store.
template <bool OnDevice, class Store>
auto stored_rows(const Store& store, std::int64_t dim) {
    const auto elements = static_cast<std::int32_t>(dim);
    if constexpr (encoded_store<Store> && OnDevice) {
        using Units = StoredUnits<typename Store::Format, typename Store::Mapping>;
        Units units{store.mapping(), store.data(), nullptr};
        if constexpr (has_scale_plane<typename Store::Format>) units.scale_data = store.scales().data();
        return units;
    } else if constexpr (encoded_store<Store>) {
        return EncodedRows<Store>{{store.mapping().heads()}, &store, elements};
    } else {
        using Mapping = std::remove_cvref_t<decltype(store.mapping())>;
        using E = std::remove_cvref_t<decltype(*store.data())>;
        return StoredRows<Mapping, E>{store.mapping(), store.data(), elements};
    }
}

/// The keys of a layer: those of the store, or rotated as they are read.
template <bool OnDevice, class Source>
auto keys_to_read(const Source& source, int layer, std::int64_t dim, bool exact_queries) {
    auto rows = stored_rows<OnDevice>(source.keys(layer), dim);
    if constexpr (requires { rows.exact_queries; }) rows.exact_queries = exact_queries;
    if constexpr (requires { source.angles(layer); }) {
        static_assert(!OnDevice, "attend: a device does not rotate keys as it reads them (RotateOnRead), expected a "
                                 "backend of the host, or keys that are rotated before put (RopeShift)");
        return RotatedRows<decltype(rows)>{rows, &source.angles(layer)};
    } else {
        return rows;
    }
}

/// `attend` over what a source says that tokens see. `prior`: only for a backend that `MergesAttention`.
template <AttentionSource Source, class Queries, class Out, class Threads>
void attend_to(Source source, Instructions instructions, int layer, const Queries& queries, Out&& results,
               const AttentionOptions& options, const Threads& threads, const PriorResults& prior = {}) {
    using Backend = typename Source::Backend;
    constexpr bool on_device = ComputesAttention<Backend>;
    static_assert(on_device || Backend::host_reaches,
                  "attend: the host cannot read the memory of this backend, which does not compute attention itself");
    static_assert(reaches_rows<Backend, Queries>() && reaches_rows<Backend, std::remove_cvref_t<Out>>(),
                  "attend: the backend cannot reach the memory space of the queries or results");
    const LayerShape& shape = source.shape(layer);
    const auto given = checked_call(shape, source.tokens(), queries, results, options);
    const auto call = [&](const auto& keys, const auto& values) {
        using Number = std::conditional_t<IsReference<Backend>, double, float>;
        using Q = std::remove_const_t<typename decltype(given.q)::element_type>;
        using Result = typename decltype(given.out)::element_type;
        using Keys = std::remove_cvref_t<decltype(keys)>;
        using Values = std::remove_cvref_t<decltype(values)>;
        const AttentionWork<Keys, Values, Q, Result, Number> work{given.shape,
                                                                  score_rule<Number>(options, given.shape.key_dim),
                                                                  {nullptr, nullptr, 0},
                                                                  keys,
                                                                  values,
                                                                  given.q,
                                                                  given.out,
                                                                  options.log_sum_exp,
                                                                  source.factors(layer),
                                                                  prior};
        if constexpr (on_device) {
            attend_on_device(source, work);
        } else {
            if (source.is_reserved()) return clear_results(work);
            source.backend().fence(); // the layer's put
            if constexpr (IsReference<Backend>) {
                attend_plainly(source, work);
            } else {
                attend_on_host(source, work, options.reads_shared_once, threads, instructions);
            }
        }
    };
    const auto keys = keys_to_read<on_device>(source, layer, given.shape.key_dim, options.exact_queries);
    if (shape.value_dim == 0) return call(keys, stored_rows<on_device>(source.keys(layer), given.shape.value_dim));
    call(keys, stored_rows<on_device>(source.values(layer), given.shape.value_dim));
}

/// `attend` with instructions of choice, for tests.
template <class Pass, class Queries, class Out, class Threads>
void attend_with(Instructions instructions, Pass& pass, int layer, const Queries& queries, Out&& results,
                 const AttentionOptions& options, const Threads& threads) {
    attend_to(pass.attention_source("attend", layer), instructions, layer, queries, results, options, threads);
}

} // namespace detail

/// Attention of one layer, straight over the cells of a pass: for each token and query head, the softmax of its scores
/// over the cells that the token sees, times their values. Nothing is gathered, no mask is written, and cells that no
/// token sees are not read.
///
/// - `pass`: of a `Cache` or an `EncoderMemory`; the layer was put.
/// - `q` [tokens, heads, key_dim]: a view with any strides, or a contiguous range. Of float, half or bfloat16. Query
///   head h reads head h / (heads / kv_heads) of keys and values.
/// - `out` [tokens, heads, value_dim]: likewise. Must not overlap `q`. If the layer stores keys alone (MLA), values are
///   the first elements of the keys, as many as `out` has.
/// - `threads`: an object like `CallingThread`, which says what `run` must do. A device does not use it.
///
/// A `KokkosBackend` on a device enqueues the work: `q`, `out` and `options.log_sum_exp` are in memory that it reaches,
/// and must not change until the work is done. The other options are in memory of the host, and may change once the
/// call returned.
///
/// Violations: arguments that do not fit the pass or the layer; a layer that was not put; numbers in the options that
/// are infinite or NaN, except a sink of -infinity.
///
/// Computes in float; with `EigenBackend`, the reference, in double. A token that sees nothing gets zeros; so do tokens
/// of a reserved pass. NaN and infinity in cells that a token does not see do not reach its results. The results depend
/// neither on where tokens lie nor on the number of threads; with `reads_shared_once` their last bits depend on which
/// sequences share cells. Their last bits also depend on whether the compiler makes one instruction of a product and a
/// sum, as g++ does from -O2 on.
///
/// Cost: reads keys and values of what a sequence sees once for each 128 queries of a head, on a device for each 32 or
/// fewer. Allocates if it needs more memory than any call of this memory before. On a device, it waits then, and where
/// a copy finds no room in the staging memory (docs/kokkos.md). Uses the processor's vector instructions (AVX-512 or
/// AVX2 on x86-64, NEON on 64-bit ARM) and matrix unit (AMX, under Linux), found at run time, whatever the compiler's
/// flags. Linux is asked for permission to use AMX: docs/how-to/compute-attention.md.
template <class Pass, class Queries, class Out, class Threads = CallingThread>
void attend(Pass& pass, int layer, const Queries& q, Out&& out, const AttentionOptions& options = {},
            const Threads& threads = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    if constexpr (detail::expect_types<Pass, Queries, Out&&, Threads>()) {
        CELLAR_EXPECTS(threads.count() > 0, "attend: ", threads.count(), " threads, expected at least 1");
        detail::attend_with(detail::best_instructions(), pass, layer, q, out, options, threads);
    }
}

} // namespace cellar
