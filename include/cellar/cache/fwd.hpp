// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/shift.hpp>
#include <cellar/window/window.hpp>

namespace cellar {

class FullCausal;
struct DisabledShift;
struct UnrotatedShift;
class HostBackend;

// The default arguments stand here and nowhere else.

template <LayoutPolicy Layout = StandardV<float>, WindowPolicy Window = FullCausal, ShiftPolicy Shift = DisabledShift,
          BackendPolicy Backend = HostBackend>
class Cache;

template <LayoutPolicy Layout = StandardV<float>, BackendPolicy Backend = HostBackend>
class EncoderMemory;

} // namespace cellar
