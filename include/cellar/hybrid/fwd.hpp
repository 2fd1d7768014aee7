// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

template <class Pattern, class... Members>
class Hybrid;

template <class Pattern, class... Members>
class HybridPass;

} // namespace cellar
