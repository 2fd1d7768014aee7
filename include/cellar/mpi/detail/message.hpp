// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/huge_pages.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/crc/crc32.hpp>
#include <cellar/memory/device_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <memory>
#include <mpi.h>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

enum class MessageKind : std::uint16_t {
    // Of a transfer.
    announcement = 1, ///< sender: what follows, and the positions
    withdrawal,       ///< sender, in place of an announcement: why there is nothing to send
    block,            ///< sender: rows of one array
    block_apart,      ///< sender: as a block, but its rows are the next message, which has no head
    lapse,            ///< sender, its last message: nobody has accepted the announcement within its time limit
    end,              ///< sender, its last message after any other failure: why
    acceptance,       ///< receiver: blocks may follow
    completion,       ///< receiver: everything has arrived and is in its memory
    failure,          ///< receiver: why it takes nothing
    // Of a pipeline.
    operation, ///< for the next stage
    answer,    ///< for the first stage: whether this one can
    verdict,   ///< of the first stage: whether all do it
};

/// No message of the transfer follows.
constexpr bool ends_transfer(MessageKind kind) {
    return kind == MessageKind::withdrawal || kind == MessageKind::lapse || kind == MessageKind::end;
}

/// The beginning of every message from one rank to another, in the byte order of the sender. What follows begins at a
/// multiple of 64 bytes.
struct MessageHead {
    static constexpr std::uint32_t expected_magic = 0x63656c31; // of another byte order: another number
    static constexpr std::uint16_t expected_version = 1;

    std::uint32_t magic = expected_magic;
    std::uint16_t version = expected_version;
    MessageKind kind{};
    std::uint64_t number = 0;   ///< of the transfer or operation, counted by its sender
    std::uint64_t array = 0;    ///< of a block: which
    std::uint64_t first = 0;    ///< its first row
    std::uint64_t rows = 0;     ///< how many
    std::uint64_t bytes = 0;    ///< after the head, or in the next message
    std::uint32_t body_crc = 0; ///< of these bytes
    std::uint32_t head_crc = 0; ///< of the head, with a zero here
    std::uint64_t reserved = 0;

    /// What follows in the same message.
    std::uint64_t body() const { return kind == MessageKind::block_apart ? 0 : bytes; }
};
static_assert(sizeof(MessageHead) == 64 && std::is_trivially_copyable_v<MessageHead>);

/// What a long message has at least, in bytes.
inline constexpr std::int64_t long_message = std::int64_t{1} << 20;

/// What is wrong with a message.
enum class MessageFault { none, cut, foreign, altered };

/// Keeps memory that MPI may still use until the process ends. Leak checkers find the latest of it here.
template <class Memory>
void abandon(Memory memory) noexcept {
    alignas(Memory) static std::byte kept[64][sizeof(Memory)];
    static std::size_t next = 0;
    ::new (kept[next++ % std::size(kept)]) Memory{std::move(memory)}; // never destroyed
}

/// A message, or the rows of one on a device, and the request of MPI that uses the memory, which stays while it does.
class Message {
public:
    Message() = default;
    /// With room for that many bytes after the head.
    explicit Message(std::int64_t bytes) { reserve_body(bytes); }
    /// In memory of a device, which only MPI and work of the device may touch.
    explicit Message(std::unique_ptr<DeviceRoom> room) : room_{std::move(room)} {}
    Message(Message&& other) noexcept
        : memory_{std::move(other.memory_)},
          room_{std::move(other.room_)},
          size_{std::exchange(other.size_, 0)},
          request_{std::exchange(other.request_, MPI_REQUEST_NULL)} {}
    Message& operator=(Message&& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(room_, other.room_);
        std::swap(size_, other.size_);
        std::swap(request_, other.request_);
        return *this;
    }
    ~Message() {
        if (request_ == MPI_REQUEST_NULL) return;
        abandon(std::move(room_));
        abandon(std::move(memory_));
    }

    /// What was there is lost. Long messages begin at a huge page, where the system has any: it hands them to another
    /// process page by page. A message that does not fit into its memory of a device gets memory of the host.
    void reserve(std::int64_t bytes) {
        if (room_ != nullptr && room_->size() >= bytes) return;
        room_ = nullptr;
        if (memory_.size() >= bytes) return;
        constexpr auto page = static_cast<std::int64_t>(huge_page);
        memory_ = ZeroedArray<std::byte>{bytes >= long_message ? std::max(bytes, page) : bytes};
    }
    void reserve_body(std::int64_t bytes) { reserve(bytes + std::int64_t{sizeof(MessageHead)}); }

    /// The memory of a device that it lies in; null if it lies in memory of the host.
    const DeviceRoom* room() const { return room_.get(); }
    /// True if it has no memory of the host, or only that of a short message.
    bool is_short() const { return memory_.size() < long_message; }

    std::byte* data() { return room_ != nullptr ? room_->data() : memory_.data(); }
    const std::byte* data() const { return room_ != nullptr ? room_->data() : memory_.data(); }
    std::byte* body() { return data() + sizeof(MessageHead); }
    std::span<const std::byte> received_body() const { return all().subspan(sizeof(MessageHead)); }
    /// What was received.
    std::span<const std::byte> all() const { return {data(), static_cast<std::size_t>(size_)}; }
    /// Bytes of the whole message.
    std::int64_t size() const { return size_; }
    void set_size(std::int64_t size) { size_ = size; }
    MPI_Request& request() { return request_; }
    /// MPI does not use it, and the host reaches it.
    bool is_free() const { return request_ == MPI_REQUEST_NULL && room_ == nullptr; }
    /// Returns MPI's code. `is_done` after an error, too.
    int test(bool& is_done) {
        int flag = 1;
        const int code = request_ == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
        is_done = flag != 0 || code != MPI_SUCCESS;
        return code;
    }

