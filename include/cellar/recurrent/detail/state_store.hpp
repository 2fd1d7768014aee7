// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Bytes from one slot's row to the next: rows begin at multiples of 16 bytes, which a device thread moves at once.
template <class E>
constexpr std::int64_t row_bytes(const StateExtents& extents) {
    return (extents.elements() * static_cast<std::int64_t>(sizeof(E)) + 15) / 16 * 16;
}

/// One tensor in all slots of all layers, and gathered rows for one layer.
template <StateTag Tag, BackendPolicy Backend>
struct StateMemory {
    using Element = typename Tag::element_type;
    using Buffer = typename Backend::template Buffer<Element>;

    StateMemory(Backend& backend, const StateShape& shape, int tensor, Slot slots, std::int32_t sequences)
        : gathered{backend.template allocate<Element>(max_elements(shape, tensor) * sequences)} {
        layers.reserve(static_cast<std::size_t>(shape.layers()));
        for (int layer = 0; layer < shape.layers(); ++layer)
            layers.push_back(backend.template allocate<Element>(stride(shape.extents(layer, tensor)) * slots));
    }

    static constexpr std::int64_t bytes_for(const StateShape& shape, int tensor, std::int64_t slots,
                                            std::int64_t sequences) {
        std::int64_t bytes = bytes_of<Element>(max_elements(shape, tensor) * sequences);
        for (int layer = 0; layer < shape.layers(); ++layer)
            bytes += bytes_of<Element>(stride(shape.extents(layer, tensor)) * slots);
        return bytes;
    }

    static constexpr std::int64_t stride(const StateExtents& extents) {
        return row_bytes<Element>(extents) / static_cast<std::int64_t>(sizeof(Element));
    }

    /// [rows, extents...].
    static StridedView<Element, Tag::rank + 1> view(Element* memory, const StateExtents& extents, std::int64_t rows,
                                                    std::int64_t stride) {
        StridedView<Element, Tag::rank + 1> view;
        view.pointer = memory;
        view.extents[0] = rows;
        view.strides[0] = stride;
        std::int64_t next = 1;
        for (int r = Tag::rank; r > 0; --r) {
            view.extents[r] = extents[r - 1];
            view.strides[r] = next;
            next *= extents[r - 1];
        }
        return view;
    }

    /// The rows to copy: from slots to gathered rows if `fetch`, else back.
    SlotRows rows(int layer, const StateExtents& extents, bool fetch) {
        const std::int64_t bytes = extents.elements() * static_cast<std::int64_t>(sizeof(Element));
        auto* const in_slots = reinterpret_cast<std::byte*>(layers[static_cast<std::size_t>(layer)].data());
        auto* const outside = reinterpret_cast<std::byte*>(gathered.data());
        if (fetch) return {in_slots, outside, row_bytes<Element>(extents), bytes, bytes};
        return {outside, in_slots, bytes, row_bytes<Element>(extents), bytes};
    }

    static constexpr std::int64_t max_elements(const StateShape& shape, int tensor) {
        std::int64_t max = 0;
        for (int layer = 0; layer < shape.layers(); ++layer)
            max = std::max(max, shape.extents(layer, tensor).elements());
        return max;
    }

    std::vector<Buffer> allocate_initial(Backend& backend, const StateShape& shape, int tensor) const {
        std::vector<Buffer> all;
        for (int layer = 0; layer < shape.layers(); ++layer)
            all.push_back(backend.template allocate<Element>(shape.extents(layer, tensor).elements()));
        return all;
    }

    std::vector<Buffer> layers;  ///< each [slots, stride]
    std::vector<Buffer> initial; ///< each [elements]: what sequences start from; none if that is zeros
    Buffer gathered;             ///< [sequences, elements]
};

template <class States, BackendPolicy Backend>
class StateStore;

/// The states of all layers, in slots. The constructor allocates all memory; its address never changes. Every operation
/// takes the backend that the store was made with.
template <StateTag... Tags, BackendPolicy Backend>
class StateStore<States<Tags...>, Backend> {
public:
    template <class Tag>
    using View = StridedView<typename Tag::element_type, Tag::rank + 1>;

