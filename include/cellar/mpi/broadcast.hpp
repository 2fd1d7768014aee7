// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mpi.h>
#include <new>
#include <span>
#include <vector>

namespace cellar::mpi {

/// A batch and the ids of its tokens, as one message: what one rank decides for all. Keeps its memory from batch to
/// batch.
class SharedBatch {
public:
    /// A batch of at most this many tokens is one message, a longer one is two. The first message always has room for
    /// so many tokens: 20 bytes each, and 12 more.
    explicit SharedBatch(std::int32_t tokens_in_first_message = 64, Where where = Where::current())
        : first_{header + values * expect_room(tokens_in_first_message, where)} {
        message_.resize(static_cast<std::size_t>(first_));
    }

    /// Copies the batch and the ids of its tokens, which may be left out. The batch has no list of stored tokens.
    void assign(const Batch& batch, std::span<const std::int32_t> ids = {}, Where where = Where::current()) {
        const auto tokens = static_cast<std::size_t>(batch.tokens());
        CELLAR_EXPECTS_AT(where, batch.sequences.size() == tokens, "SharedBatch: ", batch.sequences.size(),
                          " sequences, expected one for each of ", tokens, " positions");
        CELLAR_EXPECTS_AT(where, batch.groups.empty() || batch.groups.size() == tokens,
                          "SharedBatch: ", batch.groups.size(), " groups, expected none or one for each of ", tokens,
                          " tokens");
        CELLAR_EXPECTS_AT(where, batch.stored.empty(),
                          "SharedBatch: a list of stored tokens, expected none: every rank stores other ones");
        CELLAR_EXPECTS_AT(where, batch.parents.empty() || batch.parents.size() == tokens,
                          "SharedBatch: ", batch.parents.size(), " parents, expected none or one for each of ", tokens,
                          " tokens");
        CELLAR_EXPECTS_AT(where, ids.empty() || ids.size() == tokens, "SharedBatch: ", ids.size(),
                          " ids, expected none or one for each of ", tokens, " tokens");
        CELLAR_EXPECTS_AT(where, tokens < (std::size_t{1} << 26), "SharedBatch: ", tokens,
                          " tokens, expected fewer than 2^26");
        reserve_message(header + values * tokens);
        message_[0] = version;
        message_[1] = static_cast<std::int32_t>(tokens);
        message_[2] = (batch.groups.empty() ? 0 : has_groups) + (ids.empty() ? 0 : has_ids)
                      + (batch.parents.empty() ? 0 : has_parents);
        std::int32_t* out = message_.data() + header;
        for (const Position p : batch.positions) *out++ = p.value;
        for (const Sequence s : batch.sequences) *out++ = s.value;
        out = std::copy(batch.groups.begin(), batch.groups.end(), out);
        out = std::copy(batch.parents.begin(), batch.parents.end(), out);
        std::copy(ids.begin(), ids.end(), out);
    }

    std::int32_t tokens() const { return message_[1]; }

    /// Valid until the next change.
    Batch batch() const {
        const auto n = static_cast<std::size_t>(tokens());
        return {.positions = {list(0), n},
                .sequences = {list(1), n},
                .groups = {list(2), has(has_groups) != 0 ? n : 0},
                .parents = {list(2 + has(has_groups)), has(has_parents) != 0 ? n : 0}};
    }
    operator Batch() const { return batch(); }

    /// One for each token, or none. Valid until the next change.
    std::span<const std::int32_t> ids() const {
        return {list(2 + has(has_groups) + has(has_parents)),
                has(has_ids) != 0 ? static_cast<std::size_t>(tokens()) : 0};
    }

    /// The batch as numbers, for a program that sends it by other means. Valid until the next change.
    std::span<const std::int32_t> message() const {
        return {message_.data(), static_cast<std::size_t>(size_of(message_))};
    }
    /// Sets memory aside for messages of so many numbers. Changes nothing else.
    void reserve_message(std::size_t numbers) {
        if (message_.size() < numbers) message_.resize(numbers);
    }
    /// Returns false, with nothing changed, if these are not the numbers of a batch. Allocates only what
    /// `reserve_message` has not set aside.
    bool assign_message(std::span<const std::int32_t> numbers) {
        if (size_of(numbers) != std::ssize(numbers)) return false;
        reserve_message(numbers.size());
        std::copy(numbers.begin(), numbers.end(), message_.begin());
        return true;
    }

private:
    friend MpiResult<void> broadcast(const Communicator& comm, SharedBatch& shared, int root, Where where);

    static constexpr std::int32_t version = 0x63420002;
    static constexpr std::int32_t has_groups = 1;
    static constexpr std::int32_t has_ids = 2;
    static constexpr std::int32_t has_parents = 4;
    static constexpr int header = 3;
    static constexpr int values = 5; // of a token at most

    static std::int32_t expect_room(std::int32_t tokens, Where where) {
        CELLAR_EXPECTS_AT(where, tokens >= 0 && tokens < (1 << 26), "SharedBatch: ", tokens, " tokens, expected 0 to ",
                          (1 << 26) - 1);
        return tokens;
    }

    // 1 if the message has such a list, else 0.
    int has(std::int32_t flag) const { return (message_[2] & flag) != 0 ? 1 : 0; }

    const std::int32_t* list(int i) const { return message_.data() + header + i * std::int64_t{tokens()}; }

    // How many numbers the message has that begins with these; -1 if no message does.
    static int size_of(std::span<const std::int32_t> begin) {
        if (begin.size() < static_cast<std::size_t>(header) || begin[0] != version || begin[1] < 0
            || begin[1] >= (1 << 26) || begin[2] < 0 || begin[2] > has_groups + has_ids + has_parents)
            return -1;
        return header + (2 + std::popcount(static_cast<std::uint32_t>(begin[2]))) * begin[1];
    }

    int first_;                                        // numbers in the first message
    std::vector<std::int32_t> message_{version, 0, 0}; // version, tokens, which lists, then the lists one by one
};

/// The batch of rank `root` replaces those of all others, which were made with the same size. Collective: waits as
/// MPI_Bcast does. After an error, this rank's batch is unspecified. A rank without memory for a longer batch than any
/// before throws `std::bad_alloc`, and must not go on with this communicator: it has missed a message.
/// `SharedBatch::reserve_message` sets the memory aside.
inline MpiResult<void> broadcast(const Communicator& comm, SharedBatch& shared, int root,
                                 Where where = Where::current()) {
    detail::expect_valid("broadcast", comm, where);
    CELLAR_EXPECTS_AT(where, root >= 0 && root < comm.size(), "broadcast: rank ", root, ", expected 0 to ",
                      comm.size() - 1);
    const auto send = [&](int from, int size) {
        return MPI_Bcast(shared.message_.data() + from, size, MPI_INT32_T, root, comm.handle());
    };
    if (const int code = send(0, shared.first_); code != MPI_SUCCESS)
        return detail::error_of_code("broadcast", root, code);
    const int size = SharedBatch::size_of(shared.message_);
    if (size < 0)
        return detail::error_of_rank(MpiReason::malformed, "broadcast", root,
                                     {" sent no batch, expected one of the same version of cellar"});
    if (size <= shared.first_) return {};
    try {
        shared.reserve_message(static_cast<std::size_t>(size));
    } catch (const std::bad_alloc&) {
        shared.assign(Batch{});
        throw;
    }
    if (const int code = send(shared.first_, size - shared.first_); code != MPI_SUCCESS)
        return detail::error_of_code("broadcast", root, code);
    return {};
}

} // namespace cellar::mpi
