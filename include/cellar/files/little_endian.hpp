// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace cellar {

namespace detail {

/// Reverses the bytes of each element where the machine is big-endian.
inline void swap_to_little_endian(std::span<std::byte> bytes, std::size_t element_bytes) {
    if constexpr (std::endian::native != std::endian::little) {
        for (; !bytes.empty(); bytes = bytes.subspan(element_bytes))
            std::reverse(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(element_bytes));
    }
}

/// Elements of a file as the machine has them: the same bytes, or a copy in `swapped`.
inline std::span<const std::byte> in_native_order(std::span<const std::byte> bytes,
                                                  [[maybe_unused]] std::size_t element_bytes,
                                                  [[maybe_unused]] std::vector<std::byte>& swapped) {
    if constexpr (std::endian::native != std::endian::little) {
        swapped.assign(bytes.begin(), bytes.end());
        swap_to_little_endian(swapped, element_bytes);
        return swapped;
    }
    return bytes;
}

} // namespace detail

/// Elements as the bytes of a file, which are little-endian on every machine. The lengths must agree.
template <class E>
    requires(std::is_trivially_copyable_v<E>)
void to_little_endian(std::span<const E> elements, std::span<std::byte> bytes, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, bytes.size() == elements.size_bytes(), bytes.size(), " bytes for ", elements.size(),
                      " elements, expected ", elements.size_bytes());
    if (bytes.empty()) return;
    std::memcpy(bytes.data(), elements.data(), bytes.size());
    detail::swap_to_little_endian(bytes, sizeof(E));
}

/// The reverse. `bytes` may lie at any address.
template <class E>
    requires(std::is_trivially_copyable_v<E>)
void from_little_endian(std::span<const std::byte> bytes, std::span<E> elements, Where where = Where::current()) {
    CELLAR_EXPECTS_AT(where, bytes.size() == elements.size_bytes(), bytes.size(), " bytes for ", elements.size(),
                      " elements, expected ", elements.size_bytes());
    if (bytes.empty()) return;
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    detail::swap_to_little_endian(std::as_writable_bytes(elements), sizeof(E));
}

} // namespace cellar
