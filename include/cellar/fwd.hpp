// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// Declares the memories with their default arguments, for headers that only name them.

#include <cellar/cache/fwd.hpp>
#include <cellar/hybrid/fwd.hpp>
#include <cellar/prefix/fwd.hpp>
#include <cellar/recurrent/fwd.hpp>
