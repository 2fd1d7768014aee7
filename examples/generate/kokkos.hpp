// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "memory.hpp"

#include <memory>
#include <string>

namespace llama {

/// Kokkos, from its initialisation to its end. The memories that it makes have to be gone before.
class KokkosRun {
public:
    virtual ~KokkosRun() = default;

    /// Where the work is done, as Kokkos calls it.
    virtual std::string execution_space() const = 0;

    /// As the other `make_memory`, for models whose rotations are NeoX's: memory of that space, which works there.
    virtual std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout,
                                                    const std::string& element, int capacity, int batch,
                                                    int rollback = 0) const = 0;
};

/// Once in a program. Throws if it was built without Kokkos.
std::unique_ptr<KokkosRun> start_kokkos();

} // namespace llama
