// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/mpi/detail/context_state.hpp>

#include <cstdint>
#include <source_location>
#include <span>
#include <utility>

namespace cellar {

struct MemoryAccess;

} // namespace cellar

namespace cellar::mpi {

/// One forward pass over a batch whose tokens are divided between ranks. All ranks have one for the same batch, and
/// make the same calls. Each puts the keys and values of the tokens that it stores, and calls `attend` for all tokens.
/// Destroyed without `commit`, it is dropped: on all ranks, the memory is as if it had never begun. One pass may be
/// open at a time; it must not outlive its memory.
template <class Cache>
class [[nodiscard]] ContextPass {
    using State = detail::ContextState<Cache>;

public:
    ContextPass(ContextPass&& other) noexcept
        : state_{std::exchange(other.state_, nullptr)}, local_{std::move(other.local_)} {}
    ContextPass& operator=(ContextPass&&) = delete;
    ~ContextPass() { drop(); }

    /// The tokens of the batch: each rank has the queries of all.
    std::int32_t tokens() const { return local_.tokens(); }

    /// The tokens that this rank stores, as indices into the batch, in ascending order.
    std::span<const std::int32_t>
    stored_indices(const std::source_location& where = std::source_location::current()) const {
        const detail::Caller caller{where};
        return state().stored;
    }

    /// Stores the keys [stored, kv_heads, key_dim] and values [stored, kv_heads, value_dim] of the tokens in
    /// `stored_indices()`, in their order; see `CachePass::put`. Not needed if there are none.
    template <class K, class V>
    void put(int layer, const K& k, const V& v, const std::source_location& where = std::source_location::current()) & {
        const detail::Caller caller{where};
        static_cast<void>(state());
        local_.put(layer, k, v, where);
    }
    template <class K, class V>
    void put(int, const K&, const V&) && = delete; // the pass is dropped at the end of the line

    /// This rank's part. It commits and drops with this pass, and not by itself.
    const PassOf<Cache>& local() const& { return local_; }

    /// Keeps the batch's tokens, and forgets tokens that fell out of the retention. A layer that was not put is a
    /// violation. Sends no message.
    void commit(const std::source_location& where = std::source_location::current()) {
        const detail::Caller caller{where};
        State& s = state();
        local_.commit(where);
        state_ = nullptr;
        s.commit();
    }

    /// Undoes the pass, as the destructor does. Sends no message.
    void drop() noexcept {
        if (state_ == nullptr) return;
        local_.drop();
        std::exchange(state_, nullptr)->drop();
    }

    /// For cellar itself.
    ContextPass(State& the_state, PassOf<Cache>&& local) : state_{&the_state}, local_{std::move(local)} {}

private:
    friend struct ::cellar::MemoryAccess;

    State& state() const { return detail::expect_open(state_); }

    State* state_;
    PassOf<Cache> local_;
};

} // namespace cellar::mpi
