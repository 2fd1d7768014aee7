// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/models/config_keys.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::models {

namespace detail {

template <class Json>
std::optional<ConfigValue> value_of(const Json& json) {
    if (json.is_null()) return ConfigValue{std::monostate{}};
    if (json.is_boolean()) return ConfigValue{json.template get<bool>()};
    if (json.is_string()) return ConfigValue{json.template get<std::string>()};
    if (json.is_number_unsigned()
        && json.template get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return ConfigValue{json.template get<double>()};
    if (json.is_number_integer()) return ConfigValue{json.template get<std::int64_t>()};
    if (json.is_number()) return ConfigValue{json.template get<double>()};
    if (!json.is_array()) return std::nullopt;
    const auto is_text = [](const Json& element) { return element.is_string(); };
    const auto is_number = [](const Json& element) { return element.is_number() || element.is_boolean(); };
    if (!json.empty() && std::all_of(json.begin(), json.end(), is_text))
        return ConfigValue{json.template get<std::vector<std::string>>()};
    if (!std::all_of(json.begin(), json.end(), is_number)) return std::nullopt;
    std::vector<double> numbers;
    for (const Json& element : json)
        numbers.push_back(element.is_boolean() ? double(element.template get<bool>()) : element.template get<double>());
    return ConfigValue{std::move(numbers)};
}

} // namespace detail

/// The keys of a config.json that was parsed by nlohmann-json, or by a library with the same functions. Copies it.
template <class Json>
ConfigKeys json_keys(Json json) {
    return [json = std::move(json)](const std::string& key) -> std::optional<ConfigValue> {
        const Json* found = &json;
        for (std::size_t begin = 0; begin <= key.size();) {
            const std::size_t end = std::min(key.find('.', begin), key.size());
            if (!found->is_object()) return std::nullopt;
            const auto member = found->find(key.substr(begin, end - begin));
            if (member == found->end()) return std::nullopt;
            found = &*member;
            begin = end + 1;
        }
        return detail::value_of(*found);
    };
}

} // namespace cellar::models
