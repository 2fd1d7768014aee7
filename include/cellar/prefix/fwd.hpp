// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/keeps_prefixes.hpp>

namespace cellar {

template <KeepsPrefixes M>
class PrefixTree;

} // namespace cellar
