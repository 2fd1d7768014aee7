// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// All that it takes to run a model with nothing but the standard library. `describe.hpp`, `models.hpp`, `sizes.hpp`,
/// `book/audit.hpp`, and what lies in `interop/`, are asked for by name; so are the other backends.

#include <cellar/backend/host.hpp>
#include <cellar/base/version.hpp>
#include <cellar/cache.hpp>
#include <cellar/encoder_memory.hpp>
#include <cellar/hybrid.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/memory.hpp>
#include <cellar/recurrent_state.hpp>
#include <cellar/shift/free_shift.hpp>
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/no_shift.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>
