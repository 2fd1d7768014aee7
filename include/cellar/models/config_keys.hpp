// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cellar::models {

/// What a model's file says under one key. `std::monostate` is null. In a list of numbers, true is 1 and false is 0.
using ConfigValue = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// Gives the value of a key; nothing if there is no such key, or if its value is of none of these types. The keys of an
/// object within an object are joined by a dot: "rope_scaling.factor". So a file of any format can be read, by any
/// library.
using ConfigKeys = std::function<std::optional<ConfigValue>(const std::string& key)>;

namespace detail {

/// Reads keys, and remembers the first one that was not as expected. After that, its answers mean nothing, but are
/// within their ranges; so a function reads all that it needs, and then asks once.
class KeyReader {
public:
    /// `prefix` stands before every key.
    explicit KeyReader(const ConfigKeys& keys, std::string prefix = {}) : keys_{keys}, prefix_{std::move(prefix)} {}

    /// True for a value other than null.
    bool has(const std::string& key) const { return find(key).index() != 0; }
    /// True also for null.
    bool mentions(const std::string& key) const { return keys_(prefix_ + key).has_value(); }

    int integer(const std::string& key, int low, int high, std::optional<int> otherwise = std::nullopt) {
        const ConfigValue value = find(key);
        if (value.index() == 0 && otherwise) return *otherwise;
        const double number = as_number(value, 0.5); // which no integer is
        if (number >= low && number <= high && number == std::floor(number)) return static_cast<int>(number);
        fail({"'", prefix_, key, "' is ", text_of(value), ", expected an integer from ", low, " to ", high});
        return low;
    }

    /// The same for a key with one value, or one for each layer.
    int integer_of(const std::string& key, int layer, int low, int high, std::optional<int> otherwise = std::nullopt) {
        const ConfigValue value = find(key);
        const auto* list = std::get_if<std::vector<double>>(&value);
        if (list == nullptr) return integer(key, low, high, otherwise);
        const auto index = static_cast<std::size_t>(layer);
        const double number = index < list->size() ? (*list)[index] : 0.5;
        if (number >= low && number <= high && number == std::floor(number)) return static_cast<int>(number);
        fail({"'", prefix_, key, "' has ", list->size(), " values, expected for layer ", layer, " an integer from ",
              low, " to ", high});
        return low;
    }

    /// A finite number above 0.
    double positive(const std::string& key, std::optional<double> otherwise = std::nullopt) {
        const ConfigValue value = find(key);
        if (value.index() == 0 && otherwise) return *otherwise;
        const double number = as_number(value, 0);
        if (number > 0 && std::isfinite(number)) return number;
        fail({"'", prefix_, key, "' is ", text_of(value), ", expected a number above 0"});
        return 1;
    }

    bool flag(const std::string& key, bool otherwise) {
        const ConfigValue value = find(key);
        if (value.index() == 0) return otherwise;
        if (const auto* flag = std::get_if<bool>(&value)) return *flag;
        fail({"'", prefix_, key, "' is ", text_of(value), ", expected true or false"});
        return otherwise;
    }

    std::string text(const std::string& key, std::optional<std::string> otherwise = std::nullopt) {
        const ConfigValue value = find(key);
        if (value.index() == 0 && otherwise) return *otherwise;
        if (const auto* text = std::get_if<std::string>(&value)) return *text;
        fail({"'", prefix_, key, "' is ", text_of(value), ", expected a text"});
        return {};
    }

    /// Refuses a value that is neither null nor an object.
    void expect_object(const std::string& key) {
        if (has(key)) fail({"'", prefix_, key, "' is ", text_of(find(key)), ", expected an object"});
    }

    /// True for a list of numbers.
    bool is_list(const std::string& key) const { return std::holds_alternative<std::vector<double>>(find(key)); }

    /// True if the value is that text.
    bool is(const std::string& key, std::string_view text) const {
        const ConfigValue value = find(key);
        const auto* found = std::get_if<std::string>(&value);
        return found != nullptr && *found == text;
    }

    /// Empty if there are none.
    std::vector<double> numbers(const std::string& key) { return list<double>(key, "numbers"); }
    std::vector<std::string> texts(const std::string& key) { return list<std::string>(key, "texts"); }

    /// The same, of integers within a range.
    std::vector<int> integers(const std::string& key, int low, int high) {
        std::vector<int> found;
        for (const double number : numbers(key)) {
            if (number >= low && number <= high && number == std::floor(number)) {
                found.push_back(static_cast<int>(number));
            } else {
                fail({"'", prefix_, key, "' has ", printable(number), ", expected integers from ", low, " to ", high});
            }
        }
        return found;
    }

    /// The entry of a table with a name. Null, and an error, if there is none. `kind`: what the name is that of.
    template <class Entry, std::size_t Entries>
    const Entry* entry(const Entry (&table)[Entries], const char* kind, const std::string& name) {
        std::string names;
        for (const Entry& known : table) {
            if (known.name == name) return &known;
            names += (names.empty() ? "" : ", ") + std::string{known.name};
        }
        fail_unknown(kind, name, names);
        return nullptr;
    }

    // Not in the template above, because nvcc writes such lists wrongly there.
    void fail_unknown(const char* kind, const std::string& name, const std::string& known) {
        fail({"the ", kind, " ", printable(name), " is not known, expected one of ", known,
              "; for another model, fill in a RunTimeDescription as docs/models.md shows"});
    }
    void fail(std::initializer_list<cellar::detail::MessagePart> sentence) {
        if (error_.empty()) error_ = cellar::detail::composed(sentence);
    }
    /// A sentence, or empty.
    const std::string& error() const { return error_; }

    /// A text from a file for a sentence, in quotes.
    static std::string printable(const std::string& text) {
        std::string shown = "'";
        for (const char c : text.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
        return shown + (text.size() > 40 ? "...'" : "'");
    }

    /// The same for a number: an integer below 10^15 has all of its digits, and none has more than 15.
    static std::string printable(double number) {
        char text[32];
        return {text, static_cast<std::size_t>(std::snprintf(text, sizeof(text), "%.15g", number))};
    }

private:
    ConfigValue find(const std::string& key) const {
        return keys_(prefix_ + key).value_or(ConfigValue{std::monostate{}});
    }

    static double as_number(const ConfigValue& value, double otherwise) {
        if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
        const auto* number = std::get_if<double>(&value);
        return number != nullptr ? *number : otherwise;
    }

    template <class T>
    std::vector<T> list(const std::string& key, const char* what) {
        const ConfigValue value = find(key);
        if (const auto* list = std::get_if<std::vector<T>>(&value)) return *list;
        const auto* other = std::get_if<std::vector<double>>(&value); // an empty list has no type
        if (value.index() != 0 && (other == nullptr || !other->empty()))
            fail({"'", prefix_, key, "' is ", text_of(value), ", expected a list of ", what});
        return {};
    }

    /// For a message: short, and in one line.
    static std::string text_of(const ConfigValue& value) {
        if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
        if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
        if (const auto* number = std::get_if<double>(&value)) return printable(*number);
        if (const auto* text = std::get_if<std::string>(&value)) return printable(*text);
        return value.index() == 0 ? "missing" : "a list";
    }

    const ConfigKeys& keys_;
    std::string prefix_;
    std::string error_;
};

} // namespace detail

} // namespace cellar::models
