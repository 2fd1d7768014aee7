// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sequence that moves from rank 0 to rank 1, beside MPI_Send of as many bytes between two buffers. All memory was
// written before, and is larger than the caches of the processor.
#include "jobs.hpp"
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/receive.hpp>
#include <cellar/mpi/send.hpp>
#include <cellar/window/full_causal.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace cellar;

constexpr int layers = 32;
constexpr int heads = 8;
constexpr int dim = 128;
constexpr std::int32_t batch = 1024;

/// Of the plain messages.
ZeroedArray<std::byte>& buffer() {
    static ZeroedArray<std::byte> all{std::int64_t{1} << 30};
    static const bool is_written = std::memset(all.data(), 1, static_cast<std::size_t>(all.size())) != nullptr;
    return is_written ? all : all;
}

template <class Layout>
class Migration {
public:
    explicit Migration(std::int32_t tokens) : comm_{MPI_COMM_WORLD}, tokens_{tokens} {}

    // As many bytes, in messages of at most 1 GiB, and an answer.
    double plain() {
        ZeroedArray<std::byte>& all = buffer();
        const double begun = MPI_Wtime();
        for (std::int64_t left = bytes(), n = 0; left > 0; left -= n) {
            n = std::min(left, all.size());
            if (comm_.rank() == 0) MPI_Send(all.data(), static_cast<int>(n), MPI_BYTE, 1, 0, comm_.handle());
            if (comm_.rank() == 1)
                MPI_Recv(all.data(), static_cast<int>(n), MPI_BYTE, 0, 0, comm_.handle(), MPI_STATUS_IGNORE);
        }
        if (comm_.rank() == 1) MPI_Send(nullptr, 0, MPI_BYTE, 0, 1, comm_.handle());
        if (comm_.rank() == 0) MPI_Recv(nullptr, 0, MPI_BYTE, 1, 1, comm_.handle(), MPI_STATUS_IGNORE);
        return MPI_Wtime() - begun;
    }

    double migration() {
        make();
        if (comm_.rank() == 1 && !cache_->remove(Sequence{0}, Position{0}, to_end)) std::abort();
        MPI_Barrier(MPI_COMM_WORLD);
        const double begun = MPI_Wtime();
        if (comm_.rank() == 0 && !mpi::send(comm_, 1, *cache_, Sequence{0}).wait()) std::abort();
        if (comm_.rank() == 1 && !mpi::receive(comm_, 0, *cache_, Sequence{0}).wait()) std::abort();
        const double seconds = MPI_Wtime() - begun;
        if (comm_.rank() < 2 && cache_->tokens(Sequence{0}) != tokens_) std::abort();
        return seconds;
    }

private:
    std::int64_t bytes() const { return std::int64_t{tokens_} * layers * heads * dim * 2 * std::int64_t{sizeof(half)}; }

    void make() {
        if (cache_ != nullptr) return;
        cache_ = std::make_unique<Cache<Layout>>(CacheShape{.layers = layers, .kv_heads = heads, .head_dim = dim},
                                                 CacheLimits{.sequences = 1, .capacity = tokens_, .batch = batch});
        const std::vector<float> rows(std::size_t{batch} * heads * dim, 1.0F);
        for (std::int32_t first = 0; first < tokens_; first += batch) {
            auto pass = cache_->begin(BatchBuilder{Sequence{0}, Position{first}, batch});
            if (!pass) std::abort();
            for (int layer = 0; layer < layers; ++layer) pass->put(layer, rows, rows);
            pass->commit();
        }
    }

    mpi::Communicator comm_;
    std::int32_t tokens_;
    std::unique_ptr<Cache<Layout>> cache_;
};

template <class Layout>
void add(std::vector<Job>& jobs, const std::string& layout, std::int32_t tokens) {
    const auto migration = std::make_shared<Migration<Layout>>(tokens);
    const std::string group = "migration, " + std::to_string(tokens / 1024) + "k tokens, " + layout;
    jobs.push_back({group, "MPI_Send of as many bytes", [=] { return migration->plain(); }});
    jobs.push_back({group, "send and receive", [=] { return migration->migration(); }});
}

} // namespace

std::vector<Job> migration_jobs() {
    std::vector<Job> jobs;
    add<StandardV<half>>(jobs, "StandardV", 4 * 1024);
    add<Blocked<half>>(jobs, "Blocked", 4 * 1024);
    add<StandardV<half>>(jobs, "StandardV", 32 * 1024); // 4 GiB in each process
    return jobs;
}

} // namespace bench
