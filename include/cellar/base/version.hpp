// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

/// The version as one number, for `#if CELLAR_VERSION >= 100`: major * 10000 + minor * 100 + patch.
#define CELLAR_VERSION_MAJOR 0
#define CELLAR_VERSION_MINOR 1
#define CELLAR_VERSION_PATCH 0
#define CELLAR_VERSION (CELLAR_VERSION_MAJOR * 10000 + CELLAR_VERSION_MINOR * 100 + CELLAR_VERSION_PATCH)
