// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_host_reaches
// error: host_reaches
#include <cellar/backend/host.hpp>

struct Unclear : private cellar::HostBackend {
    template <class E>
    using Buffer = cellar::HostBackend::Buffer<E>;
    using cellar::HostBackend::allocate;
    using cellar::HostBackend::copy_from_host;
    using cellar::HostBackend::copy_slots;
    using cellar::HostBackend::copy_to_host;
    using cellar::HostBackend::fence;
    using cellar::HostBackend::gather;
    using cellar::HostBackend::move;
    using cellar::HostBackend::rotate;
    using cellar::HostBackend::scatter;
#ifdef CORRECTED
    using cellar::HostBackend::host_reaches;
#endif
};

template <cellar::BackendPolicy>
struct User {};

User<Unclear>* user;
