// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With glibc, replaces malloc; with the address sanitizer, installs a hook.
#include "allocation_count.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CELLAR_TEST_ASAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CELLAR_TEST_ASAN
#endif

bool counting = false;
std::int64_t allocations = 0;
std::int64_t allocated_bytes = 0;

namespace {

void count_allocation(std::size_t bytes) {
    if (!counting) return;
    ++allocations;
    allocated_bytes += static_cast<std::int64_t>(bytes);
}

} // namespace

#if defined(CELLAR_TEST_ASAN)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));

const bool installed =
    __sanitizer_install_malloc_and_free_hooks([](const volatile void*, std::size_t bytes) { count_allocation(bytes); },
                                              [](const volatile void*) {})
    != 0;
#elif defined(__GLIBC__)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) noexcept {
    count_allocation(size);
    return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) noexcept {
    count_allocation(n * size);
    return __libc_calloc(n, size);
}
void* realloc(void* block, std::size_t size) noexcept {
    count_allocation(size);
    return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    count_allocation(size);
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
    count_allocation(size);
    *block = __libc_memalign(alignment, size);
    return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) noexcept {
    __libc_free(block);
}
void* mmap(void* at, std::size_t size, int access, int flags, int file, off_t offset) noexcept {
    constexpr std::size_t alignment = std::size_t{2} << 20; // of a ZeroedArray, which writes nothing before
    if (file == -1) count_allocation(size - alignment);
    return reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, access, flags, file, offset));
}
}
const bool installed = true;
#else
const bool installed = false;
#endif
