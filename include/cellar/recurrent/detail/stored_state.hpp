// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/recurrent/detail/state_store.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

template <class States, BackendPolicy Backend>
class StoredState;

/// How the snapshots of a recurrent memory are saved and loaded: a number, and the tensors of each layer, [extents...].
template <StateTag... Tags, BackendPolicy Backend>
class StoredState<States<Tags...>, Backend> {
public:
    explicit StoredState(const StateShape& shape) : shape_{shape} {}

    /// Adds what a snapshot up to position `to` will consist of: its arrays cannot be read yet.
    void save_ahead(Position to, const std::string& prefix, StoredSnapshot& stored) {
        add_numbers(to, prefix, stored);
        if (to == Position{0}) return;
        for_each_array(prefix, [&]<class Tag>(StoredArray array, std::int64_t) {
            array.comes_later = true;
            stored.arrays.push_back(std::move(array));
        });
    }

    /// Adds what a snapshot consists of. `state()`: the state, on the host, once a row is read.
    template <class State>
    void save(Position to, State state, const std::string& prefix, StoredSnapshot& stored) {
        add_numbers(to, prefix, stored);
        if (to != Position{0}) add_arrays(std::move(state), prefix, stored.arrays);
    }

    /// Why the memory does not take a snapshot.
    Checked<void> check(const StoredSource& source, const std::string& prefix) {
        if (source.number(prefix + "kind") != stored_states) return Problem{"it has no snapshot of a recurrent memory"};
        const auto to = source.number(prefix + "to");
        if (!to || *to < 0 || *to > INT32_MAX) return Problem{"its snapshot has no valid position"};
        auto suits = check_layers(source.number(prefix + "layers"), shape_.layers());
        if (*to == 0 || !suits) return suits;
        for_each_array(prefix, [&]<class Tag>(const StoredArray& expected, std::int64_t) {
            const auto found = source.shape(expected.name);
            if (!suits || found == expected.shape) return;
            // nvcc takes the assignment for a result that is ignored.
            static_cast<void>(suits = Problem{"its " + expected.name + " is " + (found ? text_of(*found) : "missing")
                                              + ", expected " + text_of(expected.shape)});
        });
        return suits;
    }

    /// Adds the arrays. `state()`: see `save`.
    template <class State>
    void add_arrays(State state, const std::string& prefix, std::vector<StoredArray>& arrays) {
        for_each_array(prefix, [&]<class Tag>(StoredArray array, std::int64_t begin) {
            array.set_host_rows([state, begin] { return state().template data<Tag>() + begin; });
            arrays.push_back(std::move(array));
        });
    }

private:
    void add_numbers(Position to, const std::string& prefix, StoredSnapshot& stored) const {
        stored.numbers.emplace_back(prefix + "kind", stored_states);
        stored.numbers.emplace_back(prefix + "layers", shape_.layers());
        stored.numbers.emplace_back(prefix + "to", to.value);
    }

    /// Calls visit<Tag>(array, begin) for each tensor and layer; in the state, its elements begin at `begin`.
    template <class Visit>
    void for_each_array(const std::string& prefix, Visit visit) {
        (arrays_of<Tags>(prefix, visit), ...);
    }
    template <class Tag, class Visit>
    void arrays_of(const std::string& prefix, Visit& visit) {
        constexpr int tensor = index_among<Tag, Tags...>();
        std::int64_t begin = 0;
        for (int layer = 0; layer < shape_.layers(); ++layer) {
            StoredArray array{prefix + "layers." + std::to_string(layer) + ".states." + std::to_string(tensor),
                              stored_format_of<typename Tag::element_type>(),
                              {}};
            const StateExtents& extents = shape_.extents(layer, tensor);
            for (int r = 0; r < extents.rank(); ++r) array.shape.push_back(static_cast<std::uint64_t>(extents[r]));
            visit.template operator()<Tag>(std::move(array), begin);
            begin += StateMemory<Tag, Backend>::stride(extents);
        }
    }

    const StateShape& shape_;
};

} // namespace cellar::detail
