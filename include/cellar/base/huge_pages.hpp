// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define CELLAR_HAS_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CELLAR_HAS_ADDRESS_SANITIZER
#endif
#endif

namespace cellar::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

/// Asks the operating system to back this memory, which is not written yet, with huge pages: strips of cells lie
/// thousands of bytes apart, so each would otherwise need a page of its own. Linux does it if set to "madvise" or
/// "always". Nothing happens elsewhere, nor for memory smaller than a huge page.
inline void prefer_huge_pages([[maybe_unused]] void* first, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = 65536; // a multiple of every page size in use
    if (bytes < huge_page) return;
    const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(first) % page) % page;
    (void)::madvise(static_cast<std::byte*>(first) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
#endif
}

/// Zeroed memory in which `bytes` follow the first huge page that begins in it. What lies before and after them takes
/// no memory, because nobody writes there. Null for less than a huge page, and outside Linux. Memory of the allocator
/// would not do: it lets two arrays share a huge page and writes its own there first, so that the page then consists of
/// 512 small ones. Null under the address sanitizer, too, which checks memory of the allocator only.
inline void* map_zeros([[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(CELLAR_HAS_ADDRESS_SANITIZER)
    if (bytes < huge_page) return nullptr;
    constexpr int access = PROT_READ | PROT_WRITE;
    void* const memory = ::mmap(nullptr, bytes + huge_page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
#else
    return nullptr;
#endif
}

/// Gives back what `map_zeros` returned for so many bytes.
inline void unmap([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
    (void)::munmap(memory, bytes + huge_page);
#endif
}

/// Gives this memory back, as far as it consists of whole pages, until it is written again. It then holds zeros.
inline void uncommit([[maybe_unused]] void* first, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__)
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(first) % page) % page;
    if (bytes < skipped + page) return;
    (void)::madvise(static_cast<std::byte*>(first) + skipped, (bytes - skipped) / page * page, MADV_DONTNEED);
#endif
}

} // namespace cellar::detail
