// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files and messages have no name for every type, and must not take an unknown one for another.
// error: files and messages have names for float, half and bfloat16 only
#include <cellar/element/stored_format.hpp>

#ifdef CORRECTED
using Stored = float;
#else
using Stored = double;
#endif

const cellar::detail::StoredFormat format = cellar::detail::stored_format_of<Stored>();
