// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/prefix_tree_memory.hpp>

namespace cellar {

template <PrefixTreeMemory M>
class PrefixTree;
class PrefixPin;

} // namespace cellar
