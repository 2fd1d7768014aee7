// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/arriving_arrays.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/message.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/detail/transfer_end.hpp>
#include <cellar/mpi/detail/transfers.hpp>
#include <cellar/mpi/detail/wire.hpp>
#include <cellar/mpi/mpi_result.hpp>
#include <cellar/mpi/transfer_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
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

    /// Makes room, and adds where the arrays go.
    virtual Checked<void> take(StoredSource& source, std::vector<StoredArray>& arrays) = 0;
    /// All arrays are there.
    virtual Result<void> finish() = 0;
    /// Gives back what `take` has taken.
    virtual void give_up() noexcept = 0;
};

/// The receiving end of a transfer.
class Receiver final : public TransferEnd {
public:
    Receiver(const mpi::Communicator& comm, int rank, const mpi::ReceiveOptions& options,
             std::unique_ptr<ReceiveTarget> target)
        : TransferEnd{"receive", comm, rank, options, MessageKind::failure},
          model_{options.model},
          is_device_aware_{options.device_aware},
          convert_from_{options.convert_from},
          target_{std::move(target)} {}
    ~Receiver() override { fail(mpi::MpiReason::cancelled, rank(), ": cancelled"); }

    ReceiveTarget& target() { return *target_; }

private:
    /// What is left to come of an array, and where it goes. Integers have come already.
    struct Incoming : ArrivingArray {
        std::uint64_t next = 0; ///< row

        bool takes_rows() const { return to != nullptr || heads != nullptr; }
    };

    void time_out() override {
        fail(error_of_rank(mpi::MpiReason::timed_out, "receive", rank(), {" sent nothing within the time limit"}));
    }
    void malformed(const std::string& problem) {
        fail(error_of_rank(mpi::MpiReason::malformed, "receive", rank(), {": ", problem}));
    }

    // For the rows after this head: memory of the device if they can go straight to cells from there.
    Message take_room(const Message& message, std::int64_t bytes) override {
        MessageHead head;
        if (!is_device_aware_ || message.check_head(head) != MessageFault::none || head.number != number()
            || head.array >= incoming_.size())
            return mailbox().take(bytes);
        const Incoming& incoming = incoming_[static_cast<std::size_t>(head.array)];
        const AnnouncedArray& array = announcement_->arrays()[static_cast<std::size_t>(head.array)];
        if (incoming.to == nullptr || incoming.to->rows->on_device() == nullptr || incoming.to->format != array.format
            || head.bytes == 0 || head.bytes > array.row_bytes * array.shape[0])
            return mailbox().take(bytes);
        DeviceRows& rows = *incoming.to->rows->on_device();
        const auto found = std::find_if(rooms_.begin(), rooms_.end(), [&](const Message& room) {
            return room.room()->owner() == rows.owner() && room.room()->size() >= static_cast<std::int64_t>(head.bytes);
        });
        if (found == rooms_.end()) return Message{rows.make_room(static_cast<std::int64_t>(head.bytes))};
        Message room = std::move(*found);
        rooms_.erase(found);
        return room;
    }

    void give_room(Message rows) override {
        rows.room() != nullptr && !is_over() ? rooms_.push_back(std::move(rows)) : mailbox().give(std::move(rows));
    }

    void take(const MessageHead& head, const Arrival& arrival) override {
        const Message& message = arrival.message;
        if (head.kind == MessageKind::announcement && number() == 0) {
            set_number(head.number);
            accept(message);
        } else if (is_accepted() && (head.kind == MessageKind::block || arrival.has_rows)) {
            take_block(head, arrival.has_rows ? arrival.rows : message);
        } else if (head.kind == MessageKind::lapse) {
            forget();
        } else if (head.kind == MessageKind::end || head.kind == MessageKind::withdrawal) {
            is_last_ = true;
            end_with(read_error(message.received_body(), "receive", rank()));
        } else {
            malformed("a message is out of order");
        }
    }

    // False for messages of older transfers. A newer one takes the place of one that its sender has given up.
    bool is_ours(const MessageHead& head) override {
        const bool begins = head.kind == MessageKind::announcement || head.kind == MessageKind::withdrawal;
        if (begins && head.number > number()) forget();
        return number() == 0 ? begins : head.number == number();
    }
    // Waits for another announcement.
    void forget() noexcept {
        target_->give_up();
        incoming_.clear();
        arrays_.clear();
        rows_left_ = 0;
        set_accepted(false);
        set_number(0);
    }

