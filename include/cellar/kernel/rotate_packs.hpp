// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/shift/shift.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail::kernel {

/// How the elements of pairs lie, if N pairs, two or more, always fill two packs; else `other`.
template <int N, class Rotation>
PairPlaces places_in_packs(const Rotation& rotation) {
    const int pairs = rotation.pairs();
    if (pairs == 0 || pairs % N != 0 || rotation.first(0) % N != 0) return PairPlaces::other;
    const PairPlaces places = pair_places(rotation, 0, pairs);
    return places == PairPlaces::apart && rotation.second(0) % N != 0 ? PairPlaces::other : places;
}

/// Rotates N pairs at once, which fill two packs. Its indices are (i, head, pair / N).
template <class Mapping, class Element, int N, PairPlaces Places, class Rotation, class Factor>
struct RotatePacks {
    struct Value {
        Pack<Element, N> packs[2];
    };

    Mapping mapping; ///< with contiguous heads
    Element* memory;
    Rotation rotation;
    const Factor* factors; ///< of all pairs, aligned to 16 bytes
    CellList cells;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t group) const {
        const int pair = static_cast<int>(group) * N;
        const Factors of_pairs = reinterpret_cast<const Factors*>(factors)[group];
        Value value{{pack(i, head, pair, 0), pack(i, head, pair, 1)}};
        for (int k = 0; k < N; ++k) {
            Element& first = Places == PairPlaces::apart ? value.packs[0].elements[k] : at(value, 2 * k);
            Element& second = Places == PairPlaces::apart ? value.packs[1].elements[k] : at(value, 2 * k + 1);
            float a = static_cast<float>(first);
            float b = static_cast<float>(second);
            rotation.rotate(a, b, of_pairs.factors[k]);
            first = static_cast<Element>(a);
            second = static_cast<Element>(b);
        }
        return value;
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t group, const Value& value) const {
        const int pair = static_cast<int>(group) * N;
        pack(i, head, pair, 0) = value.packs[0];
        pack(i, head, pair, 1) = value.packs[1];
    }

private:
    /// The factors of N pairs, which are read at once.
    struct alignas(N * sizeof(Factor) % 16 == 0 ? 16 : alignof(Factor)) Factors {
        Factor factors[std::size_t{N}];
    };

    CELLAR_FUNCTION static Element& at(Value& value, int k) { return value.packs[k / N].elements[k % N]; }

    /// The first or the second of the two packs that begin with this pair.
    CELLAR_FUNCTION Pack<Element, N>& pack(std::int64_t i, std::int64_t head, int pair, int which) const {
        const int second = Places == PairPlaces::apart ? rotation.second(pair) : rotation.first(pair) + N;
        const int d = which == 0 ? rotation.first(pair) : second;
        return *reinterpret_cast<Pack<Element, N>*>(memory + mapping(cells(i), head, d));
    }
};

} // namespace cellar::detail::kernel
