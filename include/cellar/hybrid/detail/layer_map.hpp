// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/type_list.hpp>
#include <cellar/hybrid/pattern.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cellar::detail {

// Tables count layers without memory as those of a last member.
constexpr int index_of_member(int member, int members) {
    CELLAR_EXPECTS(member >= no_memory && member < members, "layers_of: member ", member, ", expected 0 to ",
                   members - 1, " or no_memory");
    return member == no_memory ? members : member;
}

template <class M>
struct Block {
    using memory = M;
    static constexpr int layers = 1;
};
template <int Count, class M>
struct Block<Times<Count, M>> {
    static_assert(Count > 0, "Times: the number of layers is at least 1");
    using memory = M;
    static constexpr int layers = Count;
};

template <bool Repeats, int Members, int Period>
struct LayerTable {
    static constexpr bool repeats = Repeats;

    constexpr void add(int member, int layers) {
        for (; layers > 0; --layers) {
            auto& count = counts[static_cast<std::size_t>(member)];
            places[static_cast<std::size_t>(filled++)] = {member, count++};
        }
    }

    // Layers without memory count as those of a last member here.
    std::array<LayerPlace, static_cast<std::size_t>(Period)> places{}; // of one period
    std::array<int, static_cast<std::size_t>(Members) + 1> counts{};   // layers of one period, by member
    int filled = 0;
};

template <bool Repeats, class... Blocks>
struct PatternBlocks {
    static_assert(sizeof...(Blocks) > 0, "a pattern has at least one layer");

    template <class... Members>
    static constexpr auto table() {
        static_assert(((times_among<typename Block<Blocks>::memory, Members..., NoMemory> > 0) && ...),
                      "the pattern names a memory that is not among the members");
        LayerTable<Repeats, sizeof...(Members), (Block<Blocks>::layers + ...)> table;
        (table.add(index_among<typename Block<Blocks>::memory, Members..., NoMemory>(), Block<Blocks>::layers), ...);
        return table;
    }
};

template <class Pattern>
struct PatternOf {
    static_assert(times_among<Pattern> != 0, "a pattern is a Repeat, a LayerList or an Every, or WithResidual with two "
                                             "members");
};
template <class... Blocks>
struct PatternOf<Repeat<Blocks...>> : PatternBlocks<true, Blocks...> {};
template <class... Blocks>
struct PatternOf<LayerList<Blocks...>> : PatternBlocks<false, Blocks...> {};
/// Both members have every layer, at the same index; its place names the first one.
template <>
struct PatternOf<WithResidual> {
    template <class... Members>
    static constexpr auto table() {
        static_assert(sizeof...(Members) == 2, "WithResidual: a pattern of two members, the coarse and the exact one");
        LayerTable<true, 2, 1> table;
        table.add(0, 1);
        table.counts = {1, 1, 0};
        return table;
    }
};

/// Which member has which layer. Computed at compile time; a lookup is O(1).
template <class Pattern, class... Members>
class LayerMap {
    static constexpr auto table = PatternOf<Pattern>::template table<Members...>();

public:
    static constexpr int members = sizeof...(Members);
    static constexpr int period = static_cast<int>(table.places.size());

    /// False if a model has exactly `period` layers.
    static constexpr bool repeats = table.repeats;

    /// For a model of `layers` layers.
    constexpr explicit LayerMap(int layers) : layers_{layers} {
        CELLAR_EXPECTS(layers > 0, "hybrid: ", layers, " layers, expected at least 1");
        // Not const, because nvcc fails on a check that depends on template arguments.
        int expected = period; // NOLINT(misc-const-correctness)
        if (!repeats)
            CELLAR_EXPECTS(layers == expected, "hybrid: ", layers, " layers, expected the ", expected,
                           " of the pattern");
    }

    static constexpr std::int64_t bytes_for(int) { return 0; }

    constexpr int layers() const { return layers_; }

