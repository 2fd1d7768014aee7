// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_fence
// error: fence()
#include <cellar/backend/host.hpp>

struct WithoutFence : private cellar::HostBackend {
    template <class E>
    using Buffer = cellar::HostBackend::Buffer<E>;
    using cellar::HostBackend::allocate;
    using cellar::HostBackend::copy_from_host;
    using cellar::HostBackend::copy_slots;
    using cellar::HostBackend::copy_to_host;
    using cellar::HostBackend::gather;
    using cellar::HostBackend::host_reaches;
    using cellar::HostBackend::move;
    using cellar::HostBackend::rotate;
    using cellar::HostBackend::scatter;
#ifdef CORRECTED
    using cellar::HostBackend::fence;
#endif
};

template <cellar::BackendPolicy>
struct User {};

User<WithoutFence>* user;
