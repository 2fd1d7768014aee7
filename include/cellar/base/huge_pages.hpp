// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace cellar::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

/// True for memory that should begin at a huge page, so that its beginning and end do not consist of small ones. The
/// allocator of Linux maps so much memory by itself: what is skipped before is never written, and takes no memory.
constexpr bool begins_at_huge_page([[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    return bytes >= 16 * huge_page;
#else
    return false;
#endif
}

/// Asks the operating system to back this memory, which is not written yet, with huge pages: strips of cells lie
/// thousands of bytes apart, so each would otherwise need a page of its own. Linux does it if set to "madvise" or
/// "always". Nothing happens elsewhere, nor for memory smaller than a few huge pages.
inline void prefer_huge_pages([[maybe_unused]] void* first, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = 65536; // a multiple of every page size in use
    constexpr std::size_t min_bytes = 4 * huge_page;
    if (bytes < min_bytes) return;
    const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(first) % page) % page;
    (void)::madvise(static_cast<std::byte*>(first) + skipped, (bytes - skipped) / page * page, MADV_HUGEPAGE);
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
