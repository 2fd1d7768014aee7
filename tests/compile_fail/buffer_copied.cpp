// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copied buffer would be a second owner of the same memory.
// error: deleted
#include <cellar/backend/host.hpp>

int main() {
    cellar::HostBackend backend;
    auto buffer = backend.allocate<float>(1);
#ifdef CORRECTED
    auto other = static_cast<decltype(buffer)&&>(buffer);
#else
    auto other = buffer;
#endif
    return static_cast<int>(other.size());
}
