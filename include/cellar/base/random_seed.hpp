// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <cerrno>
#include <system_error>
#include <unistd.h>
#else
#include <random>
#endif

namespace cellar::detail {

/// A number that nobody can foresee. Without `<random>` where the operating system has a call for it, because that
/// header takes long to compile.
inline std::uint64_t random_seed() {
#if defined(__linux__)
    std::uint64_t seed = 0;
    if (::getentropy(&seed, sizeof(seed)) != 0) throw std::system_error{errno, std::generic_category(), "getentropy"};
    return seed;
#else
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
#endif
}

} // namespace cellar::detail
