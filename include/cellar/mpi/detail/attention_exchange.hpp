// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/exchange.hpp>
#include <cellar/mpi/detail/merge_rows.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Merges the partial attention of all ranks. A row is the result of a token and head, `dim` floats, and the logarithm
/// of its sum. Memory for the rows is kept from call to call, and allocated if a call needs more than any before.
class AttentionExchange {
public:
    explicit AttentionExchange(int ranks)
        : parts_(static_cast<std::size_t>(ranks)),
          weights_(static_cast<std::size_t>(ranks)),
          exchange_{ranks, 0x1b06} {}

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
        return bytes * comm.size() <= gathered_bytes ? merge_all(comm, rows, dim, out, sums, time_limit)
                                                     : merge_shares(comm, rows, dim, out, sums, time_limit);
    }

    /// Few bytes: every rank gets all parts, and merges all rows.
    std::optional<mpi::MpiError> merge_all(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim,
                                           float* out, float* sums, std::chrono::milliseconds time_limit) {
        const std::int64_t size = rows * (dim + 1);
        float* others = floats(received_, size * (comm.size() - 1));
        for (int rank = 0; rank < comm.size(); ++rank) {
            const bool other = rank != comm.rank();
            parts_[static_cast<std::size_t>(rank)] = other ? others : own_;
            if (!other) continue;
            exchange_.receive(comm, rank, others, static_cast<int>(size), MPI_FLOAT);
            exchange_.send(comm, rank, own_, static_cast<int>(size), MPI_FLOAT);
            others += size;
        }
        if (auto error = finish(time_limit)) return error;
        merge_parts(rows, dim, out, sums);
        return std::nullopt;
    }

    /// Every rank gets all parts of its share of the rows, merges these, and gets the other shares merged.
    std::optional<mpi::MpiError> merge_shares(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim,
                                              float* out, float* sums, std::chrono::milliseconds time_limit) {
        const std::int64_t first = share(comm.rank(), rows);
        const std::int64_t mine = share(comm.rank() + 1, rows) - first;
        const std::int64_t size = mine * (dim + 1);
        float* others = floats(received_, size * (comm.size() - 1));
        for (int rank = 0; rank < comm.size(); ++rank) {
            const bool other = rank != comm.rank();
            const std::int64_t theirs = share(rank, rows);
            parts_[static_cast<std::size_t>(rank)] = other ? others : own_ + first * (dim + 1);
            if (!other) continue;
            exchange_.receive(comm, rank, others, static_cast<int>(size), MPI_FLOAT);
            exchange_.send(comm, rank, own_ + theirs * (dim + 1),
                           static_cast<int>((share(rank + 1, rows) - theirs) * (dim + 1)), MPI_FLOAT);
            others += size;
        }
        if (auto error = finish(time_limit)) return error;
        merge_parts(mine, dim, out + first * dim, sums == nullptr ? nullptr : sums + first);
        auto error = gather_shares(comm, rows, dim, out, time_limit);
        return error || sums == nullptr ? error : gather_shares(comm, rows, 1, sums, time_limit);
    }

private:
    static constexpr std::int64_t gathered_bytes = std::int64_t{96} << 10; // of all ranks: see bench/mpi/context.cpp

    static float* floats(Scratch& memory, std::int64_t n) {
        return reinterpret_cast<float*>(memory.reserve(n * std::int64_t{sizeof(float)}));
    }

    // The first row of a rank's share.
    std::int64_t share(int rank, std::int64_t rows) const { return rows * rank / std::ssize(parts_); }

    void merge_parts(std::int64_t rows, std::int64_t dim, float* out, float* sums) {
        for (std::int64_t row = 0; row < rows; ++row) {
            const float sum = merge_row(parts_, weights_.data(), dim, out + row * dim);
            if (sums != nullptr) sums[row] = sum;
            for (const float*& part : parts_) part += dim + 1;
        }
    }

    // The rows of all shares, of which each rank has its own.
    std::optional<mpi::MpiError> gather_shares(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim,
                                               float* out, std::chrono::milliseconds time_limit) {
        const auto count = [&](int rank) {
            return static_cast<int>((share(rank + 1, rows) - share(rank, rows)) * dim);
        };
        for (int rank = 0; rank < comm.size(); ++rank) {
            if (rank == comm.rank()) continue;
            exchange_.receive(comm, rank, out + share(rank, rows) * dim, count(rank), MPI_FLOAT);
            exchange_.send(comm, rank, out + share(comm.rank(), rows) * dim, count(comm.rank()), MPI_FLOAT);
        }
        return finish(time_limit);
    }

    std::optional<mpi::MpiError> finish(std::chrono::milliseconds time_limit) {
        auto error = exchange_.finish("attend", time_limit);
        if (error && exchange_.uses_memory())
            for (Scratch* const memory : {&partial_, &received_, &merged_, &sums_}) Exchange::keep(std::move(*memory));
        return error;
    }

    Scratch partial_;
    Scratch received_;
    Scratch merged_;
    Scratch sums_;
    float* own_ = nullptr;
    std::vector<const float*> parts_; // the next row of each rank's part
    std::vector<float> weights_;
    Exchange exchange_;
};

} // namespace cellar::detail
