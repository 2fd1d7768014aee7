// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/element/convert_stored.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/arrival.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mpi.h>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Where the data of a transfer goes.
class ReceiveTarget {
public:
    ReceiveTarget() = default;
    ReceiveTarget(const ReceiveTarget&) = delete;
    ReceiveTarget& operator=(const ReceiveTarget&) = delete;
    virtual ~ReceiveTarget() = default;

    /// Why it does not take the transfer.
    struct Answer {
        std::string problem{}; ///< empty if there is none
        std::optional<Refusal> refusal{};
    };
    /// Makes room, and adds where the arrays go.
    virtual Answer take(StoredSource& source, std::vector<StoredArray>& arrays) = 0;
    /// All arrays are there.
    virtual Result<void> finish() = 0;
    /// Gives back what `take` has taken.
    virtual void give_up() noexcept = 0;
};

/// The receiving side of a transfer.
class Receiver {
public:
    Receiver(Transfers& transfers, int rank, const mpi::ReceiveOptions& options, std::unique_ptr<ReceiveTarget> target)
        : transfers_{transfers},
          rank_{rank},
          tag_{options.tag},
          model_{options.model},
          is_device_aware_{options.device_aware},
          patience_{options.time_limit},
          target_{std::move(target)} {}
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;
    ~Receiver() {
        if (!is_over_) fail(mpi::MpiReason::cancelled, rank_, "receive: cancelled");
    }

    /// Does what can be done at once; at most one block. True if the transfer is over.
    bool progress() {
        if (is_over_) return true;
        transfers_.progress();
        bool something = false;
        try {
            something = receive_next();
            if (!is_over_) something = take_first() || something;
        } catch (const std::bad_alloc&) {
            fail(mpi::MpiReason::no_memory, transfers_.own_rank(), "receive: no memory for the transfer");
        }
        if (something) patience_.something_happened();
        if (!is_over_ && !something && patience_.is_over())
            fail({mpi::MpiReason::timed_out, rank_,
                  "receive: rank " + std::to_string(rank_) + " sent nothing within the time limit"});
        return is_over_;
    }

    /// Gives the transfer up, and tells the other process if it has announced something. Without memory for a message,
    /// that process finds out by its time limit.
    void fail(mpi::MpiError error) {
        try {
            if (id_ != 0 && error.reason != mpi::MpiReason::lost) {
                WireWriter out;
                write_error(out, error);
                post(MessageKind::failure, out);
            }
        } catch (const std::bad_alloc&) {}
        end_with(std::move(error), is_accepted_ && !is_last_);
    }
    /// The same, for callers that may have no memory for the text either.
    void fail(mpi::MpiReason reason, int rank, const char* text) { fail(error_with(reason, rank, text)); }

    bool is_over() const { return is_over_; }
    /// Between two calls of `progress`, for a caller that has nothing else to do.
    void yield() const { patience_.yield(); }
    const std::optional<mpi::MpiError>& error() const { return error_; }
    ReceiveTarget& target() { return *target_; }

private:
    /// What is left to come of an array, and where it goes.
    struct Incoming {
        const StoredArray* to = nullptr;
        ConvertElements convert = nullptr;
        std::uint64_t next = 0;
    };

    void post(MessageKind kind, const WireWriter& out) {
        Message message{static_cast<std::int64_t>(out.all().size())};
        std::copy(out.all().begin(), out.all().end(), message.body());
        message.finish({.kind = kind, .transfer = id_, .bytes = out.all().size()});
        check(transfers_.post(rank_, receiver_tag(tag_), std::move(message)));
    }
    void check(int code) {
        if (code != MPI_SUCCESS && !is_over_) end_with(error_of_code("receive", rank_, code), false);
    }
    void malformed(const std::string& problem) {
        fail({mpi::MpiReason::malformed, rank_, "receive: rank " + std::to_string(rank_) + ": " + problem});
    }

    // Two messages are in flight at a time, and the rows of both.
    bool receive_next() {
        const Arrival::Next next = arrivals_.empty() ? Arrival::Next::message : arrivals_.back().next();
        if (next == Arrival::Next::unknown || (next == Arrival::Next::message && arrivals_.size() == 2)) return false;
        Message message = next == Arrival::Next::rows ? take_room(arrivals_.back().message()) : take_spare(nullptr);
        bool is_there = false;
        check(transfers_.receive(rank_, sender_tag(tag_), message, is_there));
        if (is_over_) {
            transfers_.keep(std::move(message));
        } else if (!is_there) {
            spare_.push_back(std::move(message));
        } else if (next == Arrival::Next::rows) {
            arrivals_.back().add_rows(std::move(message));
        } else {
            arrivals_.emplace_back(std::move(message));
        }
        return is_there;
    }

