// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "kokkos.hpp"

#include "cellar_memory.hpp"
#include "kokkos_compute.hpp"

#include <Kokkos_Core.hpp>

namespace llama {

namespace {

class InitialisedKokkos final : public KokkosRuntime {
public:
    std::string execution_space() const override { return Kokkos::DefaultExecutionSpace::name(); }

    std::unique_ptr<TextMemory> make_memory(const Config& config, const TextLimits& limits,
                                            const CacheFormat& format) const override {
        return make_cellar_memory<KokkosCompute<cellar::KokkosBackend<>>>(config, limits, format);
    }

private:
    // Warnings of Kokkos would go to the error stream, which is for errors.
    Kokkos::ScopeGuard scope_{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
};

} // namespace

std::unique_ptr<KokkosRuntime> start_kokkos() {
    return std::make_unique<InitialisedKokkos>();
}

} // namespace llama
