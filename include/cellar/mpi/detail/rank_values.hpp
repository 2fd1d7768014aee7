// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstddef>
#include <mpi.h>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// One value of every rank. All ranks exchange theirs at the same time.
template <class Value>
class RankValues {
    static_assert(std::is_trivially_copyable_v<Value>, "values are sent as bytes");

public:
    /// The messages have this tag.
    RankValues(int ranks, int tag) : all_(static_cast<std::size_t>(ranks)), exchange_{ranks, tag} {}

    /// By rank.
    const std::vector<Value>& all() const { return all_; }

    /// Collective: one message to every rank. Blocks for `time_limit` at most; 0: without limit. Afterwards, `all()`
    /// has the values of all ranks. After an error, neither must be called again.
    std::optional<mpi::MpiError> exchange(const mpi::Communicator& comm, const char* operation, const Value& own,
                                          std::chrono::milliseconds time_limit) {
        constexpr int bytes = sizeof(Value);
        Value& sent = all_[static_cast<std::size_t>(comm.rank())];
        sent = own;
        for (int rank = 0; rank < comm.size(); ++rank) {
            if (rank == comm.rank()) continue;
            exchange_.receive(comm, rank, &all_[static_cast<std::size_t>(rank)], bytes, MPI_BYTE);
            exchange_.send(comm, rank, &sent, bytes, MPI_BYTE);
        }
        auto error = exchange_.finish(operation, time_limit);
        if (error && exchange_.uses_memory()) Exchange::keep(std::move(all_));
        return error;
    }

private:
    std::vector<Value> all_;
    Exchange exchange_;
};

/// Which ranks differ from most others, or, if there is no majority, from the first; as text, and the first of them.
struct DifferingRanks {
    int first = -1; ///< -1: none
    int like = 0;   ///< a rank of the others
    std::string list;
};

/// `same(a, b)` says which values agree.
template <class Value, class Same>
DifferingRanks differing_ranks(const std::vector<Value>& all, Same same) {
    DifferingRanks found;
    std::size_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::size_t alike = 0;
        for (const Value& other : all) alike += same(all[i], other) ? 1 : 0;
        if (alike == all.size()) return found;
        if (alike <= most) continue;
        most = alike;
        found.like = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (same(all[i], all[static_cast<std::size_t>(found.like)])) continue;
        if (found.first < 0) found.first = static_cast<int>(i);
        found.list += (found.list.empty() ? "" : ", ") + std::to_string(i);
    }
    return found;
}

} // namespace cellar::detail
