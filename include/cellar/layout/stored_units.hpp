// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/element/storage_format.hpp>
#include <cellar/layout/mapping.hpp>

#include <cstdint>
#include <type_traits>

namespace cellar {

/// The keys or the values of a layer in units, as kernels of a device read or write them.
template <DeviceFormat TheFormat, LayoutMapping TheMapping, bool Writes = false>
struct StoredUnits {
    using Format = TheFormat;
    using Mapping = TheMapping;
    using Unit = std::conditional_t<Writes, detail::unit_of<Format>, const detail::unit_of<Format>>;
    using Scale = std::conditional_t<Writes, detail::scale_of<Format>, const detail::scale_of<Format>>;
    static_assert(detail::contiguous_heads<Mapping>);

    Mapping mapping; ///< of units
    Unit* data;
    Scale* scale_data; ///< null: there are none

    /// The values of a head.
    CELLAR_FUNCTION std::int32_t head_dim() const { return mapping.dim() * detail::values_per_unit<Format>; }

    /// All units of a head, in the order of its values.
    CELLAR_FUNCTION Unit* units(std::int64_t cell, std::int64_t head) const { return data + mapping(cell, head, 0); }

    /// The scale of a value.
    CELLAR_FUNCTION Scale& scale(std::int64_t cell, std::int64_t head, std::int32_t value) const {
        const Mapping scales{mapping.cells(), mapping.heads(), detail::scales_in<Format>(head_dim())};
        constexpr int served = detail::ScaleOf<Format>::values;
        return scale_data[scales(cell, head, served == whole_head ? 0 : value / served)];
    }

    /// Decodes the unit that has the value, a multiple of `values_per_unit`; without a rotation.
    CELLAR_FUNCTION void decode(std::int64_t cell, std::int64_t head, std::int32_t value, float* to) const {
        using Stored = detail::unrotated_format<Format>;
        const Unit& unit = units(cell, head)[value / detail::values_per_unit<Format>];
        if constexpr (detail::has_scale_plane<Format>) {
            Stored::decode_unit(unit, scale(cell, head, value), to);
        } else {
            Stored::decode_unit(unit, to);
        }
    }
};

} // namespace cellar
