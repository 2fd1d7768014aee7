// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cellar {

/// The type of a memory's pass: the value of what `begin` returns.
template <class M>
using PassOf = std::remove_cvref_t<decltype(*std::declval<M&>().begin(std::declval<const Batch&>()))>;

namespace detail {

/// Stands for a layer's work where a concept asks whether it can be called.
struct AnyLayerWork {
    template <class Pass>
    void operator()(Pass&, int) const {}
};

template <class P>
concept has_tokens = requires(const P& pass) {
    { pass.tokens() } -> std::same_as<std::int32_t>;
};
template <class P>
concept has_visit = requires(P& pass, int layer) {
    pass.visit(layer, AnyLayerWork{});
};
template <class P>
concept has_commit = requires(P& pass) {
    pass.commit();
};
template <class P>
concept has_drop = requires(P& pass) {
    pass.drop();
};

} // namespace detail

/// One forward pass over a batch: move-only, and dropped by its destructor unless it was committed.
///
/// - `tokens()`: the tokens of the batch.
/// - `visit(layer, f)`: calls f(pass, i) with the pass of the memory that has this layer of the model, and the layer's
///   index there.
/// - `commit()`: keeps the batch's tokens. `drop()`: undoes the pass.
// clang-format off
template <class P>
concept MemoryPass =
    std::move_constructible<P> && !std::copyable<P>
    && detail::has_tokens<P> && detail::has_visit<P> && detail::has_commit<P> && detail::has_drop<P>;
// clang-format on

namespace detail {

template <class M>
concept has_begin = requires(M& m, const Batch& batch) {
    { m.begin(batch) } -> std::same_as<Result<PassOf<M>>>;
};
template <class M>
concept has_reserve = requires(M& m, std::int32_t tokens) {
    { m.reserve(tokens) } -> std::same_as<PassOf<M>>;
};
template <class M>
concept has_copy_prefix = requires(M& m, Sequence from, Sequence to, Position end) {
    { m.copy_prefix(from, to, end) } -> std::same_as<Result<void>>;
};
template <class M>
concept has_next = requires(const M& m, Sequence s) {
    { m.next(s) } -> std::same_as<Position>;
};
template <class M>
concept has_can_resume = requires(const M& m, Sequence s, Position p) {
    { m.can_resume(s, p) } -> std::same_as<bool>;
};
template <class M>
concept has_resumable_prefix = requires(const M& m, Sequence s, Position p) {
    { m.resumable_prefix(s, p) } -> std::same_as<Position>;
};
template <class M>
concept has_remove = requires(M& m, Sequence s, Position begin, Position end) {
    { m.remove(s, begin, end) } -> std::same_as<Result<void>>;
};
template <class M>
concept can_wait = requires(M& m) {
    m.fence();
};
template <class M>
concept has_bytes = requires(const M& m) {
    { m.bytes() } -> std::same_as<std::int64_t>;
};
template <class M>
concept has_layers = requires(const M& m) {
    { m.layers() } -> std::same_as<int>;
};
template <class M>
concept has_sequences = requires(const M& m) {
    { m.sequences() } -> std::same_as<std::int32_t>;
};

} // namespace detail

/// What a model stores between tokens, for all of its layers: `Cache`, `RecurrentMemory`, `EncoderMemory`, `Hybrid`,
/// or a class of your own. Model code written against this concept runs on all of them.
///
/// - `begin(batch)`: opens a pass (`Result<PassOf<M>>`). `reserve(tokens)`: a pass that stores nothing, to size
///   buffers.
/// - `copy_prefix(from, to, end)`: `to` shares what is kept of `from` below position `end` (`Result<void>`).
/// - `remove(s, begin, end)`: removes positions [begin, end) of s (`Result<void>`).
/// - `next(s)`: the position of the next token of s.
/// - `can_resume(s, p)`, `resumable_prefix(s, p)`: where s can go on from.
/// - `fence()`: blocks until all enqueued work is done. `bytes()`: the size of what is stored.
/// - `layers()`, `sequences()`: how many it was made for.
///
/// Law: an operation that is refused, or throws, leaves the memory as it was.
// clang-format off
template <class M>
concept Memory =
    std::movable<M> && !std::copyable<M>
    && detail::has_begin<M> && MemoryPass<PassOf<M>> && detail::has_reserve<M>
    && detail::has_copy_prefix<M> && detail::has_remove<M>
    && detail::has_next<M> && detail::has_can_resume<M> && detail::has_resumable_prefix<M>
    && detail::can_wait<M> && detail::has_bytes<M> && detail::has_layers<M> && detail::has_sequences<M>;
// clang-format on

} // namespace cellar
