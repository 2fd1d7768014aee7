// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/offloaded_memory.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cellar::detail {

/// The state of a snapshot that is offloaded, in one block: the tensors of each layer, layer after layer, each as long
/// as the row of a slot.
template <class Store, BackendPolicy Backend>
class OffloadedState final : public OffloadedData {
    using Unit = float; // rows are multiples of 16 bytes
    using Buffer = typename Backend::template Buffer<Unit>;

public:
    /// Memory that a copy needs beside the state. It must outlive the copy.
    struct Transfer {
        std::optional<Buffer> staging;
        TrivialList<SlotRows> rows;
    };

    /// Both at fixed addresses. `count`: 1, or 0 for a state before any token, which has no data.
    OffloadedState(Backend& backend, Store& store, std::int64_t count, OffloadTo to)
        : backend_{backend}, store_{store}, memory_{backend, count * units_of(store), to} {}

    std::int64_t bytes() const override { return memory_.size() * std::int64_t{sizeof(Unit)}; }
    void finish_work() noexcept override { backend_.fence(); }

    /// On the host, unless it was offloaded to a backend that the host cannot reach.
    std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }
    bool is_on_host() const { return memory_.is_on_host(); }

    /// Copies it from another one, which is in memory of the backend. Blocks.
    void assign_from_backend(const OffloadedState& other) {
        other.memory_.copy_to_host(backend_, 0, {memory_.data(), size()});
    }

    Transfer prepare_read(Slot) { return prepare(true); }
    Transfer prepare_write(Slot) { return prepare(false); }

    /// Reads the state in a slot. Enqueues; blocks if the backend cannot reach the block.
    void read(Slot slot, Transfer transfer) {
        if (transfer.rows.empty()) return;
        const SlotCopy copy{slot, 0};
        backend_.copy_slots(transfer.rows, {&copy, 1});
        if (transfer.staging) backend_.copy_to_host(*transfer.staging, 0, std::span{memory_.data(), size()});
    }

    /// Writes the state to a slot. Enqueues; blocks as `read` does.
    void write(Slot slot, Transfer transfer) {
        if (transfer.rows.empty()) return;
        if (transfer.staging)
            backend_.copy_from_host(std::span<const Unit>{memory_.data(), size()}, *transfer.staging, 0);
        const SlotCopy copy{0, slot};
        backend_.copy_slots(transfer.rows, {&copy, 1});
        if (transfer.staging) backend_.fence(); // before it is destroyed
    }

private:
    static std::int64_t units_of(const Store& store) {
        std::int64_t bytes = 0;
        for (const SlotRows& row : store.rows()) bytes += row.to_stride;
        return bytes / std::int64_t{sizeof(Unit)};
    }

    std::size_t size() const { return static_cast<std::size_t>(memory_.size()); }

    Transfer prepare(bool out) {
        Transfer transfer;
        if (memory_.size() == 0) return transfer;
        if (memory_.is_staged()) transfer.staging.emplace(backend_.template allocate<Unit>(memory_.size()));
        std::byte* outside = transfer.staging ? reinterpret_cast<std::byte*>(transfer.staging->data()) : data();
        for (const SlotRows& row : store_.rows()) {
            transfer.rows.push_back(out ? SlotRows{row.to, outside, row.to_stride, 0, row.bytes}
                                        : SlotRows{outside, row.to, 0, row.to_stride, row.bytes});
            outside += row.to_stride;
        }
        return transfer;
    }

    Backend& backend_;
    Store& store_;
    OffloadedMemory<Unit, Backend> memory_;
};

} // namespace cellar::detail
