// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace cellar::mpi {

struct SendOptions {
    NamedOnly named_only{};
    /// 0 to 9999. Tells transfers between the same two ranks in one direction apart: one at a time has each tag.
    int tag = 0;
    /// Fails with `timed_out` if the other process does nothing for so long.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
    /// Bytes of one message: 1 MiB or more. The transfer has four such blocks of host memory.
    std::int64_t block = std::int64_t{1} << 20;
    std::string model = {}; ///< sent along; any text that tells models apart
};

struct ReceiveOptions {
    NamedOnly named_only{};
    int tag = 0; ///< as that of the `send`
    /// Fails with `timed_out` if the other process does nothing for so long. The wait for a `send` counts.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
    std::string model = {}; ///< refuses a transfer with another one; empty: accepts every transfer
};

} // namespace cellar::mpi
