// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merging the partial attention of all ranks in one layer, beside an MPI_Allreduce of the same floats.
#include "jobs.hpp"
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/detail/attention_exchange.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace cellar;

constexpr std::int64_t heads = 32;
constexpr std::int64_t dim = 128;

class Merging {
public:
    explicit Merging(std::int64_t tokens)
        : comm_{MPI_COMM_WORLD},
          exchange_{comm_.size()},
          rows_{tokens * heads},
          steps_{static_cast<int>(std::max<std::int64_t>(3, 400 / tokens))},
          floats_(static_cast<std::size_t>(rows_ * (dim + 1)), 1),
          sums_(floats_.size()) {}

    double reduces() {
        return seconds_of(steps_, [&](int) {
            if (MPI_Allreduce(floats_.data(), sums_.data(), static_cast<int>(floats_.size()), MPI_FLOAT, MPI_SUM,
                              comm_.handle())
                != MPI_SUCCESS)
                std::abort();
        });
    }
    double merges() {
        std::fill_n(exchange_.partial(rows_, dim), rows_ * (dim + 1), 1.0F);
        return seconds_of(steps_, [&](int) {
            if (exchange_.merge(comm_, rows_, dim, sums_.data(), nullptr, std::chrono::milliseconds{0})) std::abort();
        });
    }

private:
    mpi::Communicator comm_;
    detail::AttentionExchange exchange_;
    std::int64_t rows_;
    int steps_;
    std::vector<float> floats_;
    std::vector<float> sums_;
};

} // namespace

std::vector<Job> context_jobs() {
    std::vector<Job> jobs;
    for (const std::int64_t tokens : {1, 4, 16, 64, 512}) {
        const auto merging = std::make_shared<Merging>(tokens);
        const std::string group = "merge, " + std::to_string(tokens) + " tokens, 32 heads of 128";
        jobs.push_back({group, "MPI_Allreduce of the same floats", [=] { return merging->reduces(); }});
        jobs.push_back({group, "merge of partial attention", [=] { return merging->merges(); }});
    }
    return jobs;
}

} // namespace bench
