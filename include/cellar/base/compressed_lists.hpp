// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <span>

namespace cellar {

/// Compressed rows (CSR): row r is indices[indptr[r], indptr[r + 1]).
struct CompressedLists {
    std::span<const std::int32_t> indptr; ///< one more than there are rows
    std::span<const std::int32_t> indices;
};

} // namespace cellar
