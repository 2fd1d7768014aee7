// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/kokkos/buffer.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace cellar::detail {

#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using PinnedSpace = Kokkos::SharedHostPinnedSpace;
#else
using PinnedSpace = Kokkos::HostSpace;
#endif

/// The host memory from which lists are copied: pinned, except for lists that stay on the host. (Kokkos waits for a
/// copy between pinned memory and the host's.)
template <class MemorySpace, class Pinned = PinnedSpace>
using StagingSpace = std::conditional_t<std::is_same_v<MemorySpace, Kokkos::HostSpace>, Kokkos::HostSpace, Pinned>;

/// A list that the host writes and kernels read. Uploading the same list again does nothing, because all layers of a
/// pass use the same cells. The address on the device changes only when a list is longer than any before and than was
/// reserved.
///
/// A copy to the device may read its source until it is done. (A driver that first copies pageable memory hides that;
/// pinned memory does not, nor do devices that read the host's memory.) So a list that was given to a copy is not
/// overwritten before a fence: lists follow one another in a block of staging memory, and a fence at its end makes the
/// block reusable. A fence from elsewhere, such as when the program reads results, does so for free.
///
/// Before a list is destroyed, a fence of the space must follow its last upload.
template <class T, class ExecutionSpace, class MemorySpace, class Staging = StagingSpace<MemorySpace>>
class StagedList {
    static_assert(std::is_trivially_copyable_v<T>, "StagedList holds plain data");

public:
    /// 1 MiB, so that the short lists of decode steps rarely reach the end of the block.
    static constexpr std::size_t default_staging_bytes = std::size_t{1} << 20;

    /// A block of staging memory holds at least `staging_bytes`.
    explicit StagedList(std::size_t staging_bytes = default_staging_bytes) : min_staging_{staging_bytes / sizeof(T)} {}

    // Not copyable: two lists would write to the same memory.
    StagedList(StagedList&& other) noexcept
        : min_staging_{other.min_staging_},
          device_{std::move(other.device_)},
          staging_{std::move(other.staging_)},
          next_{std::exchange(other.next_, 0)},
          last_{std::exchange(other.last_, 0)},
          size_{std::exchange(other.size_, 0)} {}
    StagedList& operator=(StagedList&& other) noexcept {
        min_staging_ = other.min_staging_;
        device_ = std::move(other.device_);
        staging_ = std::move(other.staging_);
        next_ = std::exchange(other.next_, 0);
        last_ = std::exchange(other.last_, 0);
        size_ = std::exchange(other.size_, 0);
        return *this;
    }

    /// True if it has memory, which enqueued work may use.
    bool has_memory() const { return device_.size() != 0; }

    /// Room for lists of `size` elements. If there is less, allocates, and blocks unless there was none. If it throws,
    /// nothing has changed.
    void reserve(const ExecutionSpace& space, std::size_t size) {
        if (size <= device_.size()) return;
        const std::size_t capacity = std::max(size, 2 * device_.size());
        KokkosBlock<T, MemorySpace> device{space, "cellar: list", capacity};
        KokkosBlock<T, Staging> staging{space, "cellar: staging", 2 * capacity + min_staging_};
        if (has_memory()) space.fence("cellar: a longer list"); // enqueued kernels use the old memory
        device_ = std::move(device);
        staging_ = std::move(staging);
        next_ = last_ = size_ = 0;
    }

    /// Enqueues a copy if the list is new. Returns its address on the device. Blocks only as described above, and
    /// allocates only if the list is longer than any before and than was reserved.
    const T* upload(const ExecutionSpace& space, std::span<const T> list) {
        if (list.empty() || is_uploaded(list)) return device_.data();
        reserve(space, list.size());
        if (list.size() > staging_.size() - next_) {
            space.fence("cellar: staging memory is used again");
            fenced();
        }
        std::memcpy(staging_.data() + next_, list.data(), list.size_bytes());
        last_ = next_;
        size_ = list.size();
        next_ += size_;
        Kokkos::deep_copy(space, Kokkos::subview(device_.view(), Range{0, size_}),
                          Kokkos::subview(staging_.view(), Range{last_, next_}));
        return device_.data();
    }

    /// To be called at every fence of the space: no copy is in flight.
    void fenced() { next_ = 0; }

private:
    using Range = std::pair<std::size_t, std::size_t>;

    /// True if the device has the list, maybe with more after it. Staging memory keeps the last list until the next
    /// one: `fenced` does not change it.
    bool is_uploaded(std::span<const T> list) const {
        return list.size() <= size_ && std::memcmp(list.data(), staging_.data() + last_, list.size_bytes()) == 0;
    }

    std::size_t min_staging_;
    KokkosBlock<T, MemorySpace> device_;
    KokkosBlock<T, Staging> staging_;
    std::size_t next_ = 0; // begin of the unused part of the block
    std::size_t last_ = 0; // begin of the last list, which the device has
    std::size_t size_ = 0; // length of the last list
};

} // namespace cellar::detail
