// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/write_mask.hpp>

#include <cstdint>
#include <span>

namespace cellar_test {

/// A host backend that writes masks itself, as device backends do, and records the calls. It says that the host does
/// not reach its memory, as a device does.
struct MaskWriter : cellar::HostBackend {
    static constexpr bool host_reaches = false;

    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden, cellar::StridedView<T, 2> mask) {
        ++masks;
        auto* const out = reinterpret_cast<cellar::detail::kernel::Pack<T, 1>*>(mask.pointer);
        const cellar::detail::kernel::WriteMask<T, 1> write{bits.data(), visible, hidden, out, mask.extent(1)};
        for (std::int64_t token = 0; token < mask.extent(0); ++token)
            for (std::int64_t cell = 0; cell < mask.extent(1); ++cell)
                cellar::detail::kernel::apply(write, token, 0, cell);
    }

    void reserve(std::int64_t tokens, std::int64_t cells) {
        reserved_tokens = tokens;
        reserved_cells = cells;
    }

    int masks = 0;
    std::int64_t reserved_tokens = 0;
    std::int64_t reserved_cells = 0;
};

} // namespace cellar_test
