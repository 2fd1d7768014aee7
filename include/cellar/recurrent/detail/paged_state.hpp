// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/backend/paged_memory.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/recurrent/detail/state_store.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace cellar::detail {

/// One tensor of a state that is paged out, in all layers: a block of rows, each as long as in a slot.
template <StateTag Tag, BackendPolicy Backend>
struct PagedTensor : PagedMemory<typename Tag::element_type, Backend> {
    using Buffer = typename Backend::template Buffer<typename Tag::element_type>;
    using PagedMemory<typename Tag::element_type, Backend>::PagedMemory;
};

template <class States, BackendPolicy Backend>
class PagedState;

/// The state of a snapshot that is paged out.
template <StateTag... Tags, BackendPolicy Backend>
class PagedState<States<Tags...>, Backend> final : public PagedData {
    using Store = StateStore<States<Tags...>, Backend>;

public:
    /// Memory that a copy needs beside the state. It must outlive the copy.
    struct Transfer {
        std::tuple<std::optional<typename PagedTensor<Tags, Backend>::Buffer>...> staging;
        TrivialList<SlotRows> rows;
    };

    /// The backend, the store and the shape are at fixed addresses. `is_empty`: no token, and no data.
    PagedState(Backend& backend, Store& store, const StateShape& shape, PageTo to, bool is_empty)
        : backend_{backend},
          store_{store},
          shape_{shape},
          tensors_{PagedTensor<Tags, Backend>{backend, is_empty ? 0 : size<Tags>(), to}...} {}

    std::int64_t bytes() const override {
        return (std::int64_t{0} + ...
                + (std::get<PagedTensor<Tags, Backend>>(tensors_).size()
                   * std::int64_t{sizeof(typename Tags::element_type)}));
    }
    void finish_work() noexcept override { backend_.fence(); }

    /// One tensor of all layers. On the host, unless it was paged out to a backend that the host cannot reach.
    template <class Tag>
    auto* data() {
        return tensor<Tag>().data();
    }
    bool is_on_host() const { return (std::get<PagedTensor<Tags, Backend>>(tensors_).is_on_host() && ...); }

    /// Copies it from another one, which is in memory of the backend. Blocks.
    void assign_from_backend(PagedState& other) {
        (other.template tensor<Tags>().copy_to_host(
             backend_, 0, std::span{data<Tags>(), static_cast<std::size_t>(tensor<Tags>().size())}),
         ...);
    }

    /// For `read` if `out`, else for `write`.
    Transfer prepare(bool out) {
        Transfer transfer;
        if (bytes() == 0) return transfer;
        (prepare_tensor<Tags>(transfer, out), ...);
        return transfer;
    }

    /// Reads the state in a slot. Enqueues; blocks if the backend cannot reach the state.
    void read(Slot slot, Transfer transfer) {
        if (transfer.rows.empty()) return;
        const SlotCopy copy{slot, 0};
        backend_.copy_slots(transfer.rows, {&copy, 1});
        (copy_to_host<Tags>(transfer), ...);
    }

    /// Writes the state to a slot. Enqueues; blocks as `read` does.
    void write(Slot slot, Transfer transfer) {
        if (transfer.rows.empty()) return;
        (copy_from_host<Tags>(transfer), ...);
        const SlotCopy copy{0, slot};
        backend_.copy_slots(transfer.rows, {&copy, 1});
        if ((staging<Tags>(transfer) || ...)) backend_.fence(); // before staging memory is destroyed
    }

private:
    template <class Tag>
    auto& tensor() {
        return std::get<PagedTensor<Tag, Backend>>(tensors_);
    }
    template <class Tag>
    static auto& staging(Transfer& transfer) {
        return std::get<index_among<Tag, Tags...>()>(transfer.staging);
    }

    /// Elements in all layers.
    template <class Tag>
    std::int64_t size() const {
        std::int64_t sum = 0;
        for (int layer = 0; layer < shape_.layers(); ++layer)
            sum += StateMemory<Tag, Backend>::stride(shape_.extents(layer, index_among<Tag, Tags...>()));
        return sum;
    }

    template <class Tag>
    void prepare_tensor(Transfer& transfer, bool out) {
        auto& paged = tensor<Tag>();
        if (paged.is_staged())
            staging<Tag>(transfer).emplace(backend_.template allocate<typename Tag::element_type>(paged.size()));
        auto* outside = paged.is_staged() ? staging<Tag>(transfer)->data() : paged.data();
        for (int layer = 0; layer < shape_.layers(); ++layer) {
            const StateExtents& extents = shape_.extents(layer, index_among<Tag, Tags...>());
            auto& memory = store_.template memory_of<Tag>();
            SlotRows rows = memory.rows(layer, extents, true);
            rows.to = reinterpret_cast<std::byte*>(outside);
            rows.to_stride = 0;
            if (!out)
                rows = {rows.to, memory.rows(layer, extents, false).to, 0,
                        row_bytes<typename Tag::element_type>(extents), rows.bytes};
            transfer.rows.push_back(rows);
            outside += memory.stride(extents);
        }
    }

    template <class Tag>
    void copy_to_host(Transfer& transfer) {
        auto& paged = tensor<Tag>();
        if (paged.is_staged())
            backend_.copy_to_host(*staging<Tag>(transfer), 0,
                                  std::span{paged.data(), static_cast<std::size_t>(paged.size())});
    }
    template <class Tag>
    void copy_from_host(Transfer& transfer) {
        auto& paged = tensor<Tag>();
        if (!paged.is_staged()) return;
        const std::span<const typename Tag::element_type> from{paged.data(), static_cast<std::size_t>(paged.size())};
        backend_.copy_from_host(from, *staging<Tag>(transfer), 0);
    }

    Backend& backend_;
    Store& store_;
    const StateShape& shape_;
    std::tuple<PagedTensor<Tags, Backend>...> tensors_;
};

} // namespace cellar::detail
