// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/offload_to.hpp>
#include <cellar/element/format_codec.hpp>

namespace cellar::detail {

/// Where the rows of a snapshot go, and in which formats; null: those of the cache.
struct OffloadPlace {
    OffloadTo to = OffloadTo::host;
    StoredAs as{};
};

} // namespace cellar::detail
