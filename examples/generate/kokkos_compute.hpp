// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "kokkos_kernels.hpp"
#include "weights.hpp"
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace llama {

/// Copies rows to a device and back: a block of device memory and its mirror on the host. The two are distinct even
/// where the host reaches device memory, so that every machine does the same work.
template <class ExecutionSpace, class MemorySpace>
class Staging {
    using Device = Kokkos::View<float*, MemorySpace>;

public:
    /// Makes room for this many floats. Discards the content if it has to allocate.
    void reserve(std::int64_t floats) {
        const auto size = static_cast<std::size_t>(floats);
        if (size <= device_.extent(0)) return;
        device_ = Device{Kokkos::view_alloc("llama: rows", Kokkos::WithoutInitializing), size};
        host_ = Kokkos::create_mirror(Kokkos::WithoutInitializing, device_);
    }

    float* device(std::int64_t first) const { return device_.data() + first; }

    void write(std::int64_t first, const Matrix& rows) { std::copy_n(rows.data(), rows.size(), host_.data() + first); }

    void read(std::int64_t first, Matrix& rows) const { std::copy_n(host_.data() + first, rows.size(), rows.data()); }

    /// Enqueues. The host's block must not change before a fence.
    void send(const ExecutionSpace& space, std::int64_t first, std::int64_t count) const {
        Kokkos::deep_copy(space, Kokkos::subview(device_, range(first, count)),
                          Kokkos::subview(host_, range(first, count)));
    }

    /// Enqueues. The host's block is valid after a fence.
    void fetch(const ExecutionSpace& space, std::int64_t first, std::int64_t count) const {
        Kokkos::deep_copy(space, Kokkos::subview(host_, range(first, count)),
                          Kokkos::subview(device_, range(first, count)));
    }

private:
    static std::pair<std::size_t, std::size_t> range(std::int64_t first, std::int64_t count) {
        return {static_cast<std::size_t>(first), static_cast<std::size_t>(first + count)};
    }

    Device device_;
    Kokkos::View<float*, Kokkos::HostSpace> host_;
};

/// Attention and recurrences on a Kokkos execution space. Rows of the host are copied there, results are copied back,
/// with one fence per layer. Keys, values, masks and states are read in place.
template <class TheBackend>
class KokkosCompute {
    using ExecutionSpace = typename TheBackend::execution_space;
    using MemorySpace = typename TheBackend::memory_space;
    using Rows = Kokkos::View<float***, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryUnmanaged>;

public:
    using Backend = TheBackend;
    using MaskElement = bool;

    explicit KokkosCompute(const Config& config)
        : heads_{config.num_attention_heads}, kv_heads_{config.num_key_value_heads}, dim_{config.head_dim} {}

    Backend backend() const { return Backend{space_}; }

    struct Batch {
        Rows queries, keys, values; // [tokens, heads, head_dim]
    };

    /// Enqueues the copies of the rows.
    Batch upload(const Matrix& queries, const Matrix& keys, const Matrix& values) {
        const std::int64_t keys_at = queries.size();
        const std::int64_t values_at = keys_at + keys.size();
        out_at_ = values_at + values.size();
        staging_.reserve(out_at_ + queries.size());
        staging_.write(0, queries);
        staging_.write(keys_at, keys);
        staging_.write(values_at, values);
        staging_.send(space_, 0, out_at_);
        const std::int64_t tokens = queries.rows();
        return {rows(0, tokens, heads_), rows(keys_at, tokens, kv_heads_), rows(values_at, tokens, kv_heads_)};
    }

    void upload(const Matrix& x) {
        staging_.reserve(4 * x.size()); // `recur` uses the last three parts on the device
        staging_.write(0, x);
        staging_.send(space_, 0, x.size());
    }

    /// Blocks until the rows of `x` are back.
    void download(Matrix& x) {
        staging_.fetch(space_, 0, x.size());
        space_.fence("llama: recurrence");
        staging_.read(0, x);
    }

    /// Blocks until the attention of all tokens is back.
    template <class Pass>
    void attend(Pass& pass, int layer, const Rows& queries, Matrix& out) {
        using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
        const auto history = pass.template get<MaskElement>(layer);
        using Kernel = Attention<typename decltype(history.keys)::value_type, typename Policy::member_type>;
        const auto tokens = static_cast<int>(queries.extent(0));
        const Policy teams{space_, tokens * heads_, 1, Policy::vector_length_max()};
        Kokkos::parallel_for("llama: attention", teams,
                             Kernel{cellar::strided_view(queries), history.keys, history.values, history.mask,
                                    cellar::strided_view(rows(out_at_, tokens, heads_))});
        out.resize(tokens, heads_ * dim_);
        staging_.fetch(space_, out_at_, out.size());
        space_.fence("llama: attention");
        staging_.read(out_at_, out);
    }

    /// Works on the uploaded rows of `x`.
    template <class Inputs, class State>
    void recur(int layer, const RecurrenceWeights& w, const cellar::MicroBatch& micro_batch, const Inputs& inputs,
               const State& hidden, const Matrix& x) {
        const Weights& weights = on_device(layer, w);
        const auto part = [&](std::int64_t i) {
            const std::int64_t first = i * x.size() + micro_batch.tokens(0).front() * x.cols();
            return cellar::contiguous_view(staging_.device(first), micro_batch.length(), x.cols());
        };
        const auto in_and_out = part(0), convolved = part(1), kept = part(2), added = part(3);
        for_each("llama: convolution", convolved.size(),
                 Convolution{view(weights.taps), view(weights.taps_bias), inputs, in_and_out, convolved});
        for_each("llama: gates", convolved.size(),
                 Gates{{view(weights.decay_gate), view(weights.decay_bias)},
                       {view(weights.input_gate), view(weights.input_bias)},
                       view(weights.decay),
                       convolved,
                       kept,
                       added});
        for_each("llama: recurrence", x.cols(), Recurrence{kept, added, inputs, hidden, in_and_out});
    }

private:
    using DeviceMatrix = Kokkos::View<const float**, Kokkos::LayoutRight, MemorySpace>;

    struct Weights { // of one recurrence; vectors have one row
        DeviceMatrix taps, taps_bias, decay, decay_gate, decay_bias, input_gate, input_bias;
    };

    template <class M>
    static DeviceMatrix on_device(const M& matrix) {
        const auto rows = static_cast<std::size_t>(matrix.rows());
        const auto columns = static_cast<std::size_t>(matrix.cols());
        using Host = Kokkos::View<const float**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
        const Kokkos::View<float**, Kokkos::LayoutRight, MemorySpace> device{
            Kokkos::view_alloc("llama: weights", Kokkos::WithoutInitializing), rows, columns};
        Kokkos::deep_copy(device, Host{matrix.data(), rows, columns});
        return device;
    }

    /// Copies the weights of a layer at its first use.
    const Weights& on_device(int layer, const RecurrenceWeights& w) {
        const auto l = static_cast<std::size_t>(layer);
        if (l >= weights_.size()) weights_.resize(l + 1);
        if (weights_[l].taps.data() == nullptr) {
            weights_[l] = {on_device(w.taps),
                           on_device(w.taps_bias),
                           on_device(w.decay),
                           on_device(w.decay_gate.weight),
                           on_device(w.decay_gate.bias),
                           on_device(w.input_gate.weight),
                           on_device(w.input_gate.bias)};
        }
        return weights_[l];
    }

    static auto view(const DeviceMatrix& matrix) { return cellar::strided_view(matrix); }

    /// [tokens, heads, head_dim] in the staging memory of the device.
    Rows rows(std::int64_t first, std::int64_t tokens, std::int64_t heads) const {
        return Rows{staging_.device(first), static_cast<std::size_t>(tokens), static_cast<std::size_t>(heads),
                    static_cast<std::size_t>(dim_)};
    }

    template <class Kernel>
    void for_each(const char* name, std::int64_t size, const Kernel& kernel) const {
        using Policy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
        Kokkos::parallel_for(name, Policy{space_, 0, size}, kernel);
    }

    ExecutionSpace space_;
    int heads_;
    int kv_heads_;
    int dim_;
    std::int64_t out_at_ = 0;                      // where the staging memory has the attention of the batch
    Staging<ExecutionSpace, MemorySpace> staging_; // of one layer at a time
    std::vector<Weights> weights_;                 // of the recurrent layers
};

} // namespace llama
