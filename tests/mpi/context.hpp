// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/mpi/attend.hpp>
#include <cellar/mpi/context_parallel.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

/// Contexts that are divided between ranks, beside one cache that has all of them. Every rank draws the same numbers.
namespace context_test {

using namespace cellar;
using Floats = std::vector<float>;

/// Of rows [tokens, row], those of some tokens.
inline Floats rows_of(const Floats& all, std::span<const std::int32_t> tokens, std::size_t row) {
    Floats some;
    for (const std::int32_t token : tokens) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * row);
        some.insert(some.end(), first, first + static_cast<std::ptrdiff_t>(row));
    }
    return some;
}

inline Floats random_floats(std::mt19937& random, std::size_t n, float size = 1) {
    std::uniform_real_distribution<float> any{-size, size};
    Floats floats(n);
    for (float& x : floats) x = any(random);
    return floats;
}

/// The largest difference between two rows of floats; infinite values must be the same.
inline double difference(const Floats& a, const Floats& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i] != b[i]) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
    return largest;
}

struct Heads {
    int kv = 2;
    int group = 3;
    int key_dim = 8;
    int value_dim = 4;

    CacheShape shape() const { return CacheShape{.each_layer = std::vector<LayerShape>{{kv, key_dim, value_dim}}}; }
    std::size_t key_row() const { return static_cast<std::size_t>(kv * key_dim); }
    std::size_t value_row() const { return static_cast<std::size_t>(kv * value_dim); }
};

/// A context of the ranks and one cache, which do the same.
template <class Cache>
class Pair {
public:
    using Window = typename Cache::window_type;
    using Shift = typename Cache::shift_type;

    /// `limits`: those of the single cache. A rank has as many cells.
    Pair(const CacheLimits& limits, const Window& window, Shift shift, std::int32_t block = 64)
        : context{mpi::Communicator{MPI_COMM_WORLD},
                  Cache{heads.shape(), at_any(limits), window, shift},
                  {.block = block}},
          single{heads.shape(), limits, window, shift} {}

    /// Attends in both and compares. Returns false if both refuse, with the same reason.
    bool run(const Batch& batch, bool commits, const AttentionOptions& options = {}) {
        auto pass = context.begin(batch);
        auto whole = single.begin(batch);
        REQUIRE(pass.has_value() == whole.has_value());
        if (!pass) {
            REQUIRE(pass.error() == whole.error().reason);
            CHECK(pass.error().refusal.sequence == whole.error().sequence);
            CHECK(pass.error().refusal.expected == whole.error().expected);
            return false;
        }
        const auto n = static_cast<std::size_t>(batch.tokens());
        const Floats k = random_floats(random, n * heads.key_row());
        const Floats v = random_floats(random, n * heads.value_row());
        whole->put(0, k, v);
        pass->put(0, rows_of(k, pass->stored_indices(), heads.key_row()),
                  rows_of(v, pass->stored_indices(), heads.value_row()));
        const auto query_heads = static_cast<std::size_t>(heads.kv * heads.group);
        const Floats q = random_floats(random, n * query_heads * static_cast<std::size_t>(heads.key_dim), 4);
        Floats expected(n * query_heads * static_cast<std::size_t>(heads.value_dim), -1);
        Floats found = expected;
        Floats expected_sums(n * query_heads, -1);
        Floats sums = expected_sums;
        AttentionOptions own = options;
        own.log_sum_exp = contiguous_view(expected_sums.data(), n, query_heads);
        attend(*whole, 0, q, expected, own);
        own.log_sum_exp = contiguous_view(sums.data(), n, query_heads);
        REQUIRE(mpi::attend(*pass, 0, q, found, own).has_value());
        CHECK(difference(expected, found) < 1e-4);
        CHECK(difference(expected_sums, sums) < 1e-4);
        if (commits) {
            pass->commit();
            whole->commit();
        }
        attended += n;
        return true;
    }

    void compare() const {
        for (std::int32_t s = 0; s < single.sequences(); ++s) {
            REQUIRE(context.next(Sequence{s}) == single.next(Sequence{s}));
            const Position end = single.next(Sequence{s}) + 2;
            for (Position p = Position{std::max(0, end.value - 40)}; p < end; p = p + 1) {
                REQUIRE(context.can_resume(Sequence{s}, p) == single.can_resume(Sequence{s}, p));
                REQUIRE(context.resumable_prefix(Sequence{s}, p) == single.resumable_prefix(Sequence{s}, p));
            }
            int stored = context.cache().tokens(Sequence{s});
            MPI_Allreduce(MPI_IN_PLACE, &stored, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            REQUIRE(stored == single.tokens(Sequence{s}));
        }
    }

    static CacheLimits at_any(CacheLimits limits) {
        limits.positions = Positions::any;
        return limits;
    }

    Heads heads;
    mpi::ContextParallel<Cache> context;
    Cache single;
    std::mt19937 random{7};
    std::size_t attended = 0;
};

} // namespace context_test