    void accept(const Message& message) {
        announcement_.emplace(convert_from_);
        if (const auto read = announcement_->read(message.received_body()); !read) return malformed(read.error().text);
        Checked<void> suits;
        if (!model_.empty() && announcement_->model() != model_)
            suits = Problem{"its model is \"" + announcement_->model() + "\", expected \"" + model_ + "\""};
        if (suits) suits = target_->take(*announcement_, arrays_);
        if (suits) suits = connect();
        if (!suits && suits.error().refusal) return fail(refused(*suits.error().refusal));
        if (!suits) return fail({mpi::MpiReason::unsuitable, own_rank(), "receive: " + suits.error().text});
        set_accepted(true);
        post(MessageKind::acceptance);
        if (!is_over()) finish_if_complete();
    }

    // Finds where each announced array goes.
    Checked<void> connect() {
        const auto arriving = arriving_arrays(*announcement_, arrays_);
        if (!arriving) return arriving.error();
        for (const AnnouncedArray& array : announcement_->arrays()) {
            if (array.format == StoredFormat::i32()) {
                incoming_.emplace_back();
                continue;
            }
            const auto found = arriving->find(array.name);
            if (found == arriving->end()) return Problem{"it has " + array.name + ", which this memory does not take"};
            incoming_.push_back({found->second});
            if (array.row_bytes != 0) rows_left_ += array.shape[0];
        }
        return {};
    }

    // `message` has the rows, with or without a head.
    void take_block(const MessageHead& head, const Message& message) {
        if (head.array >= incoming_.size()) return malformed("a block is of no array");
        Incoming& incoming = incoming_[static_cast<std::size_t>(head.array)];
        const AnnouncedArray& array = announcement_->arrays()[static_cast<std::size_t>(head.array)];
        if (!incoming.takes_rows() || array.row_bytes == 0 || head.first != incoming.next || head.rows == 0
            || head.rows > array.shape[0] - incoming.next || head.rows != head.bytes / array.row_bytes
            || head.bytes % array.row_bytes != 0)
            return malformed("a block has other rows than those that follow");
        const bool is_apart = head.kind == MessageKind::block_apart;
        const std::uint32_t crc =
            message.room() != nullptr
                ? incoming.to->rows->on_device()->scatter(head.first, head.rows, message.data())
                : place(incoming, array, head, is_apart ? message.all() : message.received_body());
        if (crc != head.body_crc) return fail(error_of_fault("receive", rank(), MessageFault::altered));
        incoming.next += head.rows;
        rows_left_ -= head.rows;
        finish_if_complete();
    }

    // Returns the checksum. What is written belongs to the transfer alone, so it may be altered bytes.
    std::uint32_t place(const Incoming& incoming, const AnnouncedArray& array, const MessageHead& head,
                        std::span<const std::byte> from) {
        if (incoming.heads != nullptr) {
            const std::uint32_t found = crc32_of(from);
            if (found == head.body_crc) incoming.heads->take(from, incoming.are_scales);
            return found;
        }
        const std::size_t unit = array.format.unit_bytes;
        const std::size_t own_unit = incoming.to->format.unit_bytes;
        const bool is_same = incoming.is_copied();
        Crc32 crc;
        const auto take = [&](std::span<std::byte> to) {
            const std::size_t units = to.size() / own_unit;
            const auto taken = from.first(units * unit);
            from = from.subspan(taken.size());
            if (is_same) return crc.add_copy(taken, to.data(), true);
            crc.add(taken);
            incoming.convert(taken.data(), to.data(), units);
        };
        if (incoming.to->rows->in_place(head.first, head.rows, take)) return crc.value();
        crc.add(from);
        const std::byte* rows = from.data();
        if (!is_same) {
            const std::size_t units = from.size() / unit;
            converted_.reserve(static_cast<std::int64_t>(units * own_unit));
            incoming.convert(rows, converted_.data(), units);
            rows = converted_.data();
        }
        incoming.to->rows->write(head.first, head.rows, rows);
        return crc.value();
    }

    void finish_if_complete() {
        if (rows_left_ != 0) return;
        if (const Result<void> finished = target_->finish(); !finished) return fail(refused(finished.error()));
        post(MessageKind::completion);
        is_last_ = true;
        end_with(std::nullopt);
    }

    void close() noexcept override {
        if (error()) target_->give_up();
        inbox().drop(number(), is_accepted() && !is_last_);
        incoming_.clear();
        arrays_.clear();
        rooms_.clear();
    }

    std::string model_;
    bool is_device_aware_;
    FormatList convert_from_;
    std::unique_ptr<ReceiveTarget> target_;
    std::optional<Announcement> announcement_;
    std::vector<StoredArray> arrays_;
    std::vector<Incoming> incoming_; // of each announced array
    std::uint64_t rows_left_ = 0;
    std::vector<Message> rooms_; // memory of devices, for rows
    Message converted_;
    bool is_last_ = false; // no more messages of the transfer follow
};

} // namespace cellar::detail
