// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <algorithm>
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

    static std::int64_t stride(const StateExtents& extents) {
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

    static std::int64_t max_elements(const StateShape& shape, int tensor) {
        std::int64_t max = 0;
        for (int layer = 0; layer < shape.layers(); ++layer)
            max = std::max(max, shape.extents(layer, tensor).elements());
        return max;
    }

    std::vector<Buffer> layers; ///< each [slots, stride]
    Buffer gathered;            ///< [sequences, elements]
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
        : StateStore{backend, shape, slots, sequences, std::make_integer_sequence<int, count>{}} {}

    Slot slots() const { return slots_; }

    std::int64_t bytes() const {
        const auto of = [](const auto& memory) {
            std::int64_t elements = memory.gathered.size();
            for (const auto& layer : memory.layers) elements += layer.size();
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

    /// Enqueues, for all layers at once: fills the slots of `starts` with zeros.
    void zero(Backend& backend, std::span<const SlotCopy> starts) { backend.copy_slots(in_place_, starts); }

private:
    static constexpr int count = sizeof...(Tags);

    template <int... I>
    StateStore(Backend& backend, const StateShape& shape, Slot slots, std::int32_t sequences,
               std::integer_sequence<int, I...>)
        : slots_{slots}, memories_{StateMemory<Tags, Backend>{backend, shape, I, slots, sequences}...} {
        for (int layer = 0; layer < shape.layers(); ++layer) (add_rows<Tags>(shape, layer, I), ...);
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
    auto& memory_of() {
        return std::get<StateMemory<Tag, Backend>>(memories_);
    }

    template <class Tag>
    void add_rows(const StateShape& shape, int layer, int tensor) {
        const StateExtents& extents = shape.extents(layer, tensor);
        auto& memory = memory_of<Tag>();
        fetches_.push_back(memory.rows(layer, extents, true));
        stores_.push_back(memory.rows(layer, extents, false));
        SlotRows in_place = fetches_.back();
        in_place.to = stores_.back().to;
        in_place.to_stride = in_place.from_stride;
        in_place_.push_back(in_place);
    }

    static std::span<const SlotRows> of_layer(const std::vector<SlotRows>& rows, int layer) {
        return std::span{rows}.subspan(static_cast<std::size_t>(layer) * count, count);
    }

    Slot slots_;
    std::tuple<StateMemory<Tags, Backend>...> memories_;
    // The rows of each tensor, layer by layer. Buffers never move, so the addresses stay valid.
    std::vector<SlotRows> fetches_;
    std::vector<SlotRows> stores_;
    std::vector<SlotRows> in_place_;
};

} // namespace cellar::detail
