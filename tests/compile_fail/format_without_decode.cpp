// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// error: decode
#include <cellar/element/storage_format.hpp>

#include <span>
#include <string_view>

struct Bytes {
    using unit = signed char;
    static constexpr int values_per_unit = 1;
    static constexpr std::string_view name = "bytes";
    static void encode(std::span<const float>, std::span<unit>) {}
#ifdef CORRECTED
    static void decode(std::span<const unit>, std::span<float>) {}
#endif
};

template <cellar::StorageFormat>
struct User {};

User<Bytes>* user;
