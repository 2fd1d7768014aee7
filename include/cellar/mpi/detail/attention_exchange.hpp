// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/score.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A row of partial results: `dim` floats, and after them the logarithm of the sum of exp(score). Becomes the row of
/// attention over all parts, which have no cell in common: see `merge_attention`. The parts are added in their order.
/// Parts that have seen nothing (-infinity) add nothing. `parts`: their rows; `weights`: memory for a float each.
/// Writes `dim` floats to `out`, and returns the logarithm of the whole sum.
inline float merge_row(std::span<const float* const> parts, float* weights, std::int64_t dim, float* out) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    float largest = -infinity;
    bool sees = false; // NaN, too, which is larger than nothing
    for (const float* part : parts) {
        largest = std::max(largest, part[dim]);
        sees = sees || part[dim] != -infinity;
    }
    if (!sees) {
        std::fill_n(out, dim, 0.0F);
        return -infinity;
    }
    float sum = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) sum += weights[i] = softmax_factor(parts[i][dim], largest);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const float* const row = parts[i];
        const float weight = weights[i] / sum;
        if (i == 0) {
            for (std::int64_t d = 0; d < dim; ++d) out[d] = weight * row[d];
        } else {
            for (std::int64_t d = 0; d < dim; ++d) out[d] += weight * row[d];
        }
    }
    return largest + std::log(sum);
}

/// Merges the partial attention of all ranks. A row is the result of a token and head, `dim` floats, and the logarithm
/// of its sum. Memory for the rows is kept from call to call, and allocated if a call needs more than any before.
class AttentionExchange {
public:
    explicit AttentionExchange(int ranks)
        : parts_(static_cast<std::size_t>(ranks)),
          weights_(static_cast<std::size_t>(ranks)),
          exchange_{ranks, 0x1b06} {}
    /// Before the first call.
    static constexpr std::int64_t bytes_for(int ranks) {
        return bytes_of<float*>(ranks) + bytes_of<float>(ranks) + Exchange::bytes_for(ranks);
    }

    /// Memory for this rank's partial rows, dim + 1 floats each.
    float* partial(std::int64_t rows, std::int64_t dim) {
        CELLAR_EXPECTS(rows * (dim + 1) <= INT32_MAX, "attend: ", rows, " rows of ", dim + 1,
                       " floats, expected at most ", INT32_MAX, " floats");
        own_ = floats(partial_, rows * (dim + 1));
        return own_;
    }

    /// Memory for merged rows and their logarithms, where the caller's is not contiguous.
    float* merged(std::int64_t size) { return floats(merged_, size); }
    float* sums(std::int64_t rows) { return floats(sums_, rows); }

    /// Collective: writes the merged rows to `out`, `dim` floats each, without gaps, and their logarithms to `sums`
    /// unless it is null. Every rank gets the same bits. Blocks for `time_limit` at most; 0: without limit. It must not
    /// be called again after an error, and MPI may then still write to `out`.
    std::optional<mpi::MpiError> merge(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out,
                                       float* sums, std::chrono::milliseconds time_limit) {
        const std::int64_t bytes = rows * (dim + 1) * std::int64_t{sizeof(float)};
        return merge(comm, rows, dim, out, sums, time_limit, bytes * comm.size() > gathered_bytes);
    }
    /// `in_shares`: every rank gets all parts of its share of the rows, merges these, and gets the other shares merged.
    /// If not, every rank gets all parts of all rows, and merges all.
    std::optional<mpi::MpiError> merge(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out,
                                       float* sums, std::chrono::milliseconds time_limit, bool in_shares) {
        const auto first = [&](int rank) { return in_shares ? rows * rank / comm.size() : 0; };
        const auto count = [&](int rank) { return in_shares ? first(rank + 1) - first(rank) : rows; };
        const auto share_of = [&](float* all, int rank, std::int64_t row) {
            return std::span{all + first(rank) * row, static_cast<std::size_t>(count(rank) * row)};
        };

        const std::int64_t size = count(comm.rank()) * (dim + 1);
        float* others = floats(received_, size * (comm.size() - 1));
        for (int rank = 0; rank < comm.size(); ++rank)
            parts_[static_cast<std::size_t>(rank)] =
                rank == comm.rank() ? own_ + first(rank) * (dim + 1) : std::exchange(others, others + size);
        const auto part_of = [&](int rank) {
            return std::span{parts_[static_cast<std::size_t>(rank)], static_cast<std::size_t>(size)};
        };
        const auto sent_to = [&](int rank) { return share_of(own_, rank, dim + 1); };
        if (auto error = round(comm, time_limit, sent_to, part_of)) return error;
        float* const own_sums = sums == nullptr ? nullptr : sums + first(comm.rank());
        merge_parts(count(comm.rank()), dim, out + first(comm.rank()) * dim, own_sums);
        for (float* const all : {out, sums}) {
            if (!in_shares || all == nullptr) continue;
            const std::int64_t row = all == out ? dim : 1;
            const auto merged_by = [&](int rank) { return share_of(all, rank, row); };
            const auto own = [&](int) { return merged_by(comm.rank()); };
            if (auto error = round(comm, time_limit, own, merged_by)) return error;
        }
        return std::nullopt;
    }

private:
    static constexpr std::int64_t gathered_bytes = std::int64_t{96} << 10; // of all ranks: see bench/mpi/context.cpp

    static float* floats(Scratch& memory, std::int64_t n) {
        return reinterpret_cast<float*>(memory.reserve(n * std::int64_t{sizeof(float)}));
    }

    void merge_parts(std::int64_t rows, std::int64_t dim, float* out, float* sums) {
        for (std::int64_t row = 0; row < rows; ++row) {
            const float sum = merge_row(parts_, weights_.data(), dim, out + row * dim);
            if (sums != nullptr) sums[row] = sum;
            for (float*& part : parts_) part += dim + 1;
        }
    }

    template <class To, class From>
    std::optional<mpi::MpiError> round(const mpi::Communicator& comm, std::chrono::milliseconds time_limit, To to,
                                       From from) {
        auto error = exchange_.round(comm, "attend", time_limit, to, from);
        if (error && exchange_.uses_memory())
            for (Scratch* const memory : {&partial_, &received_, &merged_, &sums_}) abandon(std::move(*memory));
        return error;
    }

    Scratch partial_;
    Scratch received_;
    Scratch merged_;
    Scratch sums_;
    float* own_ = nullptr;
    std::vector<float*> parts_; // the next row of each rank's part
    std::vector<float> weights_;
    Exchange exchange_;
};

} // namespace cellar::detail
