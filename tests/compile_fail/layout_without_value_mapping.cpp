// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: has_mappings
// error: value_mapping
#include <cellar/layout/layout.hpp>

struct KeysOnly {
    using key_format = float;
    using value_format = float;
    using key_mapping = cellar::CellsHeadsDims;
#ifdef CORRECTED
    using value_mapping = cellar::CellsHeadsDims;
#endif
};

template <cellar::LayoutPolicy>
struct User {};

User<KeysOnly> user;
