// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "memory.hpp"

#include <memory>
#include <string>

namespace llama {

/// Kokkos, initialised until this is destroyed. It must outlive the memories that it makes.
class KokkosRuntime {
public:
    virtual ~KokkosRuntime() = default;

    /// The name of the execution space.
    virtual std::string execution_space() const = 0;

    /// The same as the other `make_memory`, in the memory of that space.
    virtual std::unique_ptr<TextMemory> make_memory(const Config& config, const TextLimits& limits,
                                                    const CacheFormat& format = {}) const = 0;
};

/// Can be called once in a program. Throws if the program was built without Kokkos.
std::unique_ptr<KokkosRuntime> start_kokkos();

} // namespace llama
