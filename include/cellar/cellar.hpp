// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// The memories, policies and batches, which need nothing but the standard library. Include these headers by name:
/// `attention/attend.hpp`, `attention/attend_bytes.hpp`, `attention/merge_attention.hpp`,
/// `attention/kokkos_threads.hpp`, `element/convert.hpp`, `models/models.hpp`, `cache/describe.hpp`, `cache/audit.hpp`,
/// `cache/sizes.hpp`, `prefix/audit.hpp`, `backend/eigen.hpp`, `backend/kokkos.hpp`, and the headers of `serve/`,
/// `interop/`, `files/` and `mpi/`.

#include <cellar/backend/host.hpp>
#include <cellar/backend/no_data.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/version.hpp>
#include <cellar/cache/cache.hpp>
#include <cellar/cache/encoder_memory.hpp>
#include <cellar/hybrid/hybrid.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/memory/memory.hpp>
#include <cellar/memory/park.hpp>
#include <cellar/prefix/prefix_tree.hpp>
#include <cellar/recurrent/recurrent_memory.hpp>
#include <cellar/shift/disabled_shift.hpp>
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rope_shift.hpp>
#include <cellar/shift/rotate_on_read.hpp>
#include <cellar/shift/unrotated_shift.hpp>
#include <cellar/window/chunked_attention.hpp>
#include <cellar/window/full_causal.hpp>
#include <cellar/window/sliding_window.hpp>
