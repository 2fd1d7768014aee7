// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>

#include <cstdint>
#include <new>

namespace ranks {

/// A backend of the host that has no memory now and then.
struct ShortMemory : cellar::HostBackend {
    static inline bool is_short = false;

    template <cellar::Element E>
    Buffer<E> allocate(std::int64_t n) const {
        if (is_short) throw std::bad_alloc{};
        return cellar::HostBackend::allocate<E>(n);
    }
};

} // namespace ranks
