// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows in a memory space that the backend cannot read.
// error: put: the backend cannot reach the memory space of the rows
#include <cellar/cellar.hpp>

struct HostMemory {};
struct DeviceMemory {};

struct ReadsHostMemory : cellar::HostBackend {
    template <class Space>
    static constexpr bool reaches = false;
};
template <>
constexpr bool ReadsHostMemory::reaches<HostMemory> = true;

template <class Space>
struct Rows : cellar::StridedView<const float, 3> {
    using memory_space = Space;
};

#ifdef CORRECTED
using Memory = HostMemory;
#else
using Memory = DeviceMemory;
#endif

void put(cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, cellar::DisabledShift, ReadsHostMemory>& cache,
         const Rows<Memory>& rows) {
    auto pass = cache.reserve(1);
    pass.put(0, rows, rows);
}