    // Memory of that owner that was used before, if there is any.
    Message take_spare(const void* owner) {
        const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const Message& message) {
            return (message.room() == nullptr ? nullptr : message.room()->owner()) == owner;
        });
        if (found == spare_.end()) return owner == nullptr ? transfers_.take_spare() : Message{};
        Message message = std::move(*found);
        spare_.erase(found);
        return message;
    }

    // For the rows behind this head: memory of the device if they can go straight to cells from there.
    Message take_room(const Message& message) {
        MessageHead head;
        if (!is_device_aware_ || message.check_head(head) != MessageFault::none || head.transfer != id_
            || head.array >= incoming_.size())
            return take_spare(nullptr);
        const Incoming& incoming = incoming_[static_cast<std::size_t>(head.array)];
        const AnnouncedArray& array = announcement_.arrays()[static_cast<std::size_t>(head.array)];
        if (incoming.to == nullptr || incoming.to->on_device == nullptr || incoming.to->element != array.element
            || head.bytes == 0 || head.bytes > array.row_bytes * array.shape[0])
            return take_spare(nullptr);
        DeviceRows& rows = *incoming.to->on_device;
        Message room = take_spare(rows.owner());
        const auto bytes = static_cast<std::int64_t>(head.bytes);
        if (room.room() == nullptr || room.room()->size() < bytes) room = Message{rows.make_room(bytes)};
        return room;
    }

    bool take_first() {
        if (arrivals_.empty() || !arrivals_.front().is_done()) return false;
        Arrival arrival = std::move(arrivals_.front());
        arrivals_.pop_front();
        check(arrival.code());
        if (is_over_) return true;
        const bool is_ours = take(arrival);
        if (arrival.has_rows()) spare_.push_back(std::move(arrival.rows()));
        spare_.push_back(std::move(arrival.message()));
        return is_ours;
    }

    bool take(const Arrival& arrival) {
        const Message& message = arrival.message();
        MessageHead head;
        MessageFault fault = message.check_head(head);
        if (fault == MessageFault::none && is_of_another(head)) return false;
        const bool is_block = is_accepted_ && (head.kind == MessageKind::block || arrival.has_rows());
        if (fault == MessageFault::none && arrival.has_rows()) {
            if (arrival.rows().all().size() != head.bytes) fault = MessageFault::cut;
        } else if (fault == MessageFault::none && !is_block) { // `take_block` checks these
            fault = message.check_body(head);
        }
        if (fault != MessageFault::none) {
            fail(error_of_fault("receive", rank_, fault));
        } else if (head.kind == MessageKind::announcement && id_ == 0) {
            id_ = head.transfer;
            accept(message);
        } else if (is_block) {
            take_block(head, arrival.has_rows() ? arrival.rows() : message);
        } else if (head.kind == MessageKind::end || head.kind == MessageKind::withdrawal) {
            is_last_ = true;
            end_with(read_error(message.received_body(), "receive", rank_), false);
        } else {
            malformed("a message is out of order");
        }
        return true;
    }

    // Messages of older transfers that failed.
    bool is_of_another(const MessageHead& head) {
        const bool begins = head.kind == MessageKind::announcement || head.kind == MessageKind::withdrawal;
        if (id_ == 0 ? begins : head.transfer == id_) return false;
        if (head.kind == MessageKind::end) transfers_.has_ended(rank_, sender_tag(tag_), head.transfer);
        return true;
    }

    void accept(const Message& message) {
        if (const std::string problem = announcement_.read(message.received_body()); !problem.empty())
            return malformed(problem);
        ReceiveTarget::Answer answer;
        if (!model_.empty() && announcement_.model() != model_)
            answer.problem = "its model is \"" + announcement_.model() + "\", expected \"" + model_ + "\"";
        if (answer.problem.empty()) answer = target_->take(announcement_, arrays_);
        if (answer.problem.empty() && !answer.refusal) answer.problem = connect();
        if (answer.refusal) return refuse(*answer.refusal);
        if (!answer.problem.empty())
            return fail({mpi::MpiReason::unsuitable, transfers_.own_rank(), "receive: " + answer.problem});
        is_accepted_ = true;
        post(MessageKind::acceptance, {});
        if (!is_over_) finish_if_complete();
    }
    void refuse(const Refusal& refusal) {
        fail({mpi::MpiReason::refused, transfers_.own_rank(), "receive: the memory refuses: " + to_string(refusal),
              refusal});
    }

    // Finds where each announced array goes. Returns why that is not possible; else an empty string.
    std::string connect() {
        std::map<std::string, const StoredArray*> targets;
        for (const StoredArray& array : arrays_) targets.emplace(array.name, &array);
        for (const AnnouncedArray& array : announcement_.arrays()) {
            Incoming incoming;
            if (array.element != StoredElement::i32) {
                const auto found = targets.find(array.name);
                if (found == targets.end() || found->second->shape != array.shape)
                    return "it has " + array.name + ", which this memory does not take";
                incoming = {found->second, conversion_of(array.element, found->second->element), 0};
                if (array.row_bytes != 0) rows_left_ += array.shape[0];
                targets.erase(found);
            }
            incoming_.push_back(incoming);
        }
        return targets.empty() ? "" : "it has no " + targets.begin()->first;
    }

    // `message` has the rows, with or without a head.
    void take_block(const MessageHead& head, const Message& message) {
        if (head.array >= incoming_.size()) return malformed("a block is of no array");
        Incoming& incoming = incoming_[static_cast<std::size_t>(head.array)];
        const AnnouncedArray& array = announcement_.arrays()[static_cast<std::size_t>(head.array)];
        if (incoming.to == nullptr || array.row_bytes == 0 || head.first != incoming.next || head.rows == 0
            || head.rows > array.shape[0] - incoming.next || head.rows != head.bytes / array.row_bytes
            || head.bytes % array.row_bytes != 0)
            return malformed("a block has other rows than those that follow");
        const bool is_apart = head.kind == MessageKind::block_apart;
        const std::uint32_t crc =
            message.room() != nullptr
                ? incoming.to->on_device->scatter(head.first, head.rows, message.data())
                : place(incoming, array, head, is_apart ? message.all() : message.received_body());
        if (crc != head.body_crc) return fail(error_of_fault("receive", rank_, MessageFault::altered));
        incoming.next += head.rows;
        rows_left_ -= head.rows;
        finish_if_complete();
    }

    // Returns the checksum. What is written belongs to the transfer alone, so it may be altered bytes.
    std::uint32_t place(const Incoming& incoming, const AnnouncedArray& array, const MessageHead& head,
                        std::span<const std::byte> from) {
        const std::size_t size = bytes_of(incoming.to->element);
        const std::size_t row = static_cast<std::size_t>(array.row_bytes) / bytes_of(array.element) * size;
        const std::size_t elements = from.size() / bytes_of(array.element);
        std::byte* to = static_cast<std::byte*>(incoming.to->data);
        if (to != nullptr) to += head.first * row;
        Crc32 crc;
        if (array.element == incoming.to->element && (to != nullptr || incoming.to->pieces)) {
            const auto take = [&](std::byte* at, std::size_t n) {
                crc.add_copy(from.first(n), at, true);
                from = from.subspan(n);
            };
            to != nullptr ? take(to, from.size()) : incoming.to->pieces(head.first, head.rows, take);
            return crc.value();
        }
        crc.add(from);
        if (to != nullptr) {
            incoming.convert(from.data(), to, elements);
        } else if (array.element == incoming.to->element) {
            incoming.to->write(head.first, head.rows, from.data());
        } else {
            converted_.reserve(static_cast<std::int64_t>(elements * size));
            incoming.convert(from.data(), converted_.data(), elements);
            incoming.to->write(head.first, head.rows, converted_.data());
        }
        return crc.value();
    }

    void finish_if_complete() {
        if (rows_left_ != 0) return;
        if (const Result<void> finished = target_->finish(); !finished) return refuse(finished.error());
        post(MessageKind::completion, {});
        end_with(std::nullopt, false);
    }

    // `more_follow`: messages of the transfer are still to come.
    void end_with(std::optional<mpi::MpiError> error, bool more_follow) {
        if (is_over_) return;
        is_over_ = true;
        if (error) target_->give_up();
        error_ = std::move(error);
        try {
            if (more_follow) transfers_.drop_rest(rank_, sender_tag(tag_), id_);
            std::deque<Message> left;
            for (Arrival& arrival : arrivals_) arrival.move_to(left);
            transfers_.give_back(rank_, sender_tag(tag_), std::move(left));
        } catch (const std::bad_alloc&) {} // what is left to receive is lost
        arrivals_.clear();
        for (Message& message : spare_) transfers_.give_spare(std::move(message));
        spare_.clear();
        arrays_.clear();
        transfers_.close(rank_, sender_tag(tag_));
    }

    Transfers& transfers_;
    int rank_;
    int tag_;
    std::string model_;
    bool is_device_aware_;
    Patience patience_;
    std::unique_ptr<ReceiveTarget> target_;
    std::uint64_t id_ = 0; // of the transfer, once it is announced
    Announcement announcement_;
    std::vector<StoredArray> arrays_;
    std::vector<Incoming> incoming_; // of each announced array
    std::uint64_t rows_left_ = 0;
    std::deque<Arrival> arrivals_; // being received, in their order
    std::vector<Message> spare_;
    Message converted_;
    bool is_accepted_ = false;
    bool is_last_ = false; // no more messages of the transfer follow
    bool is_over_ = false;
    std::optional<mpi::MpiError> error_;
};

} // namespace cellar::detail
