// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "adapter.hpp"
#include "adding_shift.hpp"
#include "rows.hpp"
#include "setting.hpp"
#include "suite.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace property {

/// A layer with keys wider than values, one with another shape, one that reads the memory of the first, and one without
/// values.
inline std::vector<Layer> layers() {
    return {{2, 6, 3}, {1, 3, 2}, {2, 6, 3, 0}, {3, 2, 0}};
}

// Windows: the type, and the parameters for the naive model.

struct Full {
    using type = cellar::FullCausal;
    static constexpr const char* name = "FullCausal";
    static constexpr naive::WindowKind kind = naive::WindowKind::full;
    static constexpr int size = 0;
    static type make(const naive::Window&) { return {}; }
};

template <template <int> class Type, naive::WindowKind TheKind, int Size>
struct WithRetention {
    using type = Type<Size>;
    static constexpr naive::WindowKind kind = TheKind;
    static constexpr int size = Size;
    static type make(const naive::Window& w) {
        const cellar::WindowOptions options{.retention = w.retention, .sinks = w.sinks};
        if constexpr (Size == 0) {
            return type{w.size, options};
        } else {
            return type{options};
        }
    }
};
template <int Size>
struct Sliding : WithRetention<cellar::SlidingWindow, naive::WindowKind::sliding, Size> {
    static constexpr const char* name = Size == 0 ? "SlidingWindow<>" : "SlidingWindow<3>";
};
template <int Size>
struct Chunked : WithRetention<cellar::ChunkedAttention, naive::WindowKind::chunked, Size> {
    static constexpr const char* name = Size == 0 ? "ChunkedAttention<>" : "ChunkedAttention<4>";
};

// Shifts: the type, and what it does to a key. The layers differ: two pairs that leave the ends of a head alone, one
// pair, and none.

struct Disabled {
    using type = cellar::DisabledShift;
    static constexpr const char* name = "DisabledShift";
    static type make() { return {}; }
    static KeyShift key_shift(double) { return {}; }
};

struct Unrotated {
    using type = cellar::UnrotatedShift;
    static constexpr const char* name = "UnrotatedShift";
    static type make() { return {}; }
    static KeyShift key_shift(double) { return {}; }
};

struct Adding {
    using type = AddingShift;
    static constexpr const char* name = "a shift that adds";
    static type make() { return AddingShift{{3, 1, 3, 1}}; }
    static KeyShift key_shift(double) {
        return {.kind = KeyShift::Kind::adds, .halves = false, .first = 0, .frequencies = {}};
    }
};

template <class Pairing>
struct Rotating {
    using type = cellar::RopeShift<Pairing>;
    static constexpr bool halves = std::is_same_v<Pairing, cellar::Neox>;
    static constexpr const char* name = halves ? "RopeShift<Neox>" : "RopeShift<Interleaved>";
    static std::vector<std::vector<double>> frequencies() {
        return {{1.0, 0.3}, {0.7}, {9.0, 9.0}, {}}; // the third layer shares the memory of the first
    }
    static type make() { return type::per_layer(frequencies(), 1); }
    static KeyShift key_shift(double rounding) {
        return {.kind = KeyShift::Kind::rotates,
                .halves = halves,
                .first = 1,
                .frequencies = frequencies(),
                .rounding = rounding};
    }
};

/// Keys that attention rotates as it reads them: as they are stored, no operation changes them.
struct OnRead {
    using type = cellar::RotateOnRead<>;
    static constexpr const char* name = "RotateOnRead<Neox>";
    static type make() { return Rotating<cellar::Neox>::make(); }
    static KeyShift key_shift(double) { return {}; }
};

/// The same as `Rotating`, with a pairing that is known at run time.
template <class Pairing>
struct RotatingAtRunTime : Rotating<Pairing> {
    using type = cellar::RopeShift<cellar::RunTimePairing>;
    static constexpr const char* name = "RopeShift<RunTimePairing>";
    static type make() { return type::per_layer(Rotating<Pairing>::frequencies(), {!Rotating<Pairing>::halves}, 1); }
};

/// Half a unit in the last place, relative.
inline double rounding_of(float) {
    return 0x1p-24;
}
inline double rounding_of(cellar::half) {
    return 0x1p-11;
}
inline double rounding_of(cellar::bfloat16) {
    return 0x1p-8;
}

template <class Layout, class Window, class Shift, class Backend>
Combination combination(const std::string& name, const std::vector<Layer>& layers, double key_rounding) {
    return {.name = name + ", " + Window::name + ", " + Shift::name,
            .window_kind = Window::kind,
            .window_size = Window::size,
            .can_shift = Shift::type::possible,
            .rotates_keys = cellar::rotates_keys<typename Shift::type>,
            .block_cells = cellar::detail::layout_block_cells<Layout>,
            .rows = {layers, Shift::key_shift(key_rounding)},
            .make = [layers](const Setting& setting) -> std::unique_ptr<Subject> {
                using Cache = cellar::Cache<Layout, typename Window::type, typename Shift::type, Backend>;
                return std::make_unique<CacheSubject<Cache>>(
                    Cache{shape_of(layers), limits_of(setting), Window::make(setting.setup.window), Shift::make()});
            }};
}

template <class Layout, class Window, class Shift, class Backend>
Combination combination(const std::string& name) {
    return combination<Layout, Window, Shift, Backend>(name, layers(), rounding_of(typename Layout::key_format{}));
}

/// Every window, with its size fixed by the type and given at run time.
template <class Layout, class Shift, class Backend>
void check_windows(const std::string& name) {
    CHECK(agrees_with_model(combination<Layout, Full, Shift, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Sliding<3>, Shift, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Sliding<0>, Shift, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Chunked<4>, Shift, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Chunked<0>, Shift, Backend>(name)));
}

/// Every window and every shift once: the bookkeeping depends on neither layout nor backend, and each combination takes a
/// second to compile.
template <class Layout, class Backend>
void check_some_policies(const std::string& name) {
    CHECK(agrees_with_model(combination<Layout, Full, Rotating<cellar::Neox>, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Sliding<3>, Disabled, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Sliding<0>, Rotating<cellar::Interleaved>, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Chunked<4>, Unrotated, Backend>(name)));
    CHECK(agrees_with_model(combination<Layout, Chunked<0>, Adding, Backend>(name)));
}

} // namespace property
