// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/element/stored_element.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/recurrent/detail/paged_state.hpp>
#include <cellar/recurrent/state_shape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

template <class States, BackendPolicy Backend>
class StoredState;

/// How the snapshots of a recurrent memory are saved and loaded: a number, and the tensors of each layer, [extents...].
template <StateTag... Tags, BackendPolicy Backend>
class StoredState<States<Tags...>, Backend> {
    using Paged = PagedState<States<Tags...>, Backend>;

public:
    explicit StoredState(const StateShape& shape) : shape_{shape} {}

    /// Adds what a snapshot up to position `to` will consist of: its arrays cannot be read yet.
    void save_ahead(Position to, const std::string& prefix, StoredSnapshot& stored) {
        add_numbers(to, prefix, stored);
        if (to == Position{0}) return;
        for_each_shape(prefix, [&](StoredArray array) {
            array.comes_later = true;
            stored.arrays.push_back(std::move(array));
        });
    }

    /// Adds what a snapshot consists of. `state` is on the host.
    void save(Position to, const std::shared_ptr<Paged>& state, const std::string& prefix, StoredSnapshot& stored) {
        add_numbers(to, prefix, stored);
        if (to == Position{0}) return;
        for_each_array(*state, prefix, [&](StoredArray array) {
            const void* const data = std::exchange(array.data, nullptr);
            const auto row = row_bytes_of(array);
            array.read = [state, data, row](std::uint64_t first, std::uint64_t) -> const void* {
                return static_cast<const std::byte*>(data) + first * row;
            };
            stored.arrays.push_back(std::move(array));
        });
    }

    /// Returns why the memory does not take a snapshot; else an empty string.
    std::string problem_of(const StoredSource& source, const std::string& prefix) {
        if (source.number(prefix + "kind") != stored_states) return "it has no snapshot of a recurrent memory";
        const auto to = source.number(prefix + "to");
        if (!to || *to < 0 || *to > INT32_MAX) return "its snapshot has no valid position";
        std::string problem = mismatch_of_layers(source.number(prefix + "layers"), shape_.layers());
        if (*to == 0 || !problem.empty()) return problem;
        for_each_shape(prefix, [&](const StoredArray& expected) {
            const auto* const found = source.shape(expected.name);
            if (problem.empty() && (found == nullptr || *found != expected.shape))
                problem = "its " + expected.name + " is " + (found == nullptr ? "missing" : text_of(*found))
                          + ", expected " + text_of(expected.shape);
        });
        return problem;
    }

    /// Adds where the arrays go. `state` is on the host.
    void load(Paged& state, const std::string& prefix, std::vector<StoredArray>& arrays) {
        for_each_array(state, prefix, [&](StoredArray array) { arrays.push_back(std::move(array)); });
    }

private:
    void add_numbers(Position to, const std::string& prefix, StoredSnapshot& stored) const {
        stored.numbers.emplace_back(prefix + "kind", stored_states);
        stored.numbers.emplace_back(prefix + "layers", shape_.layers());
        stored.numbers.emplace_back(prefix + "to", to.value);
    }

    template <class Visit>
    void for_each_shape(const std::string& prefix, Visit visit) {
        (shapes_of<Tags>(prefix, visit), ...);
    }
    template <class Tag, class Visit>
    void shapes_of(const std::string& prefix, Visit& visit) {
        constexpr int tensor = index_among<Tag, Tags...>();
        for (int layer = 0; layer < shape_.layers(); ++layer) {
            StoredArray array{prefix + "layers." + std::to_string(layer) + ".states." + std::to_string(tensor),
                              stored_element_of<typename Tag::element_type>(),
                              {}};
            const StateExtents& extents = shape_.extents(layer, tensor);
            for (int r = 0; r < extents.rank(); ++r) array.shape.push_back(static_cast<std::uint64_t>(extents[r]));
            visit(std::move(array));
        }
    }

    template <class Visit>
    void for_each_array(Paged& state, const std::string& prefix, Visit visit) {
        (arrays_of<Tags>(state, prefix, visit), ...);
    }
    template <class Tag, class Visit>
    void arrays_of(Paged& state, const std::string& prefix, Visit& visit) {
        auto* data = state.template data<Tag>();
        int layer = 0;
        const auto with_data = [&](StoredArray array) {
            array.data = data;
            data += StateMemory<Tag, Backend>::stride(shape_.extents(layer++, index_among<Tag, Tags...>()));
            visit(std::move(array));
        };
        shapes_of<Tag>(prefix, with_data);
    }

    static std::uint64_t row_bytes_of(const StoredArray& array) {
        std::uint64_t bytes = array.element == StoredElement::f32 ? 4 : 2;
        for (std::size_t i = 1; i < array.shape.size(); ++i) bytes *= array.shape[i];
        return bytes;
    }
    const StateShape& shape_;
};

} // namespace cellar::detail
