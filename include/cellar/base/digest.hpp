// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/ids.hpp>

#include <cstdint>

namespace cellar::detail {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): neighbouring numbers get distant values.
constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// A hash of numbers in their order, the same on every machine, to compare what several processes have. Not a defence
/// against anyone who chooses the numbers.
class Digest {
public:
    Digest& add(std::uint64_t number) {
        value_ = mixed(value_ + number + 0x9e3779b97f4a7c15U);
        return *this;
    }
    Digest& add(std::int32_t number) { return add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(number))); }
    Digest& add(Position p) { return add(p.value); }
    Digest& add(Sequence s) { return add(s.value); }

    std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0;
};

} // namespace cellar::detail
