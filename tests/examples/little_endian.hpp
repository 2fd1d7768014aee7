// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "generate/file.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

/// The bytes of values in a little-endian file.
template <class T>
std::string little_endian(std::span<const T> values) {
    std::string bytes;
    for (const T value : values) {
        // What is loaded from a value's bytes has the bytes that a file would have, on every machine.
        const T stored = llama::load<T>(reinterpret_cast<const char*>(&value));
        bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
    }
    return bytes;
}
template <class T>
    requires std::is_arithmetic_v<T> std::string little_endian(T value) {
        return little_endian(std::span<const T>{&value, 1});
    }
/// The same for a matrix.
template <class Matrix>
    requires(!std::is_arithmetic_v<Matrix>)
std::string little_endian(const Matrix& m) {
    return little_endian(std::span<const float>{m.data(), static_cast<std::size_t>(m.size())});
}

/// Writes a value into the bytes of a file.
template <class T>
void replace(std::vector<char>& bytes, std::size_t at, T value) {
    std::ranges::copy(little_endian(value), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}
