// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/cache/audit.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mpi.h>
#include <string>
#include <vector>

/// What ranks that do the same have in common.
namespace ranks {

/// Where a cache has which tokens, as text.
template <class Cache>
std::string contents(const Cache& cache) {
    std::string all = audit(cache);
    for (std::int32_t s = 0; s < cache.sequences(); ++s)
        cache.visit_cells(cellar::Sequence{s}, [&](cellar::Position p, cellar::Cell cell, std::int32_t n) {
            all += std::to_string(p.value) + '@' + std::to_string(cell) + '+' + std::to_string(n) + ' ';
        });
    return all + std::to_string(cache.statistics().free) + " free";
}

/// The keys of a sequence in one layer, by position. `pass` sees all of them.
template <class Cache, class Pass>
std::map<int, std::vector<float>> keys_of(const Cache& cache, const Pass& pass, int layer, cellar::Sequence s) {
    const auto keys = pass.keys(layer);
    const auto& shape = cache.shape()[layer];
    std::map<int, std::vector<float>> found;
    cache.visit_cells(s, [&](cellar::Position p, cellar::Cell first, std::int32_t n) {
        for (std::int32_t i = 0; i < n; ++i)
            for (int head = 0; head < shape.kv_heads; ++head)
                for (int d = 0; d < shape.key_dim; ++d)
                    found[p.value + i].push_back(keys(first + i - pass.history().first, head, d));
    });
    return found;
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
