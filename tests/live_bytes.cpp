// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With glibc, replaces malloc. Sanitizers have a malloc of their own.
#include "live_bytes.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CELLAR_TEST_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CELLAR_TEST_SANITIZER
#endif

namespace {

struct LiveBlock {
    const void* memory;
    std::int64_t bytes;
};

constexpr std::size_t most_blocks = std::size_t{1} << 16;
LiveBlock blocks[most_blocks];
std::size_t live = 0;
bool watching = false;

#if defined(__GLIBC__) && !defined(CELLAR_TEST_SANITIZER)

void* noted(void* memory, std::int64_t bytes) {
    if (!watching || memory == nullptr) return memory;
    if (live == most_blocks) std::abort();
    blocks[live++] = {memory, bytes};
    return memory;
}

void forget(const void* memory) {
    for (std::size_t i = live; i-- > 0;)
        if (blocks[i].memory == memory) {
            blocks[i] = blocks[--live];
            return;
        }
}

#endif

} // namespace

void watch_allocations() {
    live = 0;
    watching = true;
}

std::int64_t live_bytes() {
    watching = false;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < live; ++i) sum += blocks[i].bytes;
    watching = true;
    return sum;
}

#if defined(__GLIBC__) && !defined(CELLAR_TEST_SANITIZER)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) noexcept {
    return noted(__libc_malloc(size), static_cast<std::int64_t>(size));
}
void* calloc(std::size_t n, std::size_t size) noexcept {
    constexpr std::int64_t alignment = 64; // of a ZeroedArray of less than 2 MiB
    return noted(__libc_calloc(n, size), static_cast<std::int64_t>(n * size) - alignment);
}
void* realloc(void* block, std::size_t size) noexcept {
    forget(block);
    return noted(__libc_realloc(block, size), static_cast<std::int64_t>(size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    return noted(__libc_memalign(alignment, size), static_cast<std::int64_t>(size));
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
    *block = aligned_alloc(alignment, size);
    return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) noexcept {
    forget(block);
    __libc_free(block);
}
void* mmap(void* at, std::size_t size, int access, int flags, int file, off_t offset) noexcept {
    constexpr std::int64_t alignment = 2 << 20; // of a ZeroedArray of 2 MiB or more
    void* const memory = reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, access, flags, file, offset));
    return file != -1 || memory == MAP_FAILED ? memory : noted(memory, static_cast<std::int64_t>(size) - alignment);
}
int munmap(void* block, std::size_t size) noexcept {
    forget(block);
    return static_cast<int>(::syscall(SYS_munmap, block, size));
}
}
const bool can_watch = true;
#else
const bool can_watch = false;
#endif