    /// Completes and writes the head. `head.bytes` are in the body.
    void finish(MessageHead head) { finish(head, crc32_of({body(), static_cast<std::size_t>(head.bytes)})); }
    /// The same if the checksum of the body is known.
    void finish(MessageHead head, std::uint32_t body_crc) {
        head.body_crc = body_crc;
        head.head_crc = 0;
        head.head_crc = crc_of(head);
        std::memcpy(data(), &head, sizeof(head));
        size_ = static_cast<std::int64_t>(sizeof(head) + head.body());
    }

    /// Checks a message that was received, but not its body.
    MessageFault check_head(MessageHead& head) const {
        if (size_ < static_cast<std::int64_t>(sizeof(head))) return MessageFault::cut;
        std::memcpy(&head, data(), sizeof(head));
        if (head.magic != MessageHead::expected_magic || head.version != MessageHead::expected_version)
            return MessageFault::foreign;
        MessageHead without = head;
        without.head_crc = 0;
        if (crc_of(without) != head.head_crc) return MessageFault::altered;
        return head.body() == static_cast<std::uint64_t>(size_) - sizeof(head) ? MessageFault::none : MessageFault::cut;
    }
    MessageFault check_body(const MessageHead& head) const {
        return crc32_of(received_body()) == head.body_crc ? MessageFault::none : MessageFault::altered;
    }

private:
    static std::uint32_t crc_of(const MessageHead& head) { return crc32_of(std::as_bytes(std::span{&head, 1})); }

    ZeroedArray<std::byte> memory_;
    std::unique_ptr<DeviceRoom> room_;
    std::int64_t size_ = 0;
    MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Messages to and from other ranks, and memory for more. It keeps the memory of those that are over, because fresh
/// memory of a long message costs milliseconds. Functions that return an int return MPI's code.
class Mailbox {
public:
    explicit Mailbox(MPI_Comm comm) : comm_{comm} {}
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    MPI_Comm comm() const { return comm_; }

    /// Sets memory aside for the next `count` calls of `post`, with so many bytes each. They then allocate nothing.
    void reserve(std::int64_t count, std::int64_t bytes) {
        progress();
        while (std::ssize(unused_) < count) unused_.emplace_back();
        auto message = unused_.begin();
        for (std::int64_t i = 0; i < count; ++i, ++message) message->reserve_body(std::max(bytes, least_body));
    }
    /// Sends a message, and keeps it as long as MPI uses it. Its body is `body` and then `more`.
    int post(int rank, int tag, MessageHead head, std::span<const std::byte> body = {},
             std::span<const std::byte> more = {}) {
        if (unused_.empty()) unused_.emplace_back();
        Message& message = unused_.front();
        head.bytes = body.size() + more.size();
        message.reserve_body(std::max(static_cast<std::int64_t>(head.bytes), least_body));
        std::copy(more.begin(), more.end(), std::copy(body.begin(), body.end(), message.body()));
        message.finish(head);
        const int code = send(rank, tag, message);
        in_flight_.splice(in_flight_.end(), unused_, unused_.begin());
        return code;
    }
    /// The message must stay until its request ends; its memory does not move.
    int send(int rank, int tag, Message& message) const {
        return MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, tag, comm_,
                         &message.request());
    }

    /// How many bytes the next message from there has; -1 if there is none yet.
    int probe(int rank, int tag, std::int64_t& bytes) const {
        int is_there = 0;
        int count = -1;
        MPI_Status status{};
        const int code = MPI_Iprobe(rank, tag, comm_, &is_there, &status);
        if (code == MPI_SUCCESS && is_there != 0) MPI_Get_count(&status, MPI_BYTE, &count);
        bytes = count;
        return code;
    }
    /// Begins to receive the message that `probe` has found. Without memory for it, it can be found again.
    int receive(int rank, int tag, Message& message, std::int64_t bytes) const {
        message.reserve(std::max(bytes, std::int64_t{1}));
        message.set_size(bytes);
        return MPI_Irecv(message.data(), static_cast<int>(bytes), MPI_BYTE, rank, tag, comm_, &message.request());
    }

    /// Memory for a message that is not posted.
    Message take(std::int64_t bytes) {
        std::list<Message>& from = bytes < long_message ? unused_ : long_;
        Message message;
        if (!from.empty()) {
            message = std::move(from.front());
            from.pop_front();
        }
        message.reserve(std::max(bytes, std::int64_t{1}));
        return message;
    }
    /// Takes it back, though MPI may still use it.
    void give(Message message) noexcept {
        if (message.data() == nullptr) return;
        try {
            in_flight_.push_back(std::move(message));
        } catch (const std::bad_alloc&) {} // see ~Message
    }

    /// Finds the messages that MPI does not use any more. Allocates nothing. True if no others are left.
    bool progress() noexcept {
        for (auto next = in_flight_.begin(); next != in_flight_.end();) {
            const auto message = next++;
            bool is_done = false;
            static_cast<void>(message->test(is_done));
            if (!is_done) continue;
            const bool is_short = message->is_short();
            std::list<Message>& to = is_short ? unused_ : long_;
            if (message->is_free() && std::ssize(to) < (is_short ? 64 : 8)) {
                to.splice(to.begin(), in_flight_, message);
            } else {
                in_flight_.erase(message);
            }
        }
        return in_flight_.empty();
    }

private:
    static constexpr std::int64_t least_body = 64; // so that each has room for every short one

    MPI_Comm comm_;
    std::list<Message> in_flight_;
    std::list<Message> unused_; // short ones
    std::list<Message> long_;
};

} // namespace cellar::detail