    /// The bytes of one slot, all layers. A shape that does not fit the tags is a violation.
    static constexpr std::int64_t slot_bytes(const StateShape& shape) {
        CELLAR_EXPECTS(shape.tensors() == count, "state shape: ", shape.tensors(), " tensors, expected ", count,
                       ", one for each of States");
        std::int64_t sum = 0;
        for (int layer = 0; layer < shape.layers(); ++layer) {
            int tensor = 0;
            ((sum += checked_bytes<Tags>(shape, layer, tensor++)), ...);
        }
        return sum;
    }

    StateStore(Backend& backend, const StateShape& shape, Slot slots, std::int32_t sequences)
        : StateStore{backend, checked(shape), slots, sequences, std::make_integer_sequence<int, count>{}} {}

    static constexpr MemoryBytes bytes_for(const StateShape& shape, Slot slots, std::int32_t sequences) {
        static_cast<void>(slot_bytes(shape));
        const std::int64_t layers = shape.layers();
        MemoryBytes bytes{.bookkeeping = std::int64_t{3} * count * bytes_of<SlotRows>(layers)};
        int tensor = 0;
        ((bytes.data += StateMemory<Tags, Backend>::bytes_for(shape, tensor++, slots, sequences)), ...);
        ((bytes.bookkeeping += bytes_of<typename StateMemory<Tags, Backend>::Buffer>(layers)), ...);
        return bytes;
    }

    Slot slots() const { return slots_; }

    /// The rows of all tensors, layer after layer: to slots.
    std::span<const SlotRows> rows() const { return {stores_.data(), stores_.size()}; }
    static std::array<StoredFormat, sizeof...(Tags)> formats() {
        return {stored_format_of<typename Tags::element_type>()...};
    }

    std::int64_t bytes() const {
        const auto of = [](const auto& memory) {
            std::int64_t elements = memory.gathered.size();
            for (const auto& layer : memory.layers) elements += layer.size();
            for (const auto& layer : memory.initial) elements += layer.size();
            return elements * static_cast<std::int64_t>(sizeof(*memory.gathered.data()));
        };
        return std::apply([&](const auto&... memories) { return (of(memories) + ...); }, memories_);
    }

    /// All slots of a layer in place, [slots, extents...].
    template <class Tag>
    View<Tag> in_slots(const StateShape& shape, int layer) {
        auto& memory = memory_of<Tag>();
        const StateExtents& extents = shape.extents(layer, index_of<Tag>());
        return memory.view(memory.layers[static_cast<std::size_t>(layer)].data(), extents, slots_,
                           memory.stride(extents));
    }

    /// The rows of the last `fetch`, contiguous, [rows, extents...].
    template <class Tag>
    View<Tag> gathered(const StateShape& shape, int layer, std::int64_t rows) {
        auto& memory = memory_of<Tag>();
        const StateExtents& extents = shape.extents(layer, index_of<Tag>());
        return memory.view(memory.gathered.data(), extents, rows, extents.elements());
    }

    /// Enqueues one copy of all tensors of a layer: slots to the gathered rows.
    void fetch(Backend& backend, int layer, std::span<const SlotCopy> copies) {
        backend.copy_slots(of_layer(fetches_, layer), copies);
    }

    /// Enqueues one copy of all tensors of a layer: gathered rows to slots.
    void store(Backend& backend, int layer, std::span<const SlotCopy> copies) {
        backend.copy_slots(of_layer(stores_, layer), copies);
    }

    /// Enqueues, for all layers at once: fills slots with what sequences start from. All copies are from
    /// `start_source()`.
    void start(Backend& backend, std::span<const SlotCopy> starts) { backend.copy_slots(starts_, starts); }

    Slot start_source() const { return has_initial_ ? 0 : zero_slot; }

