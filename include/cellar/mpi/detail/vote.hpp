// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What one rank says about an operation, which all ranks do, or none does. It is sent as bytes.
struct Vote {
    std::uint64_t calls = 0; ///< hash of all calls so far, where ranks compare them
    bool no_memory = false;
    std::optional<Refusal> refusal{};

    bool can() const { return !no_memory && !refusal; }
};
static_assert(std::is_trivially_copyable_v<Vote>);

/// The first phase of an operation, `prepare()`, and what this rank says about it: nothing was prepared if it cannot.
template <class Prepare>
auto prepared_for(Vote& vote, Prepare prepare) -> std::optional<ValueOf<decltype(prepare())>> {
    try {
        auto prepared = prepare();
        if (prepared) return *std::move(prepared);
        vote.refusal = prepared.error();
    } catch (const std::bad_alloc&) {
        vote.no_memory = true;
    }
    return std::nullopt;
}

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
        for (const Value& other : all) alike += same(all[i], other) ? 1U : 0U;
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

/// Why the operation is not done, the same on all ranks: nothing if all can. `votes`: of all ranks.
inline std::optional<mpi::MpiError> error_of_votes(const char* operation, const std::vector<Vote>& votes) {
    using mpi::MpiReason;
    const auto same_calls = [](const Vote& a, const Vote& b) { return a.calls == b.calls; };
    if (const int rank = differing_ranks(votes, same_calls).first; rank >= 0)
        return error_of_rank(MpiReason::differs, operation, rank,
                             {" has made other calls than the others, expected the same on all ranks"});
    for (std::size_t i = 0; i < votes.size(); ++i) {
        const auto& [calls, no_memory, refusal] = votes[i];
        const int rank = static_cast<int>(i);
        if (no_memory) return error_of_rank(MpiReason::no_memory, operation, rank, {" could not allocate memory"});
        if (refusal)
            return error_of_rank(MpiReason::refused, operation, rank, {" refuses: ", to_string(*refusal)}, *refusal);
    }
    return std::nullopt;
}

} // namespace cellar::detail
