// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace cellar::detail {

/// A list that the host writes and kernels read. What was sent last is not sent again: all layers of a pass name the
/// same cells. The address on the device stays the same until a longer list comes than ever before.
template <class T, class ExecutionSpace, class MemorySpace>
class StagedList {
public:
    StagedList() = default;
    // Not copyable: a copied View is an alias, and two lists would write to one place.
    StagedList(StagedList&&) = default;
    StagedList& operator=(StagedList&&) = default;

    /// Enqueues a copy, if there is something new; returns where kernels find it.
    const T* send(const ExecutionSpace& space, std::span<const T> list) {
        if (list.size() > host_.capacity()) grow(list.size());
        if (list.size() <= host_.size() && std::memcmp(list.data(), host_.data(), list.size_bytes()) == 0)
            return device_.data();
        host_.assign(list.begin(), list.end());
        // From memory of the process a copy has read its source when it returns, on every device: `host_` may change.
        const Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> from{host_.data(), host_.size()};
        Kokkos::deep_copy(space, Kokkos::subview(device_, std::pair<std::size_t, std::size_t>{0, host_.size()}), from);
        return device_.data();
    }

private:
    void grow(std::size_t least) {
        std::vector<T> host;
        host.reserve(std::max(least, 2 * host_.capacity()));
        device_ = Kokkos::View<T*, MemorySpace>{Kokkos::view_alloc("cellar: list", Kokkos::WithoutInitializing),
                                                host.capacity()};
        host_.swap(host);
    }

    std::vector<T> host_; // what the device has
    Kokkos::View<T*, MemorySpace> device_;
};

} // namespace cellar::detail