    /// Sequences start from these values in one tensor of a layer. Blocks. The first call allocates.
    template <class Tag>
    void set_initial(Backend& backend, const StateShape& shape, int layer,
                     std::span<const typename Tag::element_type> values) {
        const std::int64_t elements = shape.extents(layer, index_of<Tag>()).elements();
        CELLAR_EXPECTS(static_cast<std::int64_t>(values.size()) == elements, "set_initial: ", values.size(),
                       " values, expected ", elements);
        if (!has_initial_) allocate_initial(backend, shape, std::make_integer_sequence<int, count>{});
        backend.copy_from_host(values, memory_of<Tag>().initial[static_cast<std::size_t>(layer)], 0);
    }

private:
    static constexpr int count = sizeof...(Tags);

    template <class Tag>
    StateMemory<Tag, Backend>& memory_of() {
        return std::get<StateMemory<Tag, Backend>>(memories_);
    }

    template <int... I>
    StateStore(Backend& backend, const StateShape& shape, Slot slots, std::int32_t sequences,
               std::integer_sequence<int, I...>)
        : slots_{slots}, memories_{StateMemory<Tags, Backend>{backend, shape, I, slots, sequences}...} {
        for (TrivialList<SlotRows>* const rows : {&fetches_, &stores_, &starts_})
            rows->reserve(static_cast<std::size_t>(shape.layers()) * count);
        for (int layer = 0; layer < shape.layers(); ++layer) (add_rows<Tags>(shape, layer, I), ...);
    }

    static const StateShape& checked(const StateShape& shape) {
        static_cast<void>(slot_bytes(shape));
        return shape;
    }

    template <class Tag>
    static constexpr std::int64_t checked_bytes(const StateShape& shape, int layer, int tensor) {
        const StateExtents& extents = shape.extents(layer, tensor);
        CELLAR_EXPECTS(extents.rank() == Tag::rank, "state shape: tensor ", tensor, " of layer ", layer, " has ",
                       extents.rank(), " extents, expected ", Tag::rank);
        return row_bytes<typename Tag::element_type>(extents);
    }

    template <class Tag>
    static constexpr int index_of() {
        static_assert(times_among<Tag, Tags...> == 1, "the memory has no state tensor of that name");
        return index_among<Tag, Tags...>();
    }

    template <class Tag>
    void add_rows(const StateShape& shape, int layer, int tensor) {
        const StateExtents& extents = shape.extents(layer, tensor);
        auto& memory = memory_of<Tag>();
        fetches_.push_back(memory.rows(layer, extents, true));
        stores_.push_back(memory.rows(layer, extents, false));
        SlotRows start = stores_.back();
        start.from = nullptr;
        start.from_stride = 0;
        starts_.push_back(start);
    }

    template <int... I>
    void allocate_initial(Backend& backend, const StateShape& shape, std::integer_sequence<int, I...>) {
        std::tuple all{std::get<static_cast<std::size_t>(I)>(memories_).allocate_initial(backend, shape, I)...};
        ((std::get<static_cast<std::size_t>(I)>(memories_).initial =
              std::move(std::get<static_cast<std::size_t>(I)>(all))),
         ...);
        for (int layer = 0; layer < shape.layers(); ++layer) (start_from_initial<Tags>(layer, I), ...);
        has_initial_ = true;
    }
    template <class Tag>
    void start_from_initial(int layer, int tensor) {
        const auto at = static_cast<std::size_t>(layer);
        starts_[at * count + static_cast<std::size_t>(tensor)].from =
            reinterpret_cast<const std::byte*>(memory_of<Tag>().initial[at].data());
    }

    static std::span<const SlotRows> of_layer(const TrivialList<SlotRows>& rows, int layer) {
        return {rows.data() + static_cast<std::size_t>(layer) * count, count};
    }

    Slot slots_;
    std::tuple<StateMemory<Tags, Backend>...> memories_;
    // The rows of each tensor, layer by layer. Buffers never move, so the addresses stay valid.
    TrivialList<SlotRows> fetches_;
    TrivialList<SlotRows> stores_;
    TrivialList<SlotRows> starts_;
    bool has_initial_ = false;
};

} // namespace cellar::detail
