// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/serve/request.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cellar::serve {

/// A running request that can be put back.
struct Candidate {
    RequestId request;
    Sequence sequence;
    std::int32_t computed; ///< tokens, that others may share
};

/// Chooses whom a scheduler puts back when the memory is full.
///
/// - `operator()(candidates, refusal)`: the index of the victim. The candidates are in the order in which they were
///   submitted; there is at least one. The refusal is that of `begin`: `needed` and `available` say how many cells are
///   lacking. A policy that wants to know what a victim would free asks its memory: `cells_freed_by(sequence)`.
template <class V>
concept VictimPolicy = requires(V& victims, std::span<const Candidate> candidates, const Refusal& refusal) {
    { victims(candidates, refusal) } -> std::convertible_to<std::size_t>;
};

/// The request that was submitted last: the least work is lost.
struct NewestFirst {
    std::size_t operator()(std::span<const Candidate> candidates, const Refusal&) const {
        return candidates.size() - 1;
    }
};

} // namespace cellar::serve
