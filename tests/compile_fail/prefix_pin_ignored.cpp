// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pin that is destroyed at once pins nothing.
// error: nodiscard
#include <cellar/cellar.hpp>

#include <vector>

std::int32_t hold(cellar::PrefixTree<cellar::Cache<>>& tree, const std::vector<std::int32_t>& prompt) {
#ifdef CORRECTED
    return tree.pin(prompt).length();
#else
    tree.pin(prompt);
    return 0;
#endif
}
