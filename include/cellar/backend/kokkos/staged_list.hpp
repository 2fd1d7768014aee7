// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using StagingSpace = Kokkos::SharedHostPinnedSpace;
#else
using StagingSpace = Kokkos::HostSpace;
#endif

/// A list that the host writes and kernels read. What was sent last is not sent again: all layers of a pass name the
/// same cells. The address on the device stays the same until a longer list comes than ever before, or than was
/// reserved.
///
/// A copy to the device may read its source at any time until it is done. (A driver that first copies pageable memory
/// aside hides that; with pinned memory, or where the device reads all of the host's memory, nothing does.) So a list
/// that has been handed to a copy is not written again before a fence: lists follow one another in a block of staging
/// memory, and only when its end is reached is there a fence and the block begun anew. A fence that comes from
/// elsewhere, as after the pass of a program that reads its results, frees the block for nothing.
template <class T, class ExecutionSpace, class MemorySpace>
class StagedList {
    static_assert(std::is_trivially_copyable_v<T>, "StagedList holds plain data");

public:
    StagedList() = default;
    // Not copyable: a copied View is an alias, and two lists would write to one place.
    StagedList(StagedList&&) = default;
    StagedList& operator=(StagedList&&) = default;

    /// Room for lists of `least` elements. Blocks and allocates if there is less.
    void reserve(const ExecutionSpace& space, std::size_t least) {
        if (least <= device_.extent(0)) return;
        const std::size_t capacity = std::max(least, 2 * device_.extent(0));
        Device device{Kokkos::view_alloc("cellar: list", Kokkos::WithoutInitializing), capacity};
        Staging staging{Kokkos::view_alloc("cellar: staging", Kokkos::WithoutInitializing),
                        2 * capacity + least_staging};
        space.fence("cellar: a longer list"); // what is enqueued works with the old memory
        device_ = std::move(device);
        staging_ = std::move(staging);
        next_ = last_ = size_ = 0;
    }

    /// Enqueues a copy, if there is something new; returns where kernels find it. Blocks only as said above.
    const T* send(const ExecutionSpace& space, std::span<const T> list) {
        if (list.size() <= size_ && std::memcmp(list.data(), staging_.data() + last_, list.size_bytes()) == 0)
            return device_.data();
        reserve(space, list.size());
        if (list.size() > staging_.extent(0) - next_) {
            space.fence("cellar: staging memory is used again");
            fenced();
        }
        std::memcpy(staging_.data() + next_, list.data(), list.size_bytes());
        last_ = next_;
        size_ = list.size();
        next_ += size_;
        Kokkos::deep_copy(space, Kokkos::subview(device_, Range{0, size_}),
                          Kokkos::subview(staging_, Range{last_, next_}));
        return device_.data();
    }

    /// To be told of every fence of the space: no copy is under way.
    void fenced() { next_ = 0; }

private:
    using Device = Kokkos::View<T*, MemorySpace>;
    using Staging = Kokkos::View<T*, StagingSpace>;
    using Range = std::pair<std::size_t, std::size_t>;

    // 1 MiB, so that short lists, as of decode steps, hardly ever reach the end of the block.
    static constexpr std::size_t least_staging = (std::size_t{1} << 20) / sizeof(T);

    Device device_;
    Staging staging_;
    std::size_t next_ = 0; // what lies behind is free
    std::size_t last_ = 0; // where the last list begins, which the device has
    std::size_t size_ = 0; // its length
};

} // namespace cellar::detail
