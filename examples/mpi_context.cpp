// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Context parallel: each rank has the whole model, and the keys and values of some blocks of the text. The full layer's
// cache of one rank is too small for the text.
//
//     mpirun -n 2 mpi_context
#include "generate/arithmetic.hpp"
#include "generate/model.hpp"
#include "generate/sampler.hpp"
#include "mpi/attention_memory.hpp"
#include "mpi/program.hpp"
#include <cellar/cellar.hpp>
#include <cellar/mpi/attend.hpp>
#include <cellar/mpi/communicator.hpp>
#include <cellar/mpi/context_parallel.hpp>

#include <cstddef>
#include <iostream>
#include <mpi.h>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace {

using llama::Matrix;
namespace mpi = cellar::mpi;

/// The caches of the full and of the sliding layers, both divided between ranks.
class DividedMemory final : public llama::LayerMemory {
    using Full = mpi::ContextParallel<llama::Members::Full>;
    using Sliding = mpi::ContextParallel<llama::Members::Sliding>;

public:
    DividedMemory(const llama::Config& config, int ranks)
        : config_{config},
          rotary_{config, config.max_position_embeddings},
          full_{mpi::Communicator{MPI_COMM_WORLD},
                {shape(llama::LayerKind::full_attention), limits(ranks), cellar::FullCausal{}, shift()}},
          sliding_{mpi::Communicator{MPI_COMM_WORLD},
                   {shape(llama::LayerKind::sliding_attention), limits(ranks),
                    cellar::SlidingWindow<>{config.sliding_window}, shift()}} {}

    cellar::Result<void> begin(int first, int tokens) {
        const cellar::BatchBuilder batch{llama::the_text, cellar::Position{first}, tokens};
        first_ = first;
        auto full = full_.begin(batch);
        llama::expect(full, "begin");
        auto sliding = sliding_.begin(batch);
        llama::expect(sliding, "begin");
        static_cast<void>(full_pass_.emplace(*std::move(full)));
        static_cast<void>(sliding_pass_.emplace(*std::move(sliding)));
        return {};
    }

    void attend(int layer, Matrix& queries, Matrix& keys, const Matrix& values, Matrix& out) override {
        rotary_.rotate(queries, first_);
        rotary_.rotate(keys, first_);
        const llama::LayerKind kind = config_.layer_types[static_cast<std::size_t>(layer)];
        int index = 0; // among the layers of its kind
        for (int i = 0; i < layer; ++i) index += config_.layer_types[static_cast<std::size_t>(i)] == kind ? 1 : 0;
        if (kind == llama::LayerKind::full_attention) {
            attend(*full_pass_, index, queries, keys, values, out);
        } else {
            attend(*sliding_pass_, index, queries, keys, values, out);
        }
    }

    void recur(int /*layer*/, const llama::RecurrenceWeights& /*w*/, Matrix& /*x*/) override {
        throw std::logic_error{"a recurrent layer, expected attention"};
    }

    void commit() {
        full_pass_->commit();
        sliding_pass_->commit();
        full_pass_.reset();
        sliding_pass_.reset();
    }

    const Full& full() const { return full_; }

private:
    /// Every rank has the rows of all tokens. It puts those that it stores.
    template <class Pass>
    void attend(Pass& pass, int index, const Matrix& queries, const Matrix& keys, const Matrix& values, Matrix& out) {
        if (!pass.stored_indices().empty())
            pass.put(index, rows(own_keys_, keys, pass), rows(own_values_, values, pass));
        out.resize(queries.rows(), queries.cols());
        const auto heads = [&](auto* data) {
            return cellar::contiguous_view(data, queries.rows(), config_.num_attention_heads, config_.head_dim);
        };
        llama::expect(mpi::attend(pass, index, heads(queries.data()), heads(out.data())), "attend");
    }

    template <class Pass>
    cellar::StridedView<const float, 3> rows(Matrix& own, const Matrix& all, const Pass& pass) const {
        const auto stored = pass.stored_indices();
        own.resize(static_cast<Eigen::Index>(stored.size()), all.cols());
        for (std::size_t i = 0; i < stored.size(); ++i) own.row(static_cast<Eigen::Index>(i)) = all.row(stored[i]);
        return cellar::contiguous_view(std::as_const(own).data(), own.rows(), config_.num_key_value_heads,
                                       config_.head_dim);
    }

    cellar::CacheShape shape(llama::LayerKind kind) const {
        return {.layers = config_.layers(kind), .kv_heads = config_.num_key_value_heads, .head_dim = config_.head_dim};
    }
    /// As many cells as the ranks need together, in blocks of 64.
    cellar::CacheLimits limits(int ranks) const {
        const int context = config_.max_position_embeddings;
        return {.capacity = context,
                .cells = (context / 64 + ranks - 1) / ranks * 64,
                .batch = context,
                .positions = cellar::Positions::any};
    }
    cellar::RopeShift<cellar::Neox> shift() const {
        return cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(config_.head_dim, config_.rope_theta)};
    }

    llama::Config config_;
    llama::Rotary rotary_;
    Full full_;
    Sliding sliding_;
    std::optional<mpi::ContextPass<llama::Members::Full>> full_pass_; // after the memories, which outlive them
    std::optional<mpi::ContextPass<llama::Members::Sliding>> sliding_pass_;
    int first_ = 0; // position of the batch
    Matrix own_keys_;
    Matrix own_values_;
};

bool run(const llama::MpiOptions& o, mpi::Communicator& comm) {
    llama::Llama model{llama::weights_of(o)};
    DividedMemory text{model.config(), comm.size()};
    llama::Sampler sample = llama::MpiOptions::sampler();
    const std::string written = llama::write(o.text(), 0, o.tokens, [&](std::span<const int> tokens, int first) {
        return llama::run(model, text, sample, tokens, first); // every rank gets the same bits
    });
    const bool equal = written == llama::text_of_one_process(o, llama::MpiOptions::sampler());
    if (comm.rank() != 0) return equal;
    std::cout << o.prompt << written << "\n\n"
              << text.full().next(llama::the_text).value << " tokens on " << comm.size() << " ranks with "
              << text.full().cache().cells() << " cells each\n";
    return equal;
}

} // namespace

int main(int argc, char** argv) {
    return llama::mpi_command("mpi_context", "Divides a text between ranks", argc, argv, run);
}
