// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "kokkos.hpp"

#include "choosing.hpp"
#include "kokkos_work.hpp"

#include <Kokkos_Core.hpp>

#include <stdexcept>

namespace llama {

namespace {

template <class Layout>
using Work = KokkosLayerWork<Layout, cellar::KokkosBackend<>>;

class InitialisedKokkos final : public KokkosRun {
public:
    std::string execution_space() const override { return Kokkos::DefaultExecutionSpace::name(); }

    std::unique_ptr<TextMemory> make_memory(const Config& config, const std::string& layout, const std::string& element,
                                            int capacity, int batch, int rollback) const override {
        if (config.rope_pairing != Pairing::neox) {
            throw std::runtime_error{"interleaved rotations on Kokkos, expected those of NeoX"};
        }
        return choose_element<Work>(config, layout, element, capacity, batch, rollback);
    }

private:
    // The error stream is for errors.
    Kokkos::ScopeGuard scope_{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
};

} // namespace

std::unique_ptr<KokkosRun> start_kokkos() {
    return std::make_unique<InitialisedKokkos>();
}

} // namespace llama
