// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>
#include <cellar/models/gguf_keys.hpp>
#include <cellar/models/run_time_description.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ggml-cpp.h> // with gguf.h
#include <ios>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace cellar::models {

namespace detail {

/// Calls `read(T{})` with the type of the numbers; nothing if they are none.
template <class Read>
std::optional<ConfigValue> read_gguf_numbers(gguf_type type, Read read) {
    switch (type) {
    case GGUF_TYPE_BOOL:
    case GGUF_TYPE_INT8:
        return read(std::int8_t{});
    case GGUF_TYPE_UINT8:
        return read(std::uint8_t{});
    case GGUF_TYPE_INT16:
        return read(std::int16_t{});
    case GGUF_TYPE_UINT16:
        return read(std::uint16_t{});
    case GGUF_TYPE_INT32:
        return read(std::int32_t{});
    case GGUF_TYPE_UINT32:
        return read(std::uint32_t{});
    case GGUF_TYPE_INT64:
        return read(std::int64_t{});
    case GGUF_TYPE_UINT64:
        return read(std::uint64_t{});
    case GGUF_TYPE_FLOAT32:
        return read(float{});
    case GGUF_TYPE_FLOAT64:
        return read(double{});
    default:
        return std::nullopt;
    }
}

inline std::optional<ConfigValue> gguf_list(const gguf_context* file, std::int64_t key) {
    const std::size_t count = gguf_get_arr_n(file, key);
    const gguf_type type = gguf_get_arr_type(file, key);
    if (type == GGUF_TYPE_STRING) {
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < count; ++i) texts.emplace_back(gguf_get_arr_str(file, key, i));
        return texts;
    }
    return read_gguf_numbers(type, [&]<class T>(T) -> std::optional<ConfigValue> {
        if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
            return std::nullopt; // a double does not have them all
        } else {
            const auto* const first = static_cast<const T*>(gguf_get_arr_data(file, key));
            return std::vector<double>(first, first + count);
        }
    });
}

inline std::optional<ConfigValue> gguf_value(const gguf_context* file, const std::string& name) {
    const std::int64_t key = gguf_find_key(file, name.c_str());
    if (key < 0) return std::nullopt;
    const gguf_type type = gguf_get_kv_type(file, key);
    if (type == GGUF_TYPE_BOOL) return gguf_get_val_bool(file, key);
    if (type == GGUF_TYPE_STRING) return std::string{gguf_get_val_str(file, key)};
    if (type == GGUF_TYPE_ARRAY) return gguf_list(file, key);
    return read_gguf_numbers(type, [&]<class T>(T) -> std::optional<ConfigValue> {
        const T number = *static_cast<const T*>(gguf_get_val_data(file, key));
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, std::uint64_t>) return std::int64_t{number};
        return static_cast<double>(number);
    });
}

/// Adds the numbers of a tensor, if the file has it. The file was opened without its data.
inline ModelResult<void> read_divisors(const gguf_context* file, const std::string& path, const char* tensor,
                                       std::vector<float>& divisors) {
    const std::int64_t id = gguf_find_tensor(file, tensor);
    if (id < 0) return {};
    const std::size_t count = gguf_get_tensor_size(file, id) / sizeof(float);
    const ModelError unreadable{"GGUF file: the tensor " + std::string{tensor} + " cannot be read as floats"};
    if (gguf_get_tensor_type(file, id) != GGML_TYPE_F32 || count > std::size_t{max_dim}) return unreadable;
    divisors.resize(count);
    std::ifstream in{path, std::ios::binary};
    in.seekg(static_cast<std::streamoff>(gguf_get_data_offset(file) + gguf_get_tensor_offset(file, id)));
    in.read(reinterpret_cast<char*>(divisors.data()), static_cast<std::streamsize>(count * sizeof(float)));
    if (!in) return unreadable;
    return {};
}

} // namespace detail

/// The keys of a GGUF file. The file must live as long.
inline ConfigKeys gguf_keys(const gguf_context* file) {
    return [file](const std::string& key) { return detail::gguf_value(file, key); };
}

/// What a model stores, from the keys of its GGUF file: see `from_gguf_keys`.
inline ModelResult<RunTimeDescription> from_gguf(const gguf_context* file, std::span<const float> divisors = {},
                                                 std::span<const float> long_divisors = {}) {
    return from_gguf_keys(gguf_keys(file), divisors, long_divisors);
}

/// The same for the file at a path, with the divisors that it has. Reads its keys, and no weights.
inline ModelResult<RunTimeDescription> from_gguf(const std::string& path) {
    const gguf_context_ptr file{gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
    if (!file) return ModelError{"GGUF file: " + path + " cannot be opened, or is not one"};
    std::vector<float> divisors;
    std::vector<float> long_divisors;
    for (const char* const tensor : {"rope_freqs.weight", "rope_factors_short.weight"})
        if (const auto read = detail::read_divisors(file.get(), path, tensor, divisors); !read) return read.error();
    const auto read = detail::read_divisors(file.get(), path, "rope_factors_long.weight", long_divisors);
    if (!read) return read.error();
    return from_gguf(file.get(), divisors, long_divisors);
}

} // namespace cellar::models
