// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "everything.hpp"

#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

const void* handler_in_second();
cellar::ViolationHandler swap_in_second(cellar::ViolationHandler handler);
void convert_in_third(std::span<const float> from, std::span<cellar::half> to);

namespace {

void quiet(const cellar::Violation&) {}

/// True if a translation unit that is compiled for more instructions converts to the same bits.
bool converts_alike() {
    std::vector<float> floats(100);
    for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i) / 7;
    std::vector<cellar::half> here(floats.size());
    std::vector<cellar::half> there(floats.size());
    cellar::convert(floats, here);
    convert_in_third(floats, there);
    for (std::size_t i = 0; i < here.size(); ++i)
        if (here[i].bits != there[i].bits || here[i].bits != cellar::half{floats[i]}.bits) return false;
    return true;
}

} // namespace

// An inline variable must exist once in a program. The test takes the handler of violations.
int main() {
    if (&cellar::detail::violation_handler != handler_in_second()) {
        std::puts("each translation unit has its own violation handler");
        return 1;
    }
    swap_in_second(quiet);
    if (cellar::set_violation_handler(nullptr) != quiet) {
        std::puts("a handler set in one translation unit has no effect in the other");
        return 1;
    }
    // The third one needs a processor with what it is compiled for.
    if (cellar::detail::simd::is_available() && !converts_alike()) {
        std::puts("translation units with different flags convert to different bits");
        return 1;
    }
}
