// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// Where the data of a snapshot lies after `offload`.
enum class OffloadTo {
    host,        ///< memory of the process; in the formats of `CacheLimits::offload_as`
    pinned_host, ///< memory of the process that a device reads and writes itself, or any if the backend has none
    backend      ///< what the memory's backend allocates: on a device, memory of the device
};

} // namespace cellar
