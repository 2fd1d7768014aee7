// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/hybrid/pattern.hpp>
#include <cellar/models/member.hpp>
#include <cellar/models/run_time_description.hpp>
#include <cellar/models/sizes.hpp>

#include <algorithm>
#include <array>
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

/// The layers of a model, divided between these members: each goes to the first one that takes it.
template <class... Members>
class Division {
public:
    static constexpr std::size_t count = sizeof...(Members);

    explicit Division(const RunTimeDescription& model) {
        if (const auto checked = check(model); !checked) {
            error_ = checked.error().message;
            return;
        }
        std::vector<int> index_in_member;
        for (LayerDescription layer : model.layers) {
            if (const int owner = layer.shape.shares_layer; owner >= 0)
                layer.factors = model.layers[static_cast<std::size_t>(owner)].factors;
            const int member = layer.kind == LayerKind::nothing ? no_memory : first_that_takes(layer);
            index_in_member.push_back(add(layer, member, index_in_member));
            if (!error_.empty()) return;
        }
        std::size_t member = 0;
        (object<Members>(member++), ...);
    }

    /// A sentence, or empty.
    const std::string& error() const { return error_; }
    const std::vector<int>& member_of_layer() const { return member_of_layer_; }
    const MemberLayers& layers_of(std::size_t member) const { return layers_[member]; }
    bool has_layers() const {
        const auto has_any = [](const MemberLayers& layers) { return !layers.empty(); };
        return std::any_of(layers_.begin(), layers_.end(), has_any);
    }

private:
    static int first_that_takes(const LayerDescription& layer) {
        int member = 0;
        const bool found = ((MemberFor<Members>::takes(layer) || (++member, false)) || ...);
        return found ? member : static_cast<int>(count);
    }

    /// The layer's index in the member.
    int add(LayerDescription layer, int member, const std::vector<int>& index_in_member) {
        const std::size_t index = member_of_layer_.size();
        member_of_layer_.push_back(member);
        if (member == no_memory) return 0;
        if (member == static_cast<int>(count)) {
            error_ = cellar::detail::composed({"layer ", index, " is ", name_of(layer.kind), details(layer),
                                               ", and no member of the memory takes such a layer"});
            return 0;
        }
        if (int& owner = layer.shape.shares_layer; owner >= 0) {
            const auto shared = static_cast<std::size_t>(owner);
            if (member_of_layer_[shared] != member)
                error_ = cellar::detail::composed(
                    {"layer ", index, " shares layer ", owner, ", which belongs to another member of the memory"});
            owner = index_in_member[shared];
        }
        MemberLayers& own = layers_[static_cast<std::size_t>(member)];
        own.push_back(std::move(layer));
        return static_cast<int>(own.size()) - 1;
    }

    static std::string details(const LayerDescription& layer) {
        if (layer.kind == LayerKind::recurrent) {
            std::string text = " with a state of";
            for (const StateDescription& tensor : layer.state)
                text += " '" + std::string{tensor.name} + "' (" + std::to_string(tensor.rank()) + " extents)";
            return text;
        }
        const std::string window = layer.window != 0 ? ", of " + std::to_string(layer.window) + " tokens" : "";
        const char* const pairs = layer.rope.pairing == Pairing::none   ? ", without rotary positions"
                                  : layer.rope.pairing == Pairing::neox ? ", with rotary pairs as in GPT-NeoX"
                                                                        : ", with neighbours as rotary pairs";
        const bool has_factors = !layer.factors.keys.empty() || !layer.factors.values.empty();
        return window + pairs + (has_factors ? ", with factors of channels" : "");
    }

    template <class M>
    void object(std::size_t member) {
        if (layers_[member].empty() || !error_.empty()) return;
        const std::string objection = MemberFor<M>::objection(layers_[member]);
        if (!objection.empty())
            error_ = cellar::detail::composed({"member ", member, " of the memory cannot be made: ", objection});
    }

    std::vector<int> member_of_layer_;
    std::array<MemberLayers, count> layers_;
    std::string error_;
};

/// Makes a memory of one type, which has all layers of the model.
template <class Memory>
struct MemoryMaker {
    using Divided = Division<Memory>;

