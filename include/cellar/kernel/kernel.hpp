// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Runs both steps of a kernel at one place. A kernel is a trivially copyable value over raw pointers, called with
/// three indices:
///
/// - `read(i, head, d)` returns a `Value` and writes nothing;
/// - `write(i, head, d, value)` stores it.
///
/// No place reads what another one writes, so places may run in any order, and a thread may read several before it
/// writes the first.
template <class Kernel>
CELLAR_FUNCTION void apply(const Kernel& kernel, std::int64_t i, std::int64_t head, std::int64_t d) {
    kernel.write(i, head, d, kernel.read(i, head, d));
}

/// The cells first, first + 1, ...
struct CellRun {
    Cell first;

    CELLAR_FUNCTION std::int64_t operator()(std::int64_t i) const { return first + i; }
};

/// The cells of a list, in memory that no kernel writes.
struct CellList {
    const Cell* cells;

    CELLAR_FUNCTION std::int64_t operator()(std::int64_t i) const {
#if defined(__CUDA_ARCH__)
        return __ldg(cells + i); // avoids reloading after stores that might alias the list
#else
        return cells[i];
#endif
    }
};

/// Copies cell from(i) to cell to(i). No cell is both read and written.
template <class Mapping, class Element>
struct CopyCell {
    using Value = Element;

    Mapping mapping;
    Element* memory;
    CellList from;
    CellList to;

    CELLAR_FUNCTION Value read(std::int64_t i, std::int64_t head, std::int64_t d) const {
        return memory[mapping(from(i), head, d)];
    }
    CELLAR_FUNCTION void write(std::int64_t i, std::int64_t head, std::int64_t d, const Value& value) const {
        memory[mapping(to(i), head, d)] = value;
    }
};

} // namespace cellar::detail::kernel
