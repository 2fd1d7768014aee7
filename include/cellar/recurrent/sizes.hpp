// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/recurrent/detail/state_store.hpp>
#include <cellar/recurrent/state_limits.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <algorithm>
#include <cstdint>

namespace cellar {

namespace detail {

/// One tensor, in all slots of all layers, and the gathered rows of one layer.
template <StateTag Tag>
std::int64_t tensor_bytes(const StateShape& shape, int tensor, std::int64_t slots, std::int64_t sequences) {
    using E = typename Tag::element_type;
    std::int64_t bytes = 0;
    std::int64_t largest = 0;
    for (int layer = 0; layer < shape.layers(); ++layer) {
        const StateExtents& extents = shape.extents(layer, tensor);
        bytes += slots * row_bytes<E>(extents);
        largest = std::max(largest, extents.elements());
    }
    return bytes + largest * sequences * static_cast<std::int64_t>(sizeof(E));
}

/// The same, of layers that are alike.
template <Element E>
constexpr std::int64_t tensor_bytes(const StateExtents& extents, int layers, const StateLimits& limits) {
    return slot_count(limits) * layers * row_bytes<E>(extents)
           + extents.elements() * limits.sequences * std::int64_t{sizeof(E)};
}

template <StateTag... Tags>
std::int64_t state_bytes(States<Tags...>, const StateShape& shape, const StateLimits& limits) {
    const std::int64_t slots = slot_count(resolved_limits(limits));
    int tensor = 0;
    std::int64_t bytes = 0;
    ((bytes += tensor_bytes<Tags>(shape, tensor++, slots, limits.sequences)), ...);
    return bytes;
}

} // namespace detail

/// The value of `RecurrentMemory::bytes`, without making the memory, and before `set_initial`. `TheStates` is a
/// `States<Tags...>`, and the shape has a tensor for each of its tags.
template <class TheStates>
std::int64_t state_bytes(const StateShape& shape, const StateLimits& limits) {
    return detail::state_bytes(TheStates{}, shape, limits);
}

} // namespace cellar
