// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "instantiated_elsewhere.hpp"

template class cellar::Cache<cellar::StandardV<float>>;
template class cellar::CachePass<Cache>;
