// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: a member of a hybrid is a Memory: a Cache, a RecurrentState,
#include <cellar/cellar.hpp>

using Full = cellar::Cache<>;
using Window = cellar::Cache<cellar::StandardV<float>, cellar::SlidingWindow<4>>;
#ifdef CORRECTED
struct Inner : Window {};
#else
using Inner = cellar::Hybrid<cellar::Repeat<Window>, Window>;
#endif
using Memory = cellar::Hybrid<cellar::Repeat<Full, Inner>, Full, Inner>;

static_assert(sizeof(Memory) > 0);
