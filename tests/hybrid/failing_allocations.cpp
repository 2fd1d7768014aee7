// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "failing_allocations.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

#ifndef __CUDACC__ // nvcc would also compile these for the device

void* operator new(std::size_t size) {
    std::int64_t& left = FailingAllocations::left();
    if (left != FailingAllocations::unlimited && left-- <= 0) {
        left = 0;
        throw std::bad_alloc{};
    }
    FailingAllocations::bytes() += static_cast<std::int64_t>(size);
    if (void* const block = std::malloc(size == 0 ? 1 : size)) return block;
    throw std::bad_alloc{};
}
// Otherwise the sanitizers' own operators serve arrays.
void* operator new[](std::size_t size) {
    return operator new(size);
}
// Not inlined: g++ would warn in a test that is compiled as one with this file that `free` does not match operator new.
[[gnu::noinline]] void operator delete[](void* block) noexcept {
    std::free(block);
}
[[gnu::noinline]] void operator delete[](void* block, std::size_t) noexcept {
    std::free(block);
}
[[gnu::noinline]] void operator delete(void* block) noexcept {
    std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept {
    std::free(block);
}

#endif
