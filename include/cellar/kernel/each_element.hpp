// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>
#include <cellar/kernel/divisor.hpp>

#include <cstddef>
#include <cstdint>

namespace cellar::detail::kernel {

/// How many values a thread reads before it writes the first one: 16 bytes' worth, so that enough loads are in flight
/// to hide the memory's latency.
template <class Value>
inline constexpr int values_in_flight = sizeof(Value) < 16 ? 16 / static_cast<int>(sizeof(Value)) : 1;

/// Applies a kernel (see kernel.hpp) to all of [cells, heads, dim], as a functor of one index. Neighbouring indices,
/// which go to neighbouring device threads, are neighbours in memory: d is fastest, or the cell if `CellsFastest`. Each
/// index covers a strip of `values_in_flight` places along the other of the two.
template <class Kernel, bool CellsFastest>
class EachElement {
public:
    using Value = typename Kernel::Value;
    static constexpr int strip = values_in_flight<Value>;

    /// Cells are counted from `first` on. There are at most 2^30 values.
    EachElement(const Kernel& kernel, std::int64_t first, std::int32_t cells, std::int32_t heads, std::int32_t dim)
        : kernel_{kernel},
          first_{first},
          fastest_{CellsFastest ? cells : dim},
          heads_{heads},
          along_{CellsFastest ? dim : cells} {}

    std::int32_t size() const { return (along_ + strip - 1) / strip * heads_.value() * fastest_.value(); }

    CELLAR_FUNCTION void operator()(std::int32_t index) const {
        const auto row = fastest_.divide(index);
        const auto [of_strip, head] = heads_.divide(row.quotient);
        const std::int32_t begin = of_strip * strip;
        if (along_ - begin >= strip) {
            apply_along<strip>(row.remainder, head, begin);
        } else {
            for (std::int32_t k = begin; k < along_; ++k) apply_along<1>(row.remainder, head, k);
        }
    }

private:
    template <int N>
    CELLAR_FUNCTION void apply_along(std::int32_t fastest, std::int32_t head, std::int32_t begin) const {
        Value values[std::size_t{N}];
        for (int k = 0; k < N; ++k) values[k] = kernel_.read(cell(fastest, begin + k), head, dim(fastest, begin + k));
        for (int k = 0; k < N; ++k) kernel_.write(cell(fastest, begin + k), head, dim(fastest, begin + k), values[k]);
    }

    CELLAR_FUNCTION std::int64_t cell(std::int32_t fastest, std::int32_t along) const {
        return first_ + (CellsFastest ? fastest : along);
    }
    CELLAR_FUNCTION static std::int64_t dim(std::int32_t fastest, std::int32_t along) {
        return CellsFastest ? along : fastest;
    }

    Kernel kernel_;
    std::int64_t first_;
    Divisor fastest_;
    Divisor heads_;
    std::int32_t along_;
};

} // namespace cellar::detail::kernel
