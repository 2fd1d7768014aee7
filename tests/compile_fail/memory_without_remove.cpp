// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_remove
#include <cellar/cellar.hpp>

struct WithoutRemove : cellar::Cache<> {
    using cellar::Cache<>::Cache;
#ifndef CORRECTED
    void remove() {}
#endif
};

template <cellar::Memory>
struct User {};

User<WithoutRemove> user;