    static constexpr LayerPlace place(int layer) {
        CELLAR_EXPECTS(layer >= 0, "place: layer ", layer, ", expected 0 or more");
        // Not const, because nvcc fails on a check that depends on template arguments.
        int last = period - 1; // NOLINT(misc-const-correctness)
        if (!repeats)
            CELLAR_EXPECTS(layer <= last, "place: layer ", layer, ", expected 0 to ", last, ", those of the pattern");
        const LayerPlace in_period = table.places[static_cast<std::size_t>(layer % period)];
        const int index = in_period.layer + layer / period * count(in_period.member);
        return {in_period.member < members ? in_period.member : no_memory, index};
    }

    /// How many of the first `layers` layers a member has, or how many have `no_memory`.
    static constexpr int layers_of(int member, int layers) {
        CELLAR_EXPECTS(layers >= 0, "layers_of: ", layers, " layers, expected 0 or more");
        const int index = index_of_member(member, members);
        int found = layers / period * count(index);
        for (int i = 0; i < layers % period; ++i)
            found += table.places[static_cast<std::size_t>(i)].member == index ? 1 : 0;
        return found;
    }
    constexpr int layers_of(int member) const { return layers_of(member, layers_); }

    /// True if the pattern has layers for a member.
    static constexpr bool uses(int member) { return count(member) > 0; }

    /// The first member from `member` on that the pattern has layers for. Layers without memory count as a last member.
    static constexpr int next_used(int member) {
        while (member <= members && !uses(member)) ++member;
        return member;
    }

    /// What a pass carries along: it stays valid when the hybrid moves.
    constexpr LayerMap reference() const { return *this; }

private:
    static constexpr int count(int member) { return table.counts[static_cast<std::size_t>(member)]; }

    int layers_;
};

/// The same, from a list that is given at run time.
template <class... Members>
class LayerMap<RunTimePattern, Members...> {
    struct Table {
        std::vector<LayerPlace> places;
        std::array<int, sizeof...(Members) + 1> counts{}; // layers, by member
    };

public:
    static constexpr int members = sizeof...(Members);

    /// `member_of_layer`: the index of a member, or `no_memory`, for each layer of the model.
    explicit LayerMap(const std::vector<int>& member_of_layer) {
        CELLAR_EXPECTS(!member_of_layer.empty(), "hybrid: no layers, expected at least 1");
        auto table = std::make_unique<Table>();
        table->places.reserve(member_of_layer.size());
        for (std::size_t layer = 0; layer < member_of_layer.size(); ++layer) {
            const int given = member_of_layer[layer];
            CELLAR_EXPECTS(given >= no_memory && given < members, "hybrid: layer ", layer, " has member ", given,
                           ", expected 0 to ", members - 1, " or no_memory");
            const int member = given == no_memory ? members : given;
            table->places.push_back({given, table->counts[static_cast<std::size_t>(member)]++});
        }
        table_ = std::move(table);
    }
    static constexpr std::int64_t bytes_for(int layers) { return bytes_of<Table>(1) + bytes_of<LayerPlace>(layers); }

    int layers() const { return reference().layers(); }
    LayerPlace place(int layer) const { return reference().place(layer); }
    int layers_of(int member) const {
        return table_->counts[static_cast<std::size_t>(index_of_member(member, members))];
    }
    bool uses(int member) const { return layers_of(member) > 0; }

    /// Any member may have layers.
    static constexpr int next_used(int member) { return member; }

    class Reference {
    public:
        int layers() const { return static_cast<int>(table_->places.size()); }
        LayerPlace place(int layer) const {
            CELLAR_EXPECTS(layer >= 0 && layer < layers(), "place: layer ", layer, ", expected 0 to ", layers() - 1);
            return table_->places[static_cast<std::size_t>(layer)];
        }

    private:
        friend class LayerMap;
        explicit Reference(const Table* table) : table_{table} {}
        const Table* table_;
    };
    Reference reference() const { return Reference{&expect_not_moved(table_, "hybrid")}; }

private:
    std::unique_ptr<const Table> table_; // at a fixed address, because passes point to it
};

} // namespace cellar::detail
