// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/element/storage_format.hpp>

#include <cstdint>
#include <span>

namespace cellar {

/// For a cache that keeps the books of a program whose keys and values lie in memory of its own: see `HoldsNoData`.
/// Buffers have no elements, whatever is asked for, and there is nothing to work on. What needs data does not compile:
/// so neither does `template class` of such a cache.
class NoData {
public:
    static constexpr bool host_reaches = true;
    static constexpr bool holds_data = false;

    template <StorageUnit E>
    using Buffer = ZeroedArray<E>;

    template <StorageUnit E>
    Buffer<E> allocate(std::int64_t) const {
        return Buffer<E>{0};
    }

    void scatter(const auto&...) const {}
    void gather(const auto&...) const {}
    void move(const auto&...) const {}
    void rotate(const auto&...) const {}
    void copy_slots(std::span<const SlotRows>, std::span<const SlotCopy>) const {}
    void copy_to_host(const auto&...) const {}
    void copy_from_host(const auto&...) const {}
    void fence() const {}
};

} // namespace cellar
