// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/consecutive.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/digest.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/attention_exchange.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/detail/joint_call.hpp>
#include <cellar/mpi/detail/kept_positions.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/vote.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/window/resume.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The parts of a memory whose sequences are divided between ranks, at a fixed address. What all ranks together keep is
/// in `sequences`, the same on every rank; `cache` has this rank's tokens.
template <class Cache>
struct ContextState {
    /// One sequence.
    struct Entry {
        KeptPositions kept;
        Position expected{0}; ///< these two: see ConsecutiveTokens
        std::uint32_t batch = 0;
    };

    ContextState(const mpi::Communicator& the_comm, Cache the_cache, std::int32_t block_size,
                 std::chrono::milliseconds limit, Where where)
        : comm{the_comm.handle(), where},
          cache{std::move(the_cache)},
          block{block_size},
          time_limit{limit},
          sequences(static_cast<std::size_t>(cache.sequences())),
          votes{comm.size(), 0x1b05},
          exchange{comm.size()} {
        const auto batch = static_cast<std::size_t>(cache.limits().batch);
        flags.reserve(batch);
        stored.reserve(batch);
        touched.reserve(std::min(batch, sequences.size()));
        hash_setup();
    }
    /// `limits`: of the cache.
    static constexpr std::int64_t bytes_for(const CacheLimits& limits, int ranks) {
        const std::int32_t batch = planned_batch(expect_valid(limits));
        return bytes_of<ContextState>(1) + bytes_of<Transfers>(1) + bytes_of<Entry>(limits.sequences)
               + bytes_of<std::uint8_t>(batch) + bytes_of<std::int32_t>(batch)
               + bytes_of<Sequence>(std::min(batch, limits.sequences)) + RankValues<Vote>::bytes_for(ranks)
               + AttentionExchange::bytes_for(ranks);
    }

    const KeptPositions& kept(Sequence s) const {
        CELLAR_EXPECTS(s.value >= 0 && s.value < cache.sequences(), "sequence ", s, ", expected 0 to ",
                       cache.sequences() - 1);
        return sequences[static_cast<std::size_t>(s.value)].kept;
    }
    KeptPositions& kept(Sequence s) { return const_cast<KeptPositions&>(std::as_const(*this).kept(s)); }

    int rank_of(Position p) const { return p.value / block % comm.size(); }

    /// How many of `tokens` positions from p on this rank stores.
    std::int32_t stored_from(Position p, std::int32_t tokens) const {
        const std::int64_t turn = std::int64_t{block} * comm.size();
        const auto stored_below = [&](std::int64_t end) {
            return end / turn * block
                   + std::clamp(end % turn - std::int64_t{block} * comm.rank(), std::int64_t{0}, std::int64_t{block});
        };
        return static_cast<std::int32_t>(stored_below(std::int64_t{p.value} + tokens) - stored_below(p.value));
    }

    /// Checks whether each sequence goes on from its last token and everything that it sees is kept, by all ranks
    /// together. The batch was checked.
    Result<void> check(const Batch& batch) {
        if (batch.tokens() > cache.limits().batch) return batch_too_long(batch.tokens(), cache.limits().batch);
        touched.clear();
        return consecutive.check(
            batch, cache.sequences(),
            [&](Sequence s) -> Entry& { return sequences[static_cast<std::size_t>(s.value)]; },
            [](const Entry& entry) { return entry.kept.end(); },
            [&](Sequence s, Position p) {
                if (!can_resume_with(cache.window(), kept(s), p)) return false;
                touched.push_back(s);
                return true;
            });
    }

    /// Finds the tokens that this rank stores.
    Batch divide(const Batch& batch) {
        flags.clear();
        stored.clear();
        for (std::size_t i = 0; i < batch.positions.size(); ++i) {
            const bool own = rank_of(batch.positions[i]) == comm.rank();
            flags.push_back(own ? 1 : 0);
            if (own) stored.push_back(static_cast<std::int32_t>(i));
        }
        Batch divided = batch;
        if (stored.size() != flags.size()) divided.stored = flags;
        return divided;
    }

    void commit() noexcept {
        for (const Sequence s : touched) {
            Entry& entry = sequences[static_cast<std::size_t>(s.value)];
            entry.kept.extend(entry.expected);
            entry.kept.forget(Position{cache.window().sinks()}, cache.window().oldest_kept(entry.expected - 1));
        }
        close(JointOperation::commit);
    }
    void drop() noexcept { close(JointOperation::drop); }

    void note(const JointCall& call) {
        calls.add(static_cast<std::int32_t>(call.operation)).add(call.count).add(call.batch);
        for (const std::int32_t argument : call.arguments) calls.add(argument);
    }

    mpi::Communicator comm;
    Cache cache;
    std::int32_t block;
    std::chrono::milliseconds time_limit;
    std::optional<mpi::MpiError> lost; ///< why nothing can be sent any more
    std::vector<Entry> sequences;
    ConsecutiveTokens consecutive;
    std::vector<std::uint8_t> flags; // of the batch's tokens: 1 if this rank stores it
    std::vector<std::int32_t> stored;
    std::vector<Sequence> touched; // of the batch
    BatchBuilder next_tokens;      // of a pass that was asked for by their number
    bool pass_open = false;
    std::uint64_t snapshots = 0; ///< made so far
    Digest calls;                ///< all operations so far and their arguments
    RankValues<Vote> votes;
    AttentionExchange exchange;

private:
    void close(JointOperation operation) noexcept {
        note(joint_call(operation));
        pass_open = false;
    }

    // What all ranks must have in common.
    void hash_setup() {
        const auto& window = cache.window();
        for (const int x : {cache.sequences(), cache.limits().batch, block, window.sinks(), cache.layers()})
            calls.add(x);
        for (std::int32_t p = 1; p < INT32_MAX / 2; p *= 2)
            for (const Position edge : {window.oldest_visible(Position{p}), window.oldest_kept(Position{p})})
                calls.add(edge);
        for (int layer = 0; layer < cache.layers(); ++layer) {
            const LayerShape& shape = cache.shape()[layer];
            for (const int x : {shape.kv_heads, shape.key_dim, shape.value_dim, shape.shares_layer}) calls.add(x);
        }
    }
};

} // namespace cellar::detail
