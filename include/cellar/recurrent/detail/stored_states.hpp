// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/recurrent/detail/kept_slots.hpp>
#include <cellar/recurrent/detail/offloaded_state.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cellar::detail {

/// How the snapshots of a recurrent memory are saved and loaded: numbers, and the tensors of each layer, [extents...].
template <class State>
class StoredStates {
    using Offloaded = OffloadedState<typename State::Store, typename State::Backend>;

public:
    explicit StoredStates(State& state) : state_{state} {}

    /// Adds what a snapshot consists of. The state is copied to the host, if it is not there, once a row is read.
    void save(const KeptSlot& kept, const std::string& prefix, StoredSnapshot& stored) {
        const std::size_t first = describe(kept.to, prefix, stored);
        set_rows(stored.arrays, first, [&state = state_, &kept, copy = std::make_shared<std::unique_ptr<Offloaded>>()] {
            auto* const offloaded = static_cast<Offloaded*>(kept.data.get());
            if (*copy == nullptr && (offloaded == nullptr || !offloaded->is_on_host()))
                *copy = copy_to_host(state, kept, offloaded);
            state.backend.fence();
            return (*copy != nullptr ? **copy : *offloaded).data();
        });
    }

    /// Adds what a snapshot up to position `to` will consist of: its arrays cannot be read yet.
    void save_ahead(Sequence, Position to, const std::string& prefix, StoredSnapshot& stored) {
        for (std::size_t i = describe(to, prefix, stored); i < stored.arrays.size(); ++i)
            stored.arrays[i].comes_later = true;
    }

    /// Makes what a snapshot owns, offloaded on the host, not filled in yet. Adds where its arrays go.
    Checked<void> prepare_load(const Load& load, KeptSlotPointer& kept, UnownedData<Offloaded>& data) {
        const StoredSource& source = load.source;
        if (source.number(load.prefix + "kind") != stored_states)
            return Problem{"it has no snapshot of a recurrent memory"};
        const auto to = source.number(load.prefix + "to");
        if (!to || *to < 0 || *to > INT32_MAX) return Problem{"its snapshot has no valid position"};
        if (auto suits = check_layers(source.number(load.prefix + "layers"), state_.shape.layers()); !suits)
            return suits;
        kept.reset(new KeptSlot{Position{static_cast<std::int32_t>(*to)}});
        const std::size_t first = load.arrays.size();
        add_arrays(kept->to, load.prefix, load.arrays);
        if (auto suits = check_arrays(source, std::span{load.arrays}.subspan(first)); !suits) return suits;
        data.reset(new Offloaded{state_.backend, state_.stores, kept->rows(), OffloadTo::host});
        set_rows(load.arrays, first, [&offloaded = *data] { return offloaded.data(); });
        return {};
    }

private:
    // A state in place, or offloaded to memory that the host cannot reach.
    static std::unique_ptr<Offloaded> copy_to_host(State& state, const KeptSlot& kept, const Offloaded* offloaded) {
        auto copy = std::make_unique<Offloaded>(state.backend, state.stores, 1, OffloadTo::host);
        offloaded != nullptr ? copy->assign_from_backend(*offloaded)
                             : copy->read(kept.slot, copy->prepare_read(kept.slot));
        return copy;
    }

    // Adds numbers, and arrays without rows. Returns the index of the first of these.
    std::size_t describe(Position to, const std::string& prefix, StoredSnapshot& stored) {
        stored.numbers.emplace_back(prefix + "kind", stored_states);
        stored.numbers.emplace_back(prefix + "layers", state_.shape.layers());
        stored.numbers.emplace_back(prefix + "to", to.value);
        const std::size_t first = stored.arrays.size();
        add_arrays(to, prefix, stored.arrays);
        return first;
    }

    // A state before any token has none.
    void add_arrays(Position to, const std::string& prefix, std::vector<StoredArray>& arrays) {
        const StateShape& shape = state_.shape;
        const auto formats = State::Store::formats();
        for (int layer = 0; layer < (to.value == 0 ? 0 : shape.layers()); ++layer)
            for (int tensor = 0; tensor < shape.tensors(); ++tensor) {
                const std::string name = "layers." + std::to_string(layer) + ".states." + std::to_string(tensor);
                arrays.push_back({prefix + name, formats[static_cast<std::size_t>(tensor)], {}});
                const StateExtents& extents = shape.extents(layer, tensor);
                for (int r = 0; r < extents.rank(); ++r)
                    arrays.back().shape.push_back(static_cast<std::uint64_t>(extents[r]));
            }
    }

    // The arrays from `first` on are those of `add_arrays`. `find()`: the state, on the host, once a row is used.
    template <class Find>
    void set_rows(std::vector<StoredArray>& arrays, std::size_t first, Find find) {
        std::int64_t begin = 0;
        for (std::size_t i = first; i < arrays.size(); ++i) {
            arrays[i].set_host_rows([find, begin] { return find() + begin; });
            begin += state_.stores.rows()[i - first].to_stride;
        }
    }

    State& state_;
};

} // namespace cellar::detail
