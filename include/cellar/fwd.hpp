// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/shift.hpp>
#include <cellar/window/window.hpp>

namespace cellar {

class FullCausal;
struct NoShift;
class HostBackend;

/// The defaults of the policies stand here and nowhere else.
template <layout_policy Layout = StandardV<float>, window_policy Window = FullCausal,
          shift_policy ShiftPolicy = NoShift, backend Backend = HostBackend>
class Cache;

template <class States, backend Backend = HostBackend>
class RecurrentState;

template <layout_policy Layout = StandardV<float>, backend Backend = HostBackend>
class EncoderMemory;

template <class Pattern, class... Members>
class Hybrid;

template <class Pattern, class... Members>
class HybridPass;

} // namespace cellar
