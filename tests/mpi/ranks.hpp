// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/cache/audit.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mpi.h>
#include <string>

/// What ranks that do the same have in common.
namespace ranks {

/// Where a cache has which tokens, as text.
template <class Cache>
std::string contents(const Cache& cache) {
    std::string all = audit(cache);
    for (std::int32_t s = 0; s < cache.sequences(); ++s)
        cache.visit_cells({s}, [&](cellar::Position p, cellar::Cell cell, std::int32_t n) {
            all += std::to_string(p.value) + '@' + std::to_string(cell) + '+' + std::to_string(n) + ' ';
        });
    return all + std::to_string(cache.statistics().free) + " free";
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// Collective: true if all ranks have the same number.
inline bool same_on_all(std::int64_t number) {
    const std::array<std::int64_t, 2> own{number, ~number};
    std::array<std::int64_t, 2> most{};
    MPI_Allreduce(own.data(), most.data(), 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    return most[0] == ~most[1];
}
/// Collective: true if all ranks have the same text.
inline bool same_on_all(const std::string& text) {
    return same_on_all(static_cast<std::int64_t>(std::hash<std::string>{}(text)));
}

} // namespace ranks
