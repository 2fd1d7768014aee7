// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace cellar {

/// As the first member of a struct of options: its other members can only be initialised by name, as in
/// `{.sequences = 8}`. Without it, `{2048, 8}` would compile, and mean 2048 sequences.
struct NamedOnly {
    explicit NamedOnly() = default;
};

} // namespace cellar
