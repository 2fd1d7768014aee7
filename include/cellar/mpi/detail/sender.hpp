// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/crc32.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mpi.h>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The sending side of a transfer. It announces a snapshot, waits for the receiver to accept it, and sends its rows in
/// blocks, a few of which are in flight at a time.
class Sender {
public:
    /// `transfers` and what `stored` reads must outlive it.
    Sender(Transfers& transfers, int rank, const mpi::SendOptions& options)
        : transfers_{transfers},
          rank_{rank},
          tag_{options.tag},
          block_{options.block},
          id_{transfers.next_id()},
          patience_{options.time_limit} {}
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;
    ~Sender() {
        if (!is_over_) fail({mpi::MpiReason::cancelled, rank_, "send: cancelled"});
        close();
    }

    void announce(StoredSnapshot stored, const std::string& model) {
        WireWriter out;
        Announcement::write(out, model, stored);
        stored_ = std::move(stored);
        for (const StoredArray& array : stored_.arrays) {
            const std::uint64_t rows = array.element == StoredElement::i32 ? 0 : array.shape[0];
            const std::uint64_t row = row_bytes_of(array.element, array.shape).value_or(0);
            CELLAR_EXPECTS(row < std::uint64_t{1} << 30, "send: a row of ", array.name, " has ", row,
                           " bytes, expected less than 2^30");
            queues_.push_back({row, 0, array.comes_later ? 0 : rows, rows});
        }
        for (const Queue& queue : queues_) block_ = std::max(block_, static_cast<std::int64_t>(queue.row_bytes));
        post(MessageKind::announcement, out, static_cast<std::uint64_t>(block_));
    }
    /// In place of an announcement.
    void withdraw(mpi::MpiError error) {
        WireWriter out;
        write_error(out, error);
        post(MessageKind::withdrawal, out);
        end_with(std::move(error));
    }

    /// Rows up to this position of an array whose positions are those of another one are there.
    void rows_are_there(const std::string& name, const std::string& positions, Position end) {
        if (is_over_) return;
        const auto index = [&](const std::string& wanted) {
            std::size_t i = 0;
            while (i < queues_.size() && stored_.arrays[i].name != wanted) ++i;
            return i;
        };
        const std::size_t of_rows = index(name);
        const std::size_t of_positions = index(positions);
        if (of_rows == queues_.size() || of_positions == queues_.size()) return;
        const StoredArray& list = stored_.arrays[of_positions];
        const auto* const first = static_cast<const std::int32_t*>(list.read(0, list.shape[0]));
        const auto below = std::lower_bound(first, first + list.shape[0], end.value) - first;
        queues_[of_rows].ready = std::max(queues_[of_rows].ready, static_cast<std::uint64_t>(below));
    }
    /// All rows are there, in the snapshot that was announced. False if it is another one.
    bool complete(StoredSnapshot stored) {
        if (is_over_) return true;
        if (stored.numbers != stored_.numbers || stored.arrays.size() != stored_.arrays.size()) return false;
        for (std::size_t i = 0; i < stored.arrays.size(); ++i)
            if (stored.arrays[i].name != stored_.arrays[i].name || stored.arrays[i].shape != stored_.arrays[i].shape)
                return false;
        stored_ = std::move(stored);
        for (Queue& queue : queues_) queue.ready = queue.end;
        return true;
    }

    /// Does what can be done at once; at most one block. True if the transfer is over.
    bool progress() {
        if (is_over_) return true;
        transfers_.progress();
        bool something = false;
        try {
            something = read_answers();
            if (!is_over_ && is_accepted_) something = send_block() || something;
        } catch (const std::bad_alloc&) {
            fail({mpi::MpiReason::no_memory, transfers_.own_rank(), "send: no memory for a block"});
        }
        if (something) patience_.something_happened();
        if (!is_over_ && !something && patience_.is_over())
            fail({mpi::MpiReason::timed_out, rank_,
                  "send: rank " + std::to_string(rank_) + " did nothing within the time limit"});
        return is_over_;
    }

    /// Gives the transfer up, and tells the other process.
    void fail(mpi::MpiError error) {
        WireWriter out;
        write_error(out, error);
        if (error.reason != mpi::MpiReason::lost) post(MessageKind::end, out);
        end_with(std::move(error));
    }

    bool is_over() const { return is_over_; }
    /// Between two calls of `progress`, for a caller that has nothing else to do.
    void yield() const { patience_.yield(); }
    const std::optional<mpi::MpiError>& error() const { return error_; }

private:
    /// The rows of an array that are left.
    struct Queue {
        std::uint64_t row_bytes;
        std::uint64_t next;
        std::uint64_t ready; ///< those before are there
        std::uint64_t end;
    };

    void post(MessageKind kind, const WireWriter& out, std::uint64_t number = 0) {
        Message message{static_cast<std::int64_t>(out.all().size())};
        std::copy(out.all().begin(), out.all().end(), message.body());
        message.finish({.kind = kind, .transfer = id_, .rows = number, .bytes = out.all().size()});
        check(transfers_.post(rank_, sender_tag(tag_), std::move(message)));
    }

    void check(int code) {
        if (code != MPI_SUCCESS && !is_over_) end_with(error_of_code("send", rank_, code));
    }

    bool read_answers() {
        bool something = false;
        if (!answer_) {
            Message message;
            bool is_there = false;
            check(transfers_.receive(rank_, receiver_tag(tag_), message, is_there));
            if (!is_there) return false;
            answer_.emplace(std::move(message));
        }
        bool is_done = false;
        const int code = Transfers::test(*answer_, is_done);
        if (!is_done) return false;
        const Message message = *std::exchange(answer_, std::nullopt);
        check(code);
        if (!is_over_) something = read_answer(message);
        return something;
    }

