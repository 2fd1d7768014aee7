// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The header includes its default arguments.
#include <cellar/recurrent/recurrent_memory.hpp>

#include <type_traits>

using namespace cellar;

namespace {

struct Conv : StateTensor<2> {};

} // namespace

static_assert(std::is_nothrow_move_constructible_v<RecurrentMemory<States<Conv>>>);
