// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace cellar_test {

/// False if Kokkos itself calls `new` for every kernel, as it did before 4.6. Its calls are then not told from others.
inline constexpr bool new_calls_are_ours = KOKKOS_VERSION >= 40600;

/// Callbacks for the events that Kokkos reports to tools.
struct Events {
    std::function<void(std::string_view name)> kernel = [](auto) {};
    std::function<void(std::string_view name)> fence = [](auto) {};
    std::function<void(std::string_view name)> allocation = [](auto) {};
    std::function<void(const void* to, const void* from, std::size_t bytes)> copy = [](auto...) {};
};

/// Reports events while it lives. Only one may live at a time.
class Listener {
public:
    explicit Listener(Events events) {
        now = std::move(events);
        namespace Tools = Kokkos::Tools::Experimental;
        const auto kernel = [](const char* name, std::uint32_t, std::uint64_t*) { now.kernel(name); };
        Tools::set_begin_parallel_for_callback(kernel);
        Tools::set_begin_parallel_reduce_callback(kernel);
        Tools::set_begin_parallel_scan_callback(kernel);
        Tools::set_begin_fence_callback([](const char* name, std::uint32_t, std::uint64_t*) {
            // Kokkos adds fences around every kernel while a tool listens. They do not count.
            if (!std::string_view{name}.starts_with("Kokkos::Tools")) now.fence(name);
        });
        Tools::set_allocate_data_callback(
            [](Kokkos_Profiling_SpaceHandle, const char* name, const void*, std::uint64_t) { now.allocation(name); });
        Tools::set_begin_deep_copy_callback([](Kokkos_Profiling_SpaceHandle, const char*, const void* to,
                                               Kokkos_Profiling_SpaceHandle, const char*, const void* from,
                                               std::uint64_t bytes) { now.copy(to, from, bytes); });
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() {
        namespace Tools = Kokkos::Tools::Experimental;
        Tools::set_begin_parallel_for_callback(nullptr);
        Tools::set_begin_parallel_reduce_callback(nullptr);
        Tools::set_begin_parallel_scan_callback(nullptr);
        Tools::set_begin_fence_callback(nullptr);
        Tools::set_allocate_data_callback(nullptr);
        Tools::set_begin_deep_copy_callback(nullptr);
    }

private:
    static inline Events now;
};

} // namespace cellar_test