    bool read_answer(const Message& message) {
        MessageHead head;
        MessageFault fault = message.check_head(head);
        if (fault == MessageFault::none && head.transfer != id_) return false; // of an older one
        if (fault == MessageFault::none) fault = message.check_body(head);
        if (fault != MessageFault::none) {
            fail(error_of_fault("send", rank_, fault));
        } else if (head.kind == MessageKind::acceptance && !is_accepted_) {
            is_accepted_ = true;
        } else if (head.kind == MessageKind::completion && is_accepted_ && is_all_sent()) {
            end_with(std::nullopt);
        } else if (head.kind == MessageKind::failure) {
            mpi::MpiError error = read_error(message.received_body(), "send", rank_);
            if (is_accepted_) post(MessageKind::end, {}); // blocks may be in flight
            end_with(std::move(error));
        } else {
            fail({mpi::MpiReason::malformed, rank_,
                  "send: rank " + std::to_string(rank_) + " answers what was not asked"});
        }
        return true;
    }

    bool is_all_sent() const {
        return std::all_of(queues_.begin(), queues_.end(), [](const Queue& q) { return is_empty(q); });
    }
    static bool is_empty(const Queue& queue) { return queue.next == queue.end || queue.row_bytes == 0; }

    // Tests the blocks in flight, and sends another one if there is room.
    bool send_block() {
        bool something = false;
        Message* room = nullptr;
        for (Message& message : in_flight_) {
            const bool was_busy = message.request() != MPI_REQUEST_NULL;
            bool is_done = false;
            check(Transfers::test(message, is_done));
            something = something || (was_busy && is_done);
            if (is_done) room = &message;
        }
        if (is_over_ || room == nullptr) return something;
        while (at_ < queues_.size() && is_empty(queues_[at_])) ++at_; // for good
        std::size_t at = at_;
        while (at < queues_.size() && (is_empty(queues_[at]) || queues_[at].next == queues_[at].ready)) ++at;
        if (at == queues_.size()) return something;
        fill(*room, at);
        check(transfers_.send(rank_, sender_tag(tag_), *room));
        return true;
    }

    void fill(Message& message, std::size_t at) {
        Queue& queue = queues_[at];
        const StoredArray& array = stored_.arrays[at];
        const std::uint64_t count =
            std::min(queue.ready - queue.next, static_cast<std::uint64_t>(block_) / queue.row_bytes);
        if (message.data() == nullptr) message = transfers_.take_spare();
        message.reserve_body(block_);
        Crc32 crc;
        const auto bytes = static_cast<std::size_t>(count * queue.row_bytes);
        if (array.pieces) {
            std::byte* to = message.body();
            array.pieces(queue.next, count, [&](const std::byte* from, std::size_t n) {
                add_copy(crc, {from, n}, to);
                to += n;
            });
        } else if (array.copy) {
            array.copy(queue.next, count, message.body());
            crc.add({message.body(), bytes});
        } else {
            add_copy(crc, {static_cast<const std::byte*>(array.read(queue.next, count)), bytes}, message.body());
        }
        const MessageHead head{.kind = MessageKind::block,
                               .transfer = id_,
                               .array = at,
                               .first = queue.next,
                               .rows = count,
                               .bytes = bytes};
        message.finish(head, crc.value());
        queue.next += count;
    }

    // Piece by piece, so that each is read from memory once, and ahead of time: the checksum alone would wait for each
    // line. The copy stays in the caches, where the other process finds it.
    static void add_copy(Crc32& crc, std::span<const std::byte> from, std::byte* to) {
        constexpr std::size_t piece = 65536;
        for (; !from.empty(); from = from.subspan(std::min(piece, from.size()))) {
            prefetch(from.subspan(std::min(2 * piece, from.size())), piece);
            const std::size_t n = std::min(piece, from.size());
            crc.add_copy(from.first(n), to, false);
            to += n;
        }
    }
    static void prefetch([[maybe_unused]] std::span<const std::byte> bytes, [[maybe_unused]] std::size_t n) {
#if defined(__GNUC__)
        for (std::size_t i = 0; i < std::min(n, bytes.size()); i += 64) __builtin_prefetch(bytes.data() + i, 0, 2);
#endif
    }

    void end_with(std::optional<mpi::MpiError> error) {
        if (is_over_) return;
        is_over_ = true;
        error_ = std::move(error);
        close();
    }
    // MPI may still use messages.
    void close() {
        for (Message& message : in_flight_) {
            const bool is_busy = message.request() != MPI_REQUEST_NULL;
            is_busy ? transfers_.keep(std::move(message)) : transfers_.give_spare(std::move(message));
        }
        if (answer_) transfers_.keep(*std::exchange(answer_, std::nullopt));
        stored_ = {};
        if (is_open_) transfers_.close(rank_, receiver_tag(tag_));
        is_open_ = false;
    }

    Transfers& transfers_;
    int rank_;
    int tag_;
    std::int64_t block_; // bytes
    std::uint64_t id_;
    Patience patience_;
    StoredSnapshot stored_;
    std::vector<Queue> queues_; // of each array
    std::size_t at_ = 0;        // all arrays before are sent
    std::array<Message, 4> in_flight_;
    std::optional<Message> answer_; // being received
    bool is_open_ = true;
    bool is_accepted_ = false;
    bool is_over_ = false;
    std::optional<mpi::MpiError> error_;
};

} // namespace cellar::detail
