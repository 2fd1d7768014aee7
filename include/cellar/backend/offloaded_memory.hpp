// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/element/element.hpp>
#include <cellar/element/storage_format.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace cellar::detail {

template <class E, class Backend>
struct PinnedBufferOf {
    using type = typename Backend::template Buffer<E>; // never made
};
template <Element E, PinsHostMemory Backend>
struct PinnedBufferOf<E, Backend> {
    using type = typename Backend::template PinnedBuffer<E>;
};

/// n units of the data of a snapshot that is offloaded, all zero at first.
template <StorageUnit E, BackendPolicy Backend>
class OffloadedMemory {
public:
    OffloadedMemory(Backend& backend, std::int64_t n, OffloadTo to) {
        if (to == OffloadTo::backend) {
            on_backend_.emplace(backend.template allocate<E>(n));
            return;
        }
        if constexpr (PinsHostMemory<Backend> && Element<E>) {
            if (to == OffloadTo::pinned_host) {
                pinned_.emplace(backend.template allocate_pinned<E>(n));
                return;
            }
        }
        on_host_ = ZeroedArray<E>{n};
    }

    E* data() { return on_backend_ ? on_backend_->data() : pinned_ ? pinned_->data() : on_host_.data(); }
    std::int64_t size() const {
        return on_backend_ ? on_backend_->size() : pinned_ ? pinned_->size() : on_host_.size();
    }

    /// True if the host reads and writes it, once no work in flight does.
    bool is_on_host() const { return Backend::host_reaches || !on_backend_; }
    /// True if the backend's work cannot reach it. Then no work in flight uses it.
    bool is_staged() const { return !Backend::host_reaches && !on_backend_ && !pinned_; }

    /// Blocks. The memory is the backend's.
    void copy_to_host(Backend& backend, std::int64_t first, std::span<E> to) const {
        backend.copy_to_host(*on_backend_, first, to);
    }
    void copy_from_host(Backend& backend, std::span<const E> from, std::int64_t first) {
        backend.copy_from_host(from, *on_backend_, first);
    }

private:
    ZeroedArray<E> on_host_;
    std::optional<typename PinnedBufferOf<E, Backend>::type> pinned_;
    std::optional<typename Backend::template Buffer<E>> on_backend_;
};

} // namespace cellar::detail
