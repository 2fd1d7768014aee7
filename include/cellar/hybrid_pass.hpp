// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/memory.hpp>
#include <cellar/pattern.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace cellar {

/// One forward pass over a batch in all members of a hybrid: begun, committed and dropped as one. A pass that is
/// destroyed without `commit` never happened. It must not outlive its hybrid.
template <class Pattern, class... Members>
class [[nodiscard]] HybridPass {
    using Map = LayerMap<Pattern, Members...>;

public:
    std::int32_t tokens() const { return std::get<0>(passes_).tokens(); }

    /// The layers of the model.
    int layers() const { return layers_; }

    /// Calls f(pass, i) with the pass of the member that has this layer of the model, and which of the member's layers
    /// it is; what f returns is of one type for all members. A layer without memory has a `NoMemory` in place of a
    /// pass, and is the i-th of those.
    template <class F>
    decltype(auto) visit(int layer, F&& f) {
        CELLAR_EXPECTS(layer >= 0 && layer < layers_, "layer ", layer, ", expected 0 to ", layers_ - 1);
        return visit_from<Map::next_used(0)>(Map::place(layer), f);
    }

    /// The pass of one member, as for one that the pattern has no layers for. Commit and drop the whole instead.
    template <class Member>
    auto& of() {
        static_assert(detail::times_among<Member, Members...> == 1, "the hybrid has no such member");
        return std::get<detail::index_among<Member, Members...>()>(passes_);
    }

    /// The batch's tokens belong to their sequences from now on, in all members. Where one of the passes must not be
    /// committed yet, the violation is noticed before any is.
    void commit() {
        std::apply([](const auto&... pass) { (pass.expect_complete(), ...); }, passes_);
        std::apply([](auto&... pass) { (pass.finish(), ...); }, passes_);
    }

    /// Ends the pass as if it had never begun, which the destructor does too.
    void drop() noexcept {
        std::apply([](auto&... pass) { (pass.drop(), ...); }, passes_);
    }

private:
    template <class, class...>
    friend class Hybrid;

    using Passes = std::tuple<PassOf<Members>...>;

    HybridPass(int layers, Passes passes) : layers_{layers}, passes_{std::move(passes)} {}

    template <int I, class F>
    decltype(auto) visit_from(LayerPlace place, F& f) {
        constexpr int next = Map::next_used(I + 1);
        if constexpr (next <= Map::members)
            if (place.member != I) return visit_from<next>(place, f);
        if constexpr (I == Map::members) {
            return f(nothing_, place.layer);
        } else {
            return f(std::get<static_cast<std::size_t>(I)>(passes_), place.layer);
        }
    }

    int layers_;
    Passes passes_;
    NoMemory nothing_;
};

} // namespace cellar
