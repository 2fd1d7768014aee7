// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch_builder.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/layout/layout.hpp>

using Cache = cellar::Cache<cellar::StandardV<float>>;
