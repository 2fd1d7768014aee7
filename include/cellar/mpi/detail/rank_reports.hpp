// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The operations that ranks do together.
enum class JointOperation : std::int32_t {
    none,
    begin,
    reserve,
    copy_prefix,
    remove,
    snapshot,
    restore,
    merge,
    split,
    schedule,
    unschedule,
    page_out,
    page_in,
    defragment,
    compare
};

inline const char* name_of(JointOperation operation) {
    constexpr const char* names[] = {"nothing",    "begin",    "reserve", "copy_prefix", "remove",
                                     "snapshot",   "restore",  "merge",   "split",       "schedule",
                                     "unschedule", "page_out", "page_in", "defragment",  "compare"};
    return names[static_cast<std::size_t>(operation)];
}

/// One call: what is done, and with which numbers.
struct JointCall {
    JointOperation operation = JointOperation::none;
    std::int32_t count = 0; ///< of the arguments
    std::array<std::int32_t, 4> arguments{};
    std::uint64_t batch = 0; ///< its hash

    bool operator==(const JointCall&) const = default;
};

/// `remove(0, 3, 5)`.
inline std::string text_of(const JointCall& call) {
    std::string text = name_of(call.operation);
    if (call.operation == JointOperation::none) return text;
    for (std::int32_t i = 0; i < call.count && i < 4; ++i)
        text += (i == 0 ? "(" : ", ") + std::to_string(call.arguments[static_cast<std::size_t>(i)]);
    if (call.count == 0) text += "(";
    return text + (call.operation == JointOperation::begin ? " tokens)" : ")");
}

/// What a rank tells the others about itself.
struct RankReport {
    std::int64_t number = 0; ///< of the operation; the first is 1
    JointCall call{};
    JointCall last{};       ///< the operation before
    std::uint64_t book = 0; ///< the hash of the bookkeeping before the operation; 0 if it is not compared
    std::int32_t failed = 0;
    std::int32_t unused = 0;
};

/// Sends a report to all other ranks, and receives theirs. All ranks exchange at the same time.
class RankReports {
public:
    explicit RankReports(const mpi::Communicator& comm)
        : all_(static_cast<std::size_t>(comm.size())), exchange_{comm.size(), 0x1b01} {}

    const std::vector<RankReport>& all() const { return all_; }

    /// Blocks for `seconds` at most; 0: without limit. Afterwards, `all()` has the reports of all ranks. After an
    /// error, neither must be called again.
    std::optional<mpi::MpiError> exchange(const mpi::Communicator& comm, const RankReport& own, double seconds) {
        RankReport& sent = all_[static_cast<std::size_t>(comm.rank())];
        sent = own;
        for (int rank = 0; rank < comm.size(); ++rank) {
            if (rank == comm.rank()) continue;
            exchange_.receive(comm, rank, &all_[static_cast<std::size_t>(rank)], bytes, MPI_BYTE);
            exchange_.send(comm, rank, &sent, bytes, MPI_BYTE);
        }
        auto error = exchange_.finish(name_of(own.call.operation), seconds);
        if (error && exchange_.uses_memory()) Exchange::keep(std::move(all_));
        return error;
    }

private:
    static constexpr int bytes = sizeof(RankReport);

    std::vector<RankReport> all_;
    Exchange exchange_;
};

/// Which ranks differ from most others, or, if there is no majority, from the first; as text, and the first of them.
struct DifferingRanks {
    int first = -1; ///< -1: none
    int like = 0;   ///< a rank of the others
    std::string list;
};

/// `same(a, b)` says which reports agree.
template <class Same>
DifferingRanks differing_ranks(const std::vector<RankReport>& all, Same same) {
    DifferingRanks found;
    std::size_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::size_t alike = 0;
        for (const RankReport& other : all) alike += same(all[i], other) ? 1 : 0;
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
