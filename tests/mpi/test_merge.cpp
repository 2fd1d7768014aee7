// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/attention/merge_attention.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/attention_exchange.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace test_merge {

using namespace cellar;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Partial rows of a rank: the same on whichever rank computes them. Rank 1 sees nothing in every third row, and no
/// rank does in every tenth.
Floats partial_of(int rank, std::int64_t rows, std::int64_t dim) {
    std::mt19937 random{static_cast<unsigned>(rank + 1)};
    std::uniform_real_distribution<float> any{-3, 3};
    Floats part;
    for (std::int64_t row = 0; row < rows; ++row) {
        const bool blind = row % 10 == 9 || (rank == 1 && row % 3 == 0);
        for (std::int64_t d = 0; d < dim; ++d) part.push_back(blind ? 0.0F : any(random));
        part.push_back(blind ? -infinity : 20 * any(random));
    }
    return part;
}

StridedView<float, 3> outs(Floats& part, std::int64_t rows, std::int64_t dim) {
    return {part.data(), {rows, 1, dim}, {dim + 1, dim + 1, 1}};
}
StridedView<float, 2> sums(Floats& part, std::int64_t rows, std::int64_t dim) {
    return {part.data() + dim, {rows, 1}, {dim + 1, dim + 1}};
}

} // namespace

TEST_CASE("partial results of all ranks merge to the same bits everywhere, and as merge_attention merges two") {
    const mpi::Communicator comm{MPI_COMM_WORLD};
    detail::AttentionExchange exchange{comm.size()};
    for (const auto& [rows, dim] : {std::pair{1, 4}, {3, 7}, {40, 128}, {517, 33}}) {
        Floats expected = partial_of(0, rows, dim);
        for (int rank = 1; rank < comm.size(); ++rank) {
            Floats part = partial_of(rank, rows, dim);
            merge_attention<float>({outs(expected, rows, dim), sums(expected, rows, dim)},
                                   {outs(part, rows, dim), sums(part, rows, dim)});
        }
        const Floats own = partial_of(comm.rank(), rows, dim);
        Floats first;
        for (const bool in_shares : {false, true}) {
            Floats out(static_cast<std::size_t>(rows * dim), -1);
            Floats found(static_cast<std::size_t>(rows), -1);
            std::copy(own.begin(), own.end(), exchange.partial(rows, dim));
            const auto error = exchange.merge(comm, rows, dim, out.data(), found.data(), 60s, in_shares);
            REQUIRE_FALSE(error);
            for (int row = 0; row < rows; ++row) {
                const auto r = static_cast<std::size_t>(row);
                const float sum = expected[r * static_cast<std::size_t>(dim + 1) + static_cast<std::size_t>(dim)];
                REQUIRE((found[r] == sum || std::abs(found[r] - sum) < 1e-4F));
                for (int d = 0; d < dim; ++d)
                    REQUIRE(std::abs(out[r * static_cast<std::size_t>(dim) + static_cast<std::size_t>(d)]
                                     - expected[r * static_cast<std::size_t>(dim + 1) + static_cast<std::size_t>(d)])
                            < 1e-5F);
            }
            out.insert(out.end(), found.begin(), found.end());
            if (first.empty()) first = out;
            CHECK(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)) == 0);
            Floats of_others = out;
            MPI_Bcast(of_others.data(), static_cast<int>(out.size()), MPI_FLOAT, 0, comm.handle());
            CHECK(std::memcmp(of_others.data(), out.data(), out.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("what is not a number stays so, and only in its row") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Floats clean{1, 2, 0.5F};
    const Floats blind{0, 0, -infinity};
    const Floats wrong{nan, nan, nan};
    Floats weights(3);
    Floats out(2);
    const auto merge = [&](std::vector<const float*> parts) {
        return detail::merge_row(parts, weights.data(), 2, out.data());
    };
    CHECK(merge({blind.data(), clean.data(), blind.data()}) == 0.5F);
    CHECK(out == Floats{1, 2});
    CHECK(merge({blind.data(), blind.data()}) == -infinity);
    CHECK(out == Floats{0, 0});
    for (const auto& parts : {std::vector{wrong.data(), clean.data()}, std::vector{clean.data(), wrong.data()}}) {
        CHECK(std::isnan(merge(parts)));
        CHECK(std::isnan(out[0]));
    }
}

TEST_CASE("what is not a number on one rank alone is no number for all") {
    const float nothing[] = {0, -infinity};
    const float seen[] = {2, 1};
    const float wrong[] = {NAN, NAN};
    float weights[2];
    const auto merged = [&](const float* first, const float* second) {
        const float* const parts[] = {first, second};
        float out = 7;
        static_cast<void>(detail::merge_row(parts, weights, 1, &out));
        return out;
    };
    for (const float* other : {nothing, seen}) {
        CHECK(std::isnan(merged(wrong, other)));
        CHECK(std::isnan(merged(other, wrong)));
    }
    CHECK(merged(nothing, seen) == 2);
    CHECK(merged(nothing, nothing) == 0);
}

} // namespace test_merge
