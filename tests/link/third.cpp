// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled for more instructions than the others, where the compiler knows such flags.
#include <cellar/element/convert.hpp>

#include <span>

void convert_in_third(std::span<const float> from, std::span<cellar::half> to);

void convert_in_third(std::span<const float> from, std::span<cellar::half> to) {
    cellar::convert(from, to);
}
