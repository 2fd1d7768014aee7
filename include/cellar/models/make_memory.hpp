// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/models/member.hpp>
#include <cellar/models/run_time_description.hpp>
#include <cellar/models/sizes.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::models {

namespace detail {

inline const char* name_of(LayerKind kind) {
    switch (kind) {
    case LayerKind::sliding:
        return "sliding";
    case LayerKind::full:
        return "full";
    case LayerKind::recurrent:
        return "recurrent";
    case LayerKind::nothing:
        return "without memory";
    case LayerKind::chunked:
        return "chunked";
    case LayerKind::encoder:
        return "of an encoder";
    }
    return "of an unknown kind";
}

inline ModelError not_taken(std::size_t index, const LayerDescription& layer) {
    std::string details;
    if (layer.kind == LayerKind::recurrent) {
        details = " with a state of";
        for (const StateDescription& tensor : layer.state)
            details += " '" + std::string{tensor.name} + "' (" + std::to_string(tensor.rank()) + " extents)";
    } else {
        if (layer.window != 0) details = ", of " + std::to_string(layer.window) + " tokens";
        details += layer.rope.pairing == Pairing::none   ? ", without rotary positions"
                   : layer.rope.pairing == Pairing::neox ? ", with rotary pairs as in GPT-NeoX"
                                                         : ", with neighbours as rotary pairs";
        if (!layer.factors.keys.empty() || !layer.factors.values.empty()) details += ", with factors of channels";
    }
    return model_error(
        {"layer ", index, " is ", name_of(layer.kind), details, ", and no member of the memory takes such a layer"});
}

inline ModelError shares_other_member(std::size_t index, int owner) {
    return model_error({"layer ", index, " shares layer ", owner, ", which belongs to another member of the memory"});
}

inline ModelError cannot_be_made(std::size_t member, const ModelError& error) {
    return model_error({"member ", member, " of the memory cannot be made: ", error.message});
}

template <class M>
ModelResult<void> check_member(const DividedLayers& divided, std::size_t member) {
    if (divided.members[member].empty()) return {};
    const ModelResult<void> checked = MemberFor<M>::check(divided.members[member]);
    if (checked) return checked;
    return cannot_be_made(member, checked.error());
}

/// Each layer goes to the first of these members that takes it. Refuses a layer that none takes, and layers that one
/// member cannot have together.
template <class... Members>
ModelResult<DividedLayers> divide(const RunTimeDescription& model) {
    if (const ModelResult<void> checked = check(model); !checked) return checked.error();
    DividedLayers divided{.members = std::vector<MemberLayers>(sizeof...(Members))};
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
        LayerDescription layer = model.layers[i];
        const int owner = layer.owner();
        if (owner >= 0) layer.factors = model.layers[static_cast<std::size_t>(owner)].factors;
        int member = 0;
        const bool is_taken = ((MemberFor<Members>::takes(layer) || (++member, false)) || ...);
        if (layer.kind == LayerKind::nothing) member = no_memory;
        if (!is_taken && member != no_memory) return not_taken(i, layer);
        if (owner >= 0 && divided.member_of_layer[static_cast<std::size_t>(owner)] != member)
            return shares_other_member(i, owner);
        divided.add(std::move(layer), member);
    }
    ModelResult<void> checked;
    std::size_t member = 0;
    static_cast<void>(((checked = check_member<Members>(divided, member++)).has_value() && ...));
    if (!checked) return checked.error();
    return divided;
}

/// Makes a memory of one type, which has all layers of the model.
template <class Memory>
struct MemoryMaker {
    static ModelResult<DividedLayers> divide(const RunTimeDescription& model) {
        ModelResult<DividedLayers> divided = detail::divide<Memory>(model);
        if (divided && divided->members[0].size() != model.layers.size())
            return ModelError{"the model has layers without memory, expected a Hybrid with a RunTimePattern"};
        return divided;
    }
    static MemoryBytes bytes(const DividedLayers& divided, const MemoryLimits& limits) {
        return MemberFor<Memory>::bytes(divided.members[0], limits);
    }
    static Memory make(const DividedLayers& divided, const MemoryLimits& limits) {
        return MemberFor<Memory>::make(divided.members[0], limits);
    }
};

