// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "paths.hpp"

namespace cellar_test {

std::string source_dir() {
    return CELLAR_SOURCE_DIR;
}
std::string shared_dir() {
    return CELLAR_SHARED_DIR;
}

} // namespace cellar_test
