// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The header includes its default arguments.
#include <cellar/cache/encoder_memory.hpp>

#include <type_traits>

using namespace cellar;

static_assert(std::is_nothrow_move_constructible_v<EncoderMemory<>>);
