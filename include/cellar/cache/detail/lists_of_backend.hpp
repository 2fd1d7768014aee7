// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/cache/compressed_lists.hpp>

#include <cstdint>

namespace cellar::detail {

/// Lists in the memory of a backend that the host cannot read.
class ListsOfBackend {
public:
    virtual const std::int32_t* table() const = 0;
    /// One number for each row of the batch.
    virtual const std::int32_t* column(int c) const = 0;
    /// Enqueues. May throw, with nothing changed.
    virtual CompressedLists compressed() = 0;

protected:
    ~ListsOfBackend() = default;
};

} // namespace cellar::detail
