// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/memory/format_conversion.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>
#include <cellar/simd/lines.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mpi.h>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The sending end of a transfer. It announces a snapshot, waits for the receiver to accept it, and sends its rows in
/// blocks, a few of which are in flight at a time.
class Sender final : public TransferEnd {
public:
    Sender(const mpi::Communicator& comm, int rank, const mpi::SendOptions& options)
        : TransferEnd{"send", comm, rank, options, MessageKind::end},
          block_{options.block},
          is_device_aware_{options.device_aware},
          send_as_{options.send_as} {
        CELLAR_EXPECTS(block_ >= 1 << 20 && block_ <= 1 << 30, "send: blocks of ", block_,
                       " bytes, expected 2^20 to 2^30");
        set_number(comm.transfers().next_number());
    }
    ~Sender() override { fail(mpi::MpiReason::cancelled, rank(), ": cancelled"); }

    /// Keeps what it reads until the transfer is over.
    void hold(std::shared_ptr<const void> held) { held_ = std::move(held); }
    bool holds() const { return held_ != nullptr; }

    /// Announces what `save(stored)` adds to a snapshot, or that there is no memory for it, or that its heads do not
    /// suit the format that they are to be sent in.
    template <class Save>
    void announce(const std::string& model, Save save) {
        try {
            StoredSnapshot stored;
            save(stored);
            if (const auto done = convert_arrays(stored.arrays, send_as_); !done)
                return withdraw({mpi::MpiReason::unsuitable, own_rank(), "send: " + done.error().text});
            announce(std::move(stored), model);
        } catch (const std::bad_alloc&) {
            withdraw({mpi::MpiReason::no_memory, own_rank(), "send: no memory for the transfer"});
        }
    }
    /// In place of an announcement.
    void withdraw(mpi::MpiError error) {
        post(MessageKind::withdrawal, error);
        end_with(std::move(error));
    }

    /// Rows up to this position of an array whose positions are those of another one are there.
    void rows_are_there(const std::string& name, const std::string& positions, Position end) {
        if (is_over()) return;
        const auto index = [&](const std::string& wanted) {
            std::size_t i = 0;
            while (i < queues_.size() && stored_.arrays[i].name != wanted) ++i;
            return i;
        };
        const std::size_t of_rows = index(name);
        const std::size_t of_positions = index(positions);
        if (of_rows == queues_.size() || of_positions == queues_.size()) return;
        const StoredArray& list = stored_.arrays[of_positions];
        const auto* const first = reinterpret_cast<const std::int32_t*>(list.on_host().data());
        const auto below = std::lower_bound(first, first + list.shape[0], end.value) - first;
        queues_[of_rows].ready = std::max(queues_[of_rows].ready, static_cast<std::uint64_t>(below));
    }
    /// All rows are there, in the snapshot that was announced. False if it is another one.
    bool complete(StoredSnapshot stored) {
        if (is_over()) return true;
        convert_arrays(stored.arrays, send_as_).value(); // as what was announced
        if (stored.numbers != stored_.numbers || stored.arrays.size() != stored_.arrays.size()) return false;
        for (std::size_t i = 0; i < stored.arrays.size(); ++i)
            if (stored.arrays[i].name != stored_.arrays[i].name || stored.arrays[i].shape != stored_.arrays[i].shape)
                return false;
        stored_ = std::move(stored);
        for (Queue& queue : queues_) queue.ready = queue.end;
        return true;
    }

private:
    /// The rows of an array that are left.
    struct Queue {
        std::uint64_t row_bytes;
        std::uint64_t next;
        std::uint64_t ready; ///< those before are there
        std::uint64_t end;
    };

    /// A block in flight. `head`: if it is a message of its own.
    struct Block {
        Message message;
        Message head;
    };

    void announce(StoredSnapshot stored, const std::string& model) {
        WireWriter out;
        Announcement::write(out, model, stored);
        stored_ = std::move(stored);
        for (const StoredArray& array : stored_.arrays) {
            const std::uint64_t rows = array.format == StoredFormat::i32() ? 0 : array.shape[0];
            const std::uint64_t row = row_bytes_of(array.format, array.shape).value_or(0);
            CELLAR_EXPECTS(row < std::uint64_t{1} << 30, "send: a row of ", array.name, " has ", row,
                           " bytes, expected less than 2^30");
            queues_.push_back({row, 0, array.comes_later ? 0 : rows, rows});
        }
        for (const Queue& queue : queues_) block_ = std::max(block_, static_cast<std::int64_t>(queue.row_bytes));
        post(MessageKind::announcement, out.all());
    }

    void time_out() override {
        mpi::MpiError error =
            error_of_rank(mpi::MpiReason::timed_out, "send", rank(), {" did nothing within the time limit"});
        if (is_accepted()) return fail(std::move(error));
        try {
            post(MessageKind::lapse);
        } catch (const std::bad_alloc&) {}
        end_with(std::move(error));
    }