template <class... Members>
struct MemoryMaker<Hybrid<RunTimePattern, Members...>> {
    using Memory = Hybrid<RunTimePattern, Members...>;

    static ModelResult<DividedLayers> divide(const RunTimeDescription& model) {
        ModelResult<DividedLayers> divided = detail::divide<Members...>(model);
        if (divided && model.count(LayerKind::nothing) == static_cast<int>(model.layers.size()))
            return ModelError{"the model has no layer with memory, expected at least one"};
        return divided;
    }
    static MemoryBytes bytes(const DividedLayers& divided, const MemoryLimits& limits) {
        std::size_t member = 0;
        MemoryBytes sum = Memory::bytes_for(static_cast<int>(divided.member_of_layer.size()), MemoryBytes{});
        ((sum += bytes_of<Members>(divided.members[member++], limits)), ...);
        return sum;
    }
    static Memory make(const DividedLayers& divided, const MemoryLimits& limits) {
        return make(divided, limits, std::index_sequence_for<Members...>{});
    }

private:
    template <class M>
    static MemoryBytes bytes_of(const MemberLayers& layers, const MemoryLimits& limits) {
        return layers.empty() ? MemoryBytes{} : MemberFor<M>::bytes(layers, limits);
    }
    template <class M>
    static std::optional<M> make_one(const MemberLayers& layers, const MemoryLimits& limits) {
        return layers.empty() ? std::nullopt : std::optional<M>{MemberFor<M>::make(layers, limits)};
    }
    template <std::size_t... I>
    static Memory make(const DividedLayers& divided, const MemoryLimits& limits, std::index_sequence<I...>) {
        return Memory{divided.member_of_layer, make_one<Members>(divided.members[I], limits)...};
    }
};

} // namespace detail

/// Makes the memory of a model that is known at run time only. A `Memory` that is a `Cache`, a `RecurrentMemory` or a
/// `Hybrid<WithResidual, ...>` has all layers. In a `Hybrid<RunTimePattern, Members...>`, each layer goes to the first
/// member that takes it (see `MemberFor`), and members without layers are left out. Each member gets a
/// default-constructed backend.
///
/// Refuses a description that contradicts itself, and one with a layer that no member takes. Limits that are wrong are
/// violations, as in the constructors of the members. Throws `std::bad_alloc` if there is not enough memory.
template <class Memory>
ModelResult<Memory> make_memory(const RunTimeDescription& model, const MemoryLimits& limits,
                                Where where = Where::current()) {
    const cellar::detail::Caller caller{where};
    const auto divided = detail::MemoryMaker<Memory>::divide(model);
    if (!divided) return divided.error();
    return detail::MemoryMaker<Memory>::make(*divided, limits);
}

/// What the memory takes that `make_memory` makes: see `Cache::bytes_for`. Allocates nothing that grows with the
/// limits. Refuses as `make_memory` does.
template <class Memory>
ModelResult<MemoryBytes> bytes(const RunTimeDescription& model, const MemoryLimits& limits,
                               Where where = Where::current()) {
    const cellar::detail::Caller caller{where};
    const auto divided = detail::MemoryMaker<Memory>::divide(model);
    if (!divided) return divided.error();
    return detail::MemoryMaker<Memory>::bytes(*divided, limits);
}

/// The same limits with as many cells (`limits.attention.cells`, whatever it was) as the memory has in at most `most`
/// bytes; never more than 2^30. In place of the limits, a function from a number of cells to `MemoryLimits`, which more
/// cells never make smaller. Refuses as `make_memory` does, and if not even one cell fits.
template <class Memory, class Limits = MemoryLimits>
ModelResult<MemoryLimits> largest_limits(const RunTimeDescription& model, const Limits& limits, std::int64_t most,
                                         Where where = Where::current()) {
    const cellar::detail::Caller caller{where};
    const auto divided = detail::MemoryMaker<Memory>::divide(model);
    if (!divided) return divided.error();
    return detail::largest_limits(
        limits, most, [&](const MemoryLimits& some) { return detail::MemoryMaker<Memory>::bytes(*divided, some); });
}

} // namespace cellar::models
