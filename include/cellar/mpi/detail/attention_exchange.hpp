// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/merge_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <span>
#include <vector>

namespace cellar::detail {

/// Merges the partial attention of all ranks. A row is the result of a token and head, `dim` floats, and the logarithm
/// of its sum. Memory for the rows is kept from call to call, and allocated if a call needs more than any before.
class AttentionExchange {
public:
    explicit AttentionExchange(int ranks)
        : parts_(static_cast<std::size_t>(ranks)),
          weights_(static_cast<std::size_t>(ranks)),
          counts_(static_cast<std::size_t>(ranks)),
          offsets_(static_cast<std::size_t>(ranks)),
          received_counts_(static_cast<std::size_t>(ranks)),
          received_offsets_(static_cast<std::size_t>(ranks)) {}

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
    /// unless it is null. Every rank gets the same bits. Returns an error code of MPI.
    int merge(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out, float* sums) {
        const std::int64_t bytes = rows * (dim + 1) * std::int64_t{sizeof(float)};
        return bytes * comm.size() <= gathered_bytes ? merge_all(comm, rows, dim, out, sums)
                                                     : merge_shares(comm, rows, dim, out, sums);
    }

    /// Few bytes: every rank gets all parts, and merges all rows.
    int merge_all(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out, float* sums) {
        const std::int64_t size = rows * (dim + 1);
        float* const all = floats(received_, size * comm.size());
        const int code = MPI_Allgather(own_, static_cast<int>(size), MPI_FLOAT, all, static_cast<int>(size), MPI_FLOAT,
                                       comm.handle());
        if (code != MPI_SUCCESS) return code;
        for (std::size_t rank = 0; rank < parts_.size(); ++rank)
            parts_[rank] = all + static_cast<std::int64_t>(rank) * size;
        merge_parts(rows, dim, out, sums);
        return MPI_SUCCESS;
    }

    /// Every rank gets all parts of its share of the rows, merges these, and gets the other shares merged.
    int merge_shares(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out, float* sums) {
        const int own = comm.rank();
        const std::int64_t mine = share(own + 1, rows) - share(own, rows);
        const std::int64_t size = mine * (dim + 1);
        float* const others = floats(received_, size * (comm.size() - 1));
        for (int rank = 0, received = 0; rank < comm.size(); ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            const std::int64_t first = share(rank, rows);
            const bool other = rank != own;
            offsets_[r] = static_cast<int>(first * (dim + 1));
            counts_[r] = other ? static_cast<int>((share(rank + 1, rows) - first) * (dim + 1)) : 0;
            received_counts_[r] = other ? static_cast<int>(size) : 0;
            received_offsets_[r] = static_cast<int>(received * size);
            parts_[r] = other ? others + received * size : own_ + first * (dim + 1);
            received += other ? 1 : 0;
        }
        const int code = MPI_Alltoallv(own_, counts_.data(), offsets_.data(), MPI_FLOAT, others,
                                       received_counts_.data(), received_offsets_.data(), MPI_FLOAT, comm.handle());
        if (code != MPI_SUCCESS) return code;
        const std::int64_t first = share(own, rows);
        merge_parts(mine, dim, out + first * dim, sums == nullptr ? nullptr : sums + first);
        const int gathered = gather_shares(comm, rows, dim, out);
        return gathered != MPI_SUCCESS || sums == nullptr ? gathered : gather_shares(comm, rows, 1, sums);
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
    int gather_shares(const mpi::Communicator& comm, std::int64_t rows, std::int64_t dim, float* out) {
        for (int rank = 0; rank < comm.size(); ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            offsets_[r] = static_cast<int>(share(rank, rows) * dim);
            counts_[r] = static_cast<int>(share(rank + 1, rows) * dim) - offsets_[r];
        }
        return MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, out, counts_.data(), offsets_.data(), MPI_FLOAT,
                              comm.handle());
    }

    Scratch partial_;
    Scratch received_;
    Scratch merged_;
    Scratch sums_;
    float* own_ = nullptr;
    std::vector<const float*> parts_; // the next row of each rank's part
    std::vector<float> weights_;
    std::vector<int> counts_;
    std::vector<int> offsets_;
    std::vector<int> received_counts_;
    std::vector<int> received_offsets_;
};

} // namespace cellar::detail
