// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail {

[[gnu::cold, gnu::noinline]] inline void say_what_is_wrong(const Batch& batch, std::int32_t sequences) {
    for (std::size_t i = 0; i < batch.positions.size(); ++i) {
        CELLAR_EXPECTS(batch.positions[i].value >= 0 && batch.positions[i] < end_of_time, "begin: token ", i,
                       " has position ", batch.positions[i], ", expected 0 to ", end_of_time.value - 1);
        CELLAR_EXPECTS(batch.sequences[i].value >= 0 && batch.sequences[i].value < sequences, "begin: token ", i,
                       " has sequence ", batch.sequences[i], ", expected 0 to ", sequences - 1);
    }
}

/// What every memory expects of a batch. O(tokens), without a branch on any, as every pass comes by.
inline void expect_batch(const Batch& batch, std::int32_t sequences) {
    CELLAR_EXPECTS(batch.sequences.size() == batch.positions.size(), "begin: ", batch.sequences.size(),
                   " sequences, expected one for each of ", batch.positions.size(), " positions");
    CELLAR_EXPECTS(batch.bidirectional.empty() || batch.bidirectional.size() == batch.positions.size(),
                   "begin: ", batch.bidirectional.size(), " bidirectional flags, expected none or one for each of ",
                   batch.positions.size(), " tokens");
    const auto ids = static_cast<std::uint32_t>(sequences);
    const auto end = static_cast<std::uint32_t>(end_of_time.value);
    bool wrong = false;
    for (std::size_t i = 0; i < batch.positions.size(); ++i)
        wrong |= static_cast<std::uint32_t>(batch.positions[i].value) >= end
                 || static_cast<std::uint32_t>(batch.sequences[i].value) >= ids;
    if (wrong) [[unlikely]]
        say_what_is_wrong(batch, sequences);
}

} // namespace cellar::detail