    bool is_ours(const MessageHead& head) override { return head.number == number(); }
    void take(const MessageHead& head, const Arrival& arrival) override {
        if (head.kind == MessageKind::acceptance && !is_accepted()) {
            set_accepted(true);
        } else if (head.kind == MessageKind::completion && is_accepted() && is_all_sent()) {
            end_with(std::nullopt);
        } else if (head.kind == MessageKind::failure) {
            mpi::MpiError error = read_error(arrival.message.received_body(), "send", rank());
            if (is_accepted()) post(MessageKind::end); // blocks may be in flight
            end_with(std::move(error));
        } else {
            fail(error_of_rank(mpi::MpiReason::malformed, "send", rank(), {" answers what was not asked"}));
        }
    }

    bool is_all_sent() const {
        return std::all_of(queues_.begin(), queues_.end(), [](const Queue& q) { return is_empty(q); });
    }
    static bool is_empty(const Queue& queue) { return queue.next == queue.end || queue.row_bytes == 0; }

    // Tests the blocks in flight, and sends another one if there is room.
    bool send_some() override {
        if (!is_accepted()) return false;
        bool something = false;
        Block* block = nullptr;
        for (Block& sent : in_flight_) {
            bool is_free = true;
            for (Message* const message : {&sent.head, &sent.message}) {
                const bool was_busy = message->request() != MPI_REQUEST_NULL;
                bool is_done = false;
                check(message->test(is_done));
                something = something || (was_busy && is_done);
                is_free = is_free && is_done;
            }
            if (is_free) block = &sent;
        }
        if (is_over() || block == nullptr) return something;
        while (at_ < queues_.size() && is_empty(queues_[at_])) ++at_; // for good
        std::size_t at = at_;
        while (at < queues_.size() && (is_empty(queues_[at]) || queues_[at].next == queues_[at].ready)) ++at;
        if (at == queues_.size()) return something;
        Queue& queue = queues_[at];
        const StoredArray& array = stored_.arrays[at];
        const std::uint64_t count =
            std::min(queue.ready - queue.next, static_cast<std::uint64_t>(block_) / queue.row_bytes);
        const MessageHead head{.kind = MessageKind::block,
                               .number = number(),
                               .array = at,
                               .first = queue.next,
                               .rows = count,
                               .bytes = count * queue.row_bytes};
        const bool is_apart = is_device_aware_ && array.rows->on_device() != nullptr;
        is_apart ? fill_on_device(*block, array, head) : fill(block->message, array, head);
        queue.next += count;
        // Nothing may come between a head and its rows.
        if (is_apart) send(block->head);
        if (!is_over()) send(block->message);
        return true;
    }

    void fill(Message& message, const StoredArray& array, const MessageHead& head) {
        if (message.data() == nullptr || message.room() != nullptr)
            message = mailbox().take(block_ + std::int64_t{sizeof(MessageHead)});
        Crc32 crc;
        const auto bytes = static_cast<std::size_t>(head.bytes);
        std::byte* to = message.body();
        const auto copy = [&](std::span<const std::byte> from) {
            add_copy(crc, from, to);
            to += from.size();
        };
        if (!array.rows->in_place(head.first, head.rows, copy)) {
            array.rows->read(head.first, head.rows, to);
            crc.add({to, bytes});
        }
        message.finish(head, crc.value());
    }

    // The rows leave from memory of the device, where the host cannot write a head.
    void fill_on_device(Block& block, const StoredArray& array, MessageHead head) {
        DeviceRows& rows = *array.rows->on_device();
        Message& message = block.message;
        if (message.room() == nullptr || message.room()->owner() != rows.owner()) {
            Message on_device{rows.make_room(block_)};
            std::swap(message, on_device);
            mailbox().give(std::move(on_device));
        }
        const std::uint32_t crc = rows.gather(head.first, head.rows, message.data());
        message.set_size(static_cast<std::int64_t>(head.bytes));
        head.kind = MessageKind::block_apart;
        block.head.reserve_body(0);
        block.head.finish(head, crc);
    }

    // Piece by piece, so that each is read from memory once, and ahead of time: the checksum alone would wait for each
    // line. The copy stays in the caches, where the other process finds it.
    static void add_copy(Crc32& crc, std::span<const std::byte> from, std::byte* to) {
        constexpr std::size_t piece = 65536;
        for (; !from.empty(); from = from.subspan(std::min(piece, from.size()))) {
            const std::span<const std::byte> later = from.subspan(std::min(2 * piece, from.size()));
            prefetch<CacheLevel::second>(later.data(), std::min<std::int64_t>(piece, std::ssize(later)));
            const std::size_t n = std::min(piece, from.size());
            crc.add_copy(from.first(n), to, false);
            to += n;
        }
    }

    // MPI may still use messages.
    void close() noexcept override {
        for (Block& block : in_flight_) {
            mailbox().give(std::move(block.message));
            mailbox().give(std::move(block.head));
        }
        stored_ = {};
        held_ = nullptr;
    }

    std::int64_t block_; // bytes
    bool is_device_aware_;
    StoredAs send_as_;
    std::shared_ptr<const void> held_;
    StoredSnapshot stored_;
    std::vector<Queue> queues_; // of each array
    std::size_t at_ = 0;        // all arrays before are sent
    std::array<Block, 4> in_flight_;
};

} // namespace cellar::detail
