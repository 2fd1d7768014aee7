// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/element/element.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace cellar {

/// A tag that derives from this names one state tensor of a layer: `struct Ssm : StateTensor<3> {};`. `Rank` is the
/// number of extents of one sequence's tensor.
template <int Rank, Element E = float>
struct StateTensor {
    static_assert(Rank >= 1 && Rank <= 4, "StateTensor: a state has 1 to 4 extents");
    static constexpr int rank = Rank;
    using element_type = E;
};

/// The name of a state tensor: a type derived from `StateTensor`.
template <class T>
concept StateTag = Element<typename T::element_type> && requires {
    { T::rank + 0 } -> std::same_as<int>;
};

/// The tensors of a layer's state, each named by its tag.
template <StateTag... Tags>
struct States {
    static_assert(sizeof...(Tags) > 0, "States: a state has at least one tensor");
    static_assert(((detail::times_among<Tags, Tags...> == 1) && ...), "States: every tensor has its own tag");
    static constexpr int count = sizeof...(Tags);
};

/// The extents of one tensor of one sequence.
class StateExtents {
public:
    /// 1 to 4 extents, each at least 1, with fewer than 2^28 elements together. Anything else is a violation.
    constexpr StateExtents(std::initializer_list<std::int64_t> extents, Where where = Where::current())
        : rank_{static_cast<int>(extents.size())} {
        CELLAR_EXPECTS_AT(where, rank_ >= 1 && rank_ <= 4, "state shape: ", rank_, " extents, expected 1 to 4");
        int r = 0;
        for (const std::int64_t extent : extents) {
            CELLAR_EXPECTS_AT(where, extent > 0, "state shape: an extent of ", extent, ", expected at least 1");
            extents_[r++] = extent;
        }
        std::int64_t n = 1;
        for (const std::int64_t extent : extents) n = extent < largest ? std::min(n * extent, largest) : largest;
        CELLAR_EXPECTS_AT(where, n < largest, "state shape: a tensor of 2^28 elements or more, expected fewer");
    }

    /// The number of extents.
    constexpr int rank() const { return rank_; }
    constexpr std::int64_t operator[](int r) const { return extents_[r]; }

    /// The product of the extents.
    constexpr std::int64_t elements() const {
        std::int64_t n = 1;
        for (int r = 0; r < rank_; ++r) n *= extents_[r];
        return n;
    }

private:
    static constexpr std::int64_t largest = 1 << 28;

    std::int64_t extents_[4] = {};
    int rank_;
};

/// The state of one sequence: for each layer, the extents of each tensor, in the order of `States`. All layers together
/// have fewer than 2^29 elements, which is far above any model.
class StateShape {
public:
    /// All layers alike. `tensors`: the extents of each, in the order of the tags of `States`.
    constexpr StateShape(int layers, std::initializer_list<StateExtents> tensors, Where where = Where::current())
        : StateShape{repeated(layers, tensors, where), where} {}

    /// Each layer with its own extents.
    constexpr explicit StateShape(std::vector<std::vector<StateExtents>> layers, Where where = Where::current())
        : layers_{std::move(layers)} {
        CELLAR_EXPECTS_AT(where, !layers_.empty(), "state shape: no layers, expected at least 1");
        std::int64_t elements = 0;
        for (const auto& layer : layers_) {
            CELLAR_EXPECTS_AT(where, layer.size() == layers_.front().size(), "state shape: a layer has ", layer.size(),
                              " tensors, expected ", layers_.front().size(), " as in the first");
            for (const StateExtents& tensor : layer) elements += tensor.elements();
        }
        check_elements(elements, where);
    }

    constexpr int layers() const { return static_cast<int>(layers_.size()); }
    /// The number of tensors of each layer.
    constexpr int tensors() const { return static_cast<int>(layers_.front().size()); }

    /// The extents of one tensor of a layer.
    constexpr const StateExtents& extents(int layer, int tensor) const {
        return layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(tensor)];
    }

private:
    static constexpr std::vector<std::vector<StateExtents>>
    repeated(int layers, std::initializer_list<StateExtents> tensors, Where where) {
        std::int64_t elements = 0;
        for (const StateExtents& tensor : tensors) elements += tensor.elements();
        check_elements(std::max(layers, 0) * elements, where); // before there is a list of so many layers
        std::vector<std::vector<StateExtents>> all(static_cast<std::size_t>(std::max(layers, 0)), tensors);
        return all;
    }

    // So that the bytes of any possible number of slots fit into 64 bits.
    static constexpr void check_elements(std::int64_t elements, Where where) {
        CELLAR_EXPECTS_AT(where, elements < (1 << 29), "state shape: a state has ", elements,
                          " elements in all layers, expected fewer than 2^29");
    }

    std::vector<std::vector<StateExtents>> layers_;
};

} // namespace cellar