    static std::string objection(const Divided& divided) {
        if (divided.layers_of(0).size() == divided.member_of_layer().size()) return {};
        return "the model has layers without memory, expected a Hybrid with a RunTimePattern";
    }
    static MemoryBytes bytes(const Divided& divided, const MemoryLimits& limits) {
        return MemberFor<Memory>::bytes(divided.layers_of(0), limits);
    }
    static Memory make(const Divided& divided, const MemoryLimits& limits) {
        return MemberFor<Memory>::make(divided.layers_of(0), limits);
    }
};

template <class... Members>
struct MemoryMaker<Hybrid<RunTimePattern, Members...>> {
    using Divided = Division<Members...>;

    static std::string objection(const Divided& divided) {
        return divided.has_layers() ? "" : "the model has no layer with memory, expected at least one";
    }
    static MemoryBytes bytes(const Divided& divided, const MemoryLimits& limits) {
        std::size_t member = 0;
        MemoryBytes sum = Hybrid<RunTimePattern, Members...>::bytes_for(
            static_cast<int>(divided.member_of_layer().size()), MemoryBytes{});
        ((sum += bytes_of<Members>(divided.layers_of(member++), limits)), ...);
        return sum;
    }
    static Hybrid<RunTimePattern, Members...> make(const Divided& divided, const MemoryLimits& limits) {
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
    static Hybrid<RunTimePattern, Members...> make(const Divided& divided, const MemoryLimits& limits,
                                                   std::index_sequence<I...>) {
        return Hybrid<RunTimePattern, Members...>{divided.member_of_layer(),
                                                  make_one<Members>(divided.layers_of(I), limits)...};
    }
};

/// A sentence, or empty.
template <class Memory>
std::string refusal_of(const typename MemoryMaker<Memory>::Divided& divided) {
    return divided.error().empty() ? MemoryMaker<Memory>::objection(divided) : divided.error();
}

} // namespace detail

/// Makes the memory of a model that is known at run time only. A `Memory` that is a `Cache`, a `RecurrentMemory` or a
/// `Hybrid<WithResidual, ...>` has all layers. In a `Hybrid<RunTimePattern, Members...>`, each layer goes to the first
/// member that takes it (see `MemberFor`), and members without layers are left out. Each member gets a
/// default-constructed backend.
///
/// Refuses a description that contradicts itself, and one with a layer that no member takes. Limits that are wrong are
/// violations, as in the constructors of the members. Throws `std::bad_alloc` if there is not enough memory.
template <class Memory>
ModelResult<Memory> make_memory(const RunTimeDescription& model, const MemoryLimits& limits) {
    const typename detail::MemoryMaker<Memory>::Divided divided{model};
    if (std::string refusal = detail::refusal_of<Memory>(divided); !refusal.empty())
        return ModelError{std::move(refusal)};
    return detail::MemoryMaker<Memory>::make(divided, limits);
}

/// What the memory takes that `make_memory` makes: see `Cache::bytes_for`. Allocates nothing that grows with the
/// limits. Refuses as `make_memory` does.
template <class Memory>
ModelResult<MemoryBytes> bytes(const RunTimeDescription& model, const MemoryLimits& limits) {
    const typename detail::MemoryMaker<Memory>::Divided divided{model};
    if (std::string refusal = detail::refusal_of<Memory>(divided); !refusal.empty())
        return ModelError{std::move(refusal)};
    return detail::MemoryMaker<Memory>::bytes(divided, limits);
}

/// The same limits with as many cells (`limits.attention.cells`, whatever it was) as the memory has in at most `most`
/// bytes; never more than 2^30. In place of the limits, a function from a number of cells to `MemoryLimits`, which more
/// cells never make smaller. Refuses as `make_memory` does, and if not even one cell fits.
template <class Memory, class Limits = MemoryLimits>
ModelResult<MemoryLimits> largest_limits(const RunTimeDescription& model, const Limits& limits, std::int64_t most) {
    const typename detail::MemoryMaker<Memory>::Divided divided{model};
    if (std::string refusal = detail::refusal_of<Memory>(divided); !refusal.empty())
        return ModelError{std::move(refusal)};
    const auto bytes_of = [&](const MemoryLimits& some) {
        return detail::MemoryMaker<Memory>::bytes(divided, some).total();
    };
    return detail::limits_or_error(detail::largest_limits(limits, most, bytes_of), most);
}

} // namespace cellar::models
