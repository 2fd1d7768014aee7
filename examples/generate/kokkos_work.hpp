// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "config.hpp"
#include "kokkos_kernels.hpp"
#include "layer_work.hpp"
#include "weights.hpp"
#include <cellar/backend/kokkos.hpp>
#include <cellar/cellar.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// Rows on their way to a device and back: a block of its memory, and one of the host that mirrors it. They are two even
/// where the host reaches the device's memory, so that nothing is done there that is not done everywhere.
template <class ExecutionSpace, class MemorySpace>
class Staging {
    using Device = Kokkos::View<float*, MemorySpace>;

public:
    /// Room for so many floats, with nothing in it. Allocates if there never were so many.
    void reserve(std::int64_t floats) {
        const auto size = static_cast<std::size_t>(floats);
        if (size <= device_.extent(0)) return;
        device_ = Device{Kokkos::view_alloc("llama: rows", Kokkos::WithoutInitializing), size};
        host_ = Kokkos::create_mirror(Kokkos::WithoutInitializing, device_);
    }

    float* device(std::int64_t first) const { return device_.data() + first; }

    void write(std::int64_t first, const Matrix& rows) { std::copy_n(rows.data(), rows.size(), host_.data() + first); }

    void read(std::int64_t first, Matrix& rows) const { std::copy_n(host_.data() + first, rows.size(), rows.data()); }

    /// Enqueues. What was written has to stay until a fence.
    void send(const ExecutionSpace& space, std::int64_t first, std::int64_t count) const {
        Kokkos::deep_copy(space, Kokkos::subview(device_, range(first, count)),
                          Kokkos::subview(host_, range(first, count)));
    }

    /// Enqueues. There is nothing to read before a fence.
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

/// What layers do with the passes of their memories, where Kokkos does it: rows of the host go there and what comes out
/// comes back, with one fence a layer, and in between keys, values, masks and states are read where they lie.
template <class Layout, class TheBackend>
class KokkosLayerWork : public KeyWork<Layout> {
    using ExecutionSpace = typename TheBackend::execution_space;
    using MemorySpace = typename TheBackend::memory_space;

public:
    using Backend = TheBackend;

    KokkosLayerWork(const Config& config, int capacity)
        : KeyWork<Layout>{config, capacity},
          heads_{config.num_attention_heads},
          kv_heads_{config.num_key_value_heads},
          dim_{config.head_dim} {}

    Backend backend() const { return Backend{space_}; }

    template <class Pass>
    void attend(Pass& pass, int layer, const Matrix& queries, const Matrix& keys, const Matrix& values, Matrix& out) {
        const std::int64_t tokens = queries.rows();
        const std::int64_t keys_at = queries.size();
        const std::int64_t values_at = keys_at + keys.size();
        const std::int64_t out_at = values_at + values.size();
        rows_.reserve(out_at + queries.size());
        rows_.write(0, queries);
        rows_.write(keys_at, keys);
        rows_.write(values_at, values);
        rows_.send(space_, 0, out_at);
        pass.put(layer, heads(keys_at, tokens, kv_heads_), heads(values_at, tokens, kv_heads_));
        const auto [seen_keys, seen_values, sees] = pass.template get<bool>(layer);
        using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
        using Kernel = Attention<typename Layout::key_element, typename Policy::member_type>;
        const Policy teams{space_, static_cast<int>(tokens * heads_), 1, Policy::vector_length_max()};
        Kokkos::parallel_for("llama: attention", teams,
                             Kernel{cellar::strided_view(heads(0, tokens, heads_)), seen_keys, seen_values, sees,
                                    cellar::strided_view(heads(out_at, tokens, heads_))});
        rows_.fetch(space_, out_at, queries.size());
        space_.fence("llama: attention");
        out.resize(queries.rows(), queries.cols());
        rows_.read(out_at, out);
    }

    template <class Pass>
    void recur(Pass& pass, int layer, const RecurrenceWeights& w, Matrix& x) {
        const Weights& weights = on_device(layer, w);
        rows_.reserve(4 * x.size()); // the last three are of the device alone
        rows_.write(0, x);
        rows_.send(space_, 0, x.size());
        for (const cellar::MicroBatch& micro_batch : pass.micro_batches()) {
            const auto rows = [&](std::int64_t block) {
                const std::int64_t first = block * x.size() + micro_batch.tokens(0).front() * x.cols();
                return cellar::contiguous_view(rows_.device(first), micro_batch.length(), x.cols());
            };
            const auto before = pass.template get<RecentInputs>(layer, micro_batch); // [1 sequence, ...]
            const auto state = pass.template get<Hidden>(layer, micro_batch);
            const auto convolved = rows(1), left = rows(2), added = rows(3);
            for_each("llama: convolution", left.size(),
                     Convolution{view(weights.taps), view(weights.taps_bias), before, rows(0), convolved});
            for_each("llama: gates", left.size(),
                     Gates{{view(weights.decay_gate), view(weights.decay_bias)},
                           {view(weights.input_gate), view(weights.input_bias)},
                           view(weights.decay),
                           convolved,
                           left,
                           added});
            for_each("llama: recurrence", x.cols(), Recurrence{left, added, before, state, rows(0)});
            pass.put(layer, micro_batch);
        }
        rows_.fetch(space_, 0, x.size());
        space_.fence("llama: recurrence");
        rows_.read(0, x);
    }

private:
    using DeviceMatrix = Kokkos::View<const float**, Kokkos::LayoutRight, MemorySpace>;

    /// Those of a recurrence; what belongs to channels has one row.
    struct Weights {
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

    /// Sent when a layer asks for them first.
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

    /// [tokens, heads, dim] in the staged rows.
    auto heads(std::int64_t first, std::int64_t tokens, std::int64_t count) const {
        using Rows = Kokkos::View<float***, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryUnmanaged>;
        return Rows{rows_.device(first), static_cast<std::size_t>(tokens), static_cast<std::size_t>(count),
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
    Staging<ExecutionSpace, MemorySpace> rows_; // of one layer at a time
    std::vector<Weights> weights_;              // of the recurrent layers
};

} // namespace llama
