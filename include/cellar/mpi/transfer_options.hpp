// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/named_only.hpp>
#include <cellar/element/format_codec.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace cellar::mpi {

/// How `send` and `send_ahead` transfer.
struct SendOptions {
    NamedOnly named_only{};
    /// 0 to 9999. Transfers between the same two ranks in one direction at the same time must have different tags.
    int tag = 0;
    /// Fails with `timed_out` if the other process does nothing for so long.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
    /// Bytes of one message: 1 MiB to 1 GiB. The transfer has four such blocks of host memory.
    std::int64_t block = std::int64_t{1} << 20;
    /// The MPI of this process takes addresses of the memory's device: a library that is aware of CUDA or ROCm. Rows
    /// then leave from there, and the transfer has four blocks of that memory. Makes no difference on the host.
    bool device_aware = false;
    std::string model = {}; ///< sent along; any text that tells models apart
    /// Keys and values of caches are sent in these formats (`stored_as<q8_0, q4_0>`): decoded, and encoded. Those that
    /// have the format already are sent as they are. Nothing: all are.
    StoredAs send_as = {};
};

/// How `receive` transfers.
struct ReceiveOptions {
    NamedOnly named_only{};
    int tag = 0; ///< as that of the `send`
    /// Fails with `timed_out` if the other process does nothing for so long. The wait for a `send` counts.
    std::chrono::milliseconds time_limit = std::chrono::seconds{60};
    /// As in `SendOptions`, for this process; the other one may differ. Rows then arrive in memory of the device if
    /// they also leave from such memory, and if they have this memory's type of elements.
    bool device_aware = false;
    std::string model = {}; ///< refuses a transfer with another one; empty: accepts every transfer
    /// Formats of keys and values that are decoded, and encoded in the memory's own (`formats<half, q8_0>`). They must
    /// outlive the transfer. Without them, what arrives in another format is refused, except between float, half and
    /// bfloat16.
    FormatList convert_from = {};
};

} // namespace cellar::mpi
