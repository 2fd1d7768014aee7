// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function.hpp>

#include <cstdint>

namespace cellar::detail::kernel {

/// Divides by a number known only at run time, by multiplying: a division costs a device 20 instructions or more. The
/// dividend is in [0, 2^31), the divisor in [1, 2^31).
///
/// With s = ceil(log2 d) and m = ceil(2^(31 + s) / d), n m / 2^(31 + s) exceeds n / d by less than 1 / d (Granlund and
/// Montgomery, Division by invariant integers using multiplication, 1994).
class Divisor {
public:
    struct Quotient {
        std::int32_t quotient;
        std::int32_t remainder;
    };

    CELLAR_FUNCTION explicit Divisor(std::int32_t d) : d_{d} {
        while ((std::int64_t{1} << (shift_ - 31)) < d) ++shift_;
        factor_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + static_cast<std::uint64_t>(d) - 1)
                                             / static_cast<std::uint64_t>(d));
    }

    CELLAR_FUNCTION std::int32_t value() const { return d_; }

    CELLAR_FUNCTION Quotient divide(std::int32_t n) const {
        const auto quotient =
            static_cast<std::int32_t>((std::uint64_t{static_cast<std::uint32_t>(n)} * factor_) >> shift_);
        return {quotient, n - quotient * d_};
    }

private:
    std::int32_t d_;
    std::int32_t shift_ = 31;
    std::uint32_t factor_;
};

} // namespace cellar::detail::kernel
