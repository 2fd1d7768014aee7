// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/hybrid/detail/layer_map.hpp>
#include <cellar/hybrid/fwd.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/memory/layer_name.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cellar {

/// One forward pass over a batch in all members of a hybrid; it begins, commits and is dropped as one. A pass that is
/// destroyed without `commit` is dropped. It must not outlive its hybrid.
template <class Pattern, class... Members>
class [[nodiscard]] HybridPass {
    using Map = detail::LayerMap<Pattern, Members...>;
    using MapReference = decltype(std::declval<const Map&>().reference());
    static constexpr bool has_residual = std::is_same_v<Pattern, WithResidual>;

public:
    std::int32_t tokens() const { return tokens_; }

    /// The number of layers of the model.
    int layers() const { return map_.layers(); }

    /// Calls f(pass, i) with the pass of the member that has this layer of the model, and the layer's index there. f
    /// must return the same type for all members. For a layer without memory it gets a `NoMemory` in place of a pass,
    /// and i counts such layers. `WithResidual`: it gets this pass.
    template <class F>
    decltype(auto) visit(int layer, F&& f, Where where = Where::current()) & {
        CELLAR_EXPECTS_AT(where, layer >= 0 && layer < layers(), "visit: layer ", layer, ", expected 0 to ",
                          layers() - 1);
        if constexpr (has_residual) {
            return f(*this, layer);
        } else {
            return visit_from<Map::next_used(0)>(map_.place(layer), layer, f, where);
        }
    }

    /// The pass of one member, for example of one without layers in the pattern. Commit and drop the whole: to commit
    /// this alone is a violation, and so is to commit the whole after dropping this.
    template <class Member>
    auto& of(Where where = Where::current()) & {
        static_assert(detail::times_among<Member, Members...> == 1, "the hybrid has no such member");
        auto& pass = std::get<detail::index_among<Member, Members...>()>(passes_);
        CELLAR_EXPECTS_AT(where, pass.has_value(), "of: the hybrid was made without this member, expected one with it");
        return *pass;
    }

    /// `WithResidual`: stores keys and values of a layer in both caches, as `CachePass::put` does. Rows are of float,
    /// or of what both caches take.
    template <class K, class V>
        requires(has_residual)
    void put(int layer, const K& k, const V& v, Where where = Where::current()) & {
        for_each_named(layer, [&](auto& pass) { pass.put(layer, k, v, where); });
    }
    template <class K, class V>
    void put(int, const K&, const V&) && = delete; // the pass is dropped at the end of the line

    /// `WithResidual`: in both caches, as `CachePass::mark_put` does.
    void mark_put(int layer, Where where = Where::current()) & requires(has_residual) {
        for_each_named(layer, [&](auto& pass) { pass.mark_put(layer, where); });
    }

    /// `WithResidual`, for `attend`: calls f(coarse, exact) with the passes of both caches.
    template <class F>
        requires(has_residual)
    decltype(auto) with_residual(F&& f) & { return std::forward<F>(f)(*std::get<0>(passes_), *std::get<1>(passes_)); }

    /// Keeps the batch's tokens, in all members. If one of the passes must not be committed yet, that violation comes
    /// before any is committed.
    void commit(Where where = Where::current()) {
        const detail::Caller caller{where};
        detail::expect_own_pass(name_, "commit");
        name_missing_layers(std::index_sequence_for<Members...>{});
        expect_complete();
        finish_commit();
    }

    /// Undoes the pass, as the destructor does.
    void drop() noexcept {
        for_each([](auto& pass) { pass.drop(); });
    }

    /// The two phases of `commit`: see `TwoPhaseMemory`.
    void expect_complete() const {
        const auto check = [](const auto& pass) {
            if (pass) pass->expect_complete();
        };
        std::apply([&](const auto&... pass) { (check(pass), ...); }, passes_);
    }
    void finish_commit() noexcept {
        for_each([](auto& pass) { pass.finish_commit(); });
    }

    /// For cellar itself, where the hybrid is a member of another one: how messages name a layer.
    detail::LayerName& name() { return name_; }
    /// For cellar itself. `opened`: for each member, what converts to its pass, if it has one.
    template <class... Opened>
    HybridPass(MapReference map, std::int32_t tokens, Opened&&... opened)
        : map_{map}, tokens_{tokens}, passes_{std::forward<Opened>(opened)...} {
        int member = 0;
        std::apply([&](auto&... pass) { (name_member(pass, member++), ...); }, passes_);
    }

private:
    using Passes = std::tuple<std::optional<PassOf<Members>>...>;

    // The pass then knows that it is not to be committed alone.
    template <class Pass>
    static void name_member(std::optional<Pass>& pass, int member) {
        if (pass) detail::set_name(*pass, member, -1, -1);
    }
    // For the messages of the members' passes.
    template <std::size_t... I>
    void name_missing_layers(std::index_sequence<I...>) {
        const auto name = [&](auto& pass, int member) {
            if constexpr (requires { pass->first_missing(); }) {
                if (!pass) return;
                const int missing = pass->first_missing();
                if (missing < 0) return;
                int layer = 0;
                while (layer < layers() && map_.place(layer) != LayerPlace{member, missing}) ++layer;
                detail::set_name(*pass, member, layer < layers() ? missing : -1, layer);
            }
        };
        (name(std::get<I>(passes_), static_cast<int>(I)), ...);
    }
    template <class F>
    void for_each(F f) {
        const auto call = [&](auto& pass) {
            if (pass) f(*pass);
        };
        std::apply([&](auto&... pass) { (call(pass), ...); }, passes_);
    }

    // With residual. Messages name the layer as that of the model.
    template <class F>
    void for_each_named(int layer, F f) {
        const int model = name_.member < 0 ? layer : name_.model;
        const bool is_known = name_.member < 0 || name_.own == layer; // else it was not visited
        int member = 0;
        for_each([&](auto& pass) {
            detail::set_name(pass, member++, is_known ? layer : -1, is_known ? model : -1);
            f(pass);
        });
    }

    template <int I, class F>
    decltype(auto) visit_from(LayerPlace place, int layer, F& f, Where where) {
        constexpr int next = Map::next_used(I + 1);
        if constexpr (next <= Map::members)
            if (place.member != I) return visit_from<next>(place, layer, f, where);
        if constexpr (I == Map::members) {
            return f(no_memory_, place.layer);
        } else {
            auto& pass = *std::get<static_cast<std::size_t>(I)>(passes_);
            set_name(pass, I, place.layer, layer, where);
            return f(pass, place.layer);
        }
    }

    // f is not called from here, because it has lines of its own.
    template <class Pass>
    static void set_name(Pass& pass, int member, int own, int model, Where where) {
        const detail::Caller caller{where};
        detail::set_name(pass, member, own, model);
    }

    MapReference map_;
    std::int32_t tokens_;
    Passes passes_;
    detail::LayerName name_;
    NoMemory no_memory_;
};

} // namespace cellar
