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

/// A list that the host writes and kernels read. Uploading the same list again does nothing, because all layers of a
/// pass use the same cells. The address on the device changes only when a list is longer than any before and than was
/// reserved.
///
/// A copy to the device may read its source until it is done. (A driver that first copies pageable memory hides that;
/// pinned memory does not, nor do devices that read the host's memory.) So a list that was given to a copy is not
/// overwritten before a fence: lists follow one another in a block of staging memory, and a fence at its end makes the
/// block reusable. A fence from elsewhere, such as when the program reads results, does so for free.
template <class T, class ExecutionSpace, class MemorySpace>
class StagedList {
    static_assert(std::is_trivially_copyable_v<T>, "StagedList holds plain data");

public:
    StagedList() = default;
    // Not copyable: a copied View is an alias, so two lists would write to the same memory.
    StagedList(StagedList&&) = default;
    StagedList& operator=(StagedList&&) = default;

    /// Room for lists of `size` elements. Blocks and allocates if there is less.
    void reserve(const ExecutionSpace& space, std::size_t size) {
        if (size <= device_.extent(0)) return;
        const std::size_t capacity = std::max(size, 2 * device_.extent(0));
        Device device{Kokkos::view_alloc("cellar: list", Kokkos::WithoutInitializing), capacity};
        Staging staging{Kokkos::view_alloc("cellar: staging", Kokkos::WithoutInitializing), 2 * capacity + min_staging};
        space.fence("cellar: a longer list"); // enqueued kernels use the old memory
        device_ = std::move(device);
        staging_ = std::move(staging);
        next_ = last_ = size_ = 0;
    }

    /// Enqueues a copy if the list is new. Returns its address on the device. Blocks only as described above.
    const T* upload(const ExecutionSpace& space, std::span<const T> list) {
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

    /// To be called at every fence of the space: no copy is in flight.
    void fenced() { next_ = 0; }

private:
    using Device = Kokkos::View<T*, MemorySpace>;
    using Staging = Kokkos::View<T*, StagingSpace>;
    using Range = std::pair<std::size_t, std::size_t>;

    // 1 MiB, so that the short lists of decode steps rarely reach the end of the block.
    static constexpr std::size_t min_staging = (std::size_t{1} << 20) / sizeof(T);

    Device device_;
    Staging staging_;
    std::size_t next_ = 0; // begin of the unused part of the block
    std::size_t last_ = 0; // begin of the last list, which the device has
    std::size_t size_ = 0; // length of the last list
};

} // namespace cellar::detail
