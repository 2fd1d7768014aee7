// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/ids.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cellar {

/// What `begin` answers with, where it does not refuse.
template <class M>
using PassOf = std::remove_cvref_t<decltype(*std::declval<M&>().begin(std::declval<const Batch&>()))>;

namespace detail {

/// A layer's work, whatever the memory of the layer.
struct AnyLayerWork {
    template <class Pass>
    void operator()(Pass&, int) const {}
};

} // namespace detail

template <class M>
concept has_begin = requires(M& m, const Batch& batch) {
    { m.begin(batch).has_value() } -> std::same_as<bool>;
    *m.begin(batch);
    m.begin(batch).error();
};
template <class M>
concept has_reserve = requires(M& m, std::int32_t tokens) {
    { m.reserve(tokens) } -> std::same_as<PassOf<M>>;
};
template <class M>
concept has_copy_prefix = requires(M& m, Sequence from, Sequence to, std::int32_t length) {
    { m.copy_prefix(from, to, length).has_value() } -> std::same_as<bool>;
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
    { m.remove(s, begin, end).has_value() } -> std::same_as<bool>;
};
template <class M>
concept has_bytes = requires(const M& m) {
    { m.bytes() } -> std::same_as<std::int64_t>;
};

template <class P>
concept has_tokens = requires(const P& pass) {
    { pass.tokens() } -> std::same_as<std::int32_t>;
};
template <class P>
concept has_visit = requires(P& pass, int layer) {
    pass.visit(layer, detail::AnyLayerWork{});
};
template <class P>
concept has_commit = requires(P& pass) {
    pass.commit();
};
template <class P>
concept has_drop = requires(P& pass) {
    pass.drop();
};
template <class P>
concept memory_pass =
    std::move_constructible<P> && !std::copyable<P> && has_tokens<P> && has_visit<P> && has_commit<P> && has_drop<P>;

/// What a model remembers between tokens, whatever its layers are: a `Cache`, a `RecurrentState`, an `EncoderMemory`, a
/// `Hybrid`. A model that is written against this works with all of them; `visit` leads each layer to the pass of its
/// own kind.
template <class M>
concept Memory =
    std::movable<M> && !std::copyable<
        M> && has_begin<M> && memory_pass<PassOf<M>> && has_reserve<M> && has_copy_prefix<M> && has_can_resume<M> && has_resumable_prefix<M> && has_remove<M> && has_fence<M> && has_bytes<M>;

} // namespace cellar
