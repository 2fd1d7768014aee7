// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/function_ref.hpp>
#include <cellar/base/in_quotes.hpp>
#include <cellar/base/result.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/device_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// What a stored snapshot is of.
inline constexpr std::int64_t stored_cache = 1;
inline constexpr std::int64_t stored_inputs = 2;
inline constexpr std::int64_t stored_states = 3;

/// The rows of an array, to save them or to load them: bytes, whatever their format. All functions block.
class RowStream {
public:
    RowStream() = default;
    RowStream(const RowStream&) = delete;
    RowStream& operator=(const RowStream&) = delete;
    virtual ~RowStream() = default;

    using Visit = FunctionRef<void(std::span<std::byte> rows)>;
    /// Visits where `count` rows from `first` on lie, in order, if the host reaches them there. False if it does not.
    virtual bool in_place(std::uint64_t first, std::uint64_t count, const Visit& visit) = 0;
    /// Copies rows to `to`. Here, those that are in place.
    virtual void read(std::uint64_t first, std::uint64_t count, std::byte* to) {
        in_place(first, count, [&](std::span<const std::byte> rows) {
            if (!rows.empty()) std::memcpy(to, rows.data(), rows.size());
            to += rows.size();
        });
    }
    /// The other way round.
    virtual void write(std::uint64_t first, std::uint64_t count, const std::byte* from) {
        in_place(first, count, [&](std::span<std::byte> rows) {
            if (!rows.empty()) std::memcpy(rows.data(), from, rows.size());
            from += rows.size();
        });
    }
    /// The rows, where a device has them in cells and its backend computes checksums; null elsewhere.
    virtual DeviceRows* on_device() { return nullptr; }
};

/// Rows that are contiguous in memory of the host. `find()` returns the first one once it may be used.
template <class Find>
class HostRows final : public RowStream {
public:
    HostRows(std::uint64_t row_bytes, Find find) : row_bytes_{row_bytes}, find_{std::move(find)} {}

    bool in_place(std::uint64_t first, std::uint64_t count, const Visit& visit) override {
        std::byte* const begin = reinterpret_cast<std::byte*>(find_());
        visit({begin + first * row_bytes_, static_cast<std::size_t>(count * row_bytes_)});
        return true;
    }

private:
    std::uint64_t row_bytes_;
    Find find_;
};

/// One array of a snapshot, the last index fastest, in units of its format.
struct StoredArray {
    std::string name;
    StoredFormat format;
    std::vector<std::uint64_t> shape; ///< the first extent counts rows
    std::shared_ptr<RowStream> rows = nullptr;
    /// Set by `save_ahead`: rows are computed during the transfer; the sender is told as they become ready.
    bool comes_later = false;
    /// Of the units of keys or values, [tokens, heads, units of a head]. If it has scales, they are the next array.
    const FormatCodec* codec = nullptr;

    std::uint64_t row_bytes() const {
        std::uint64_t bytes = format.unit_bytes;
        for (std::size_t i = 1; i < shape.size(); ++i) bytes *= shape[i];
        return bytes;
    }
    /// The values of a head, of keys or values.
    std::uint64_t dim() const { return shape[2] * static_cast<std::uint64_t>(codec->values_per_unit); }
    template <class Find>
    void set_host_rows(Find find) {
        set_rows(new HostRows<Find>{row_bytes(), std::move(find)});
    }
    /// Takes over `stream`. (std::make_shared would be compiled again for each type of stream: some sixty functions.)
    void set_rows(RowStream* stream) { rows = std::unique_ptr<RowStream>{stream}; }
    /// The rows of an array whose rows are contiguous on the host.
    std::span<std::byte> on_host() const {
        std::span<std::byte> all;
        rows->in_place(0, shape[0], [&](std::span<std::byte> place) { all = place; });
        return all;
    }
};

/// Why a memory does not take what a file or a transfer has.
struct Problem {
    std::string text;
    std::optional<Refusal> refusal = {}; ///< in place of a text: there is no room
};
inline const std::string& to_string(const Problem& problem) {
    return problem.text;
}
template <class T>
using Checked = Result<T, Problem>;

inline Checked<void> check_layers(std::optional<std::int64_t> found, std::int64_t expected) {
    if (found == expected) return {};
    return Problem{"it has " + (found ? std::to_string(*found) : "no") + " layers, expected "
                   + std::to_string(expected)};
}

/// For messages.
inline std::string text_of(const std::vector<std::uint64_t>& shape) {
    std::string text = "[";
    for (const std::uint64_t extent : shape) text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
    return text + "]";
}

/// What is saved has another format than is expected. The name of a type may be any text, so one that safetensors does
/// not have is in quotes.
inline Problem other_type(const std::string& name, const std::string& found, const std::string& expected) {
    const bool is_plain = found.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
    return {"its " + name + " has elements of type " + (is_plain || found == "none" ? found : in_quotes(found))
            + ", expected " + expected};
}
/// What is taken where a memory stores `own`.
inline std::string types_for(const StoredFormat& own) {
    return is_element(own) ? "F32, F16 or BF16" : own.name;
}

/// What a memory saves of a snapshot: numbers and arrays. Only reading rows reads data, so it is a cheap description
/// before. The snapshot stays where it is meanwhile: neither `offload` nor `reload`. What else happens to the memory
/// makes no difference.
struct StoredSnapshot {
    std::vector<std::pair<std::string, std::int64_t>> numbers;
    std::vector<StoredArray> arrays;
};

/// What was saved of a snapshot. It may be anything: a memory must check it.
class StoredSource {
public:
    /// `convert_from`: formats of keys and values that may be converted.
    explicit StoredSource(FormatList convert_from) : convert_from_{convert_from} {}
    StoredSource(const StoredSource&) = delete;
    StoredSource& operator=(const StoredSource&) = delete;
    virtual ~StoredSource() = default;

    virtual std::optional<std::int64_t> number(const std::string& name) const = 0;
    /// Nothing if there is no such array.
    virtual std::optional<std::vector<std::uint64_t>> shape(const std::string& name) const = 0;
    /// Nothing if there is no such array.
    virtual std::optional<StoredFormat> format(const std::string& name) const = 0;
    /// False if there is no array of that name with as many int32 elements, or it cannot be read.
    virtual bool read(const std::string& name, std::span<std::int32_t> to) = 0;

    /// The format whose heads become those of an array of the memory; null if the array is taken unit by unit. A
    /// problem if the source has it in another format, which must not be converted.
    Checked<const FormatCodec*> conversion(const StoredArray& array) const {
        if (array.codec == nullptr) return nullptr;
        const StoredFormat& own = array.format;
        const auto found = format(array.name);
        if (!found || found == own || (is_element(*found) && is_element(own))) return nullptr;
        for (const FormatCodec& codec : convert_from_)
            if (codec.units() == *found) return &codec;
        return other_type(array.name, found->name, types_for(own));
    }

private:
    FormatList convert_from_;
};

inline Checked<void> check_array(const StoredSource& source, const std::string& name,
                                 const std::vector<std::uint64_t>& shape) {
    const auto found = source.shape(name);
    if (!found) return Problem{"it has no " + name + ", expected " + text_of(shape)};
    if (*found != shape) return Problem{"its " + name + " is " + text_of(*found) + ", expected " + text_of(shape)};
    return {};
}

/// The name of the scales of keys or values.
inline std::string scales_name(const std::string& units) {
    return units.substr(0, units.size() - 1) + "_scales";
}

/// The source has the same keys or values in the format `from`.
inline Checked<void> check_converted(const StoredSource& source, const StoredArray& array, const FormatCodec& from) {
    const std::uint64_t dim = array.dim();
    if (!from.suits(dim))
        return Problem{"its " + array.name + " has elements of type " + from.units().name + ", which has no heads of "
                       + std::to_string(dim) + " values"};
    auto suits = check_array(source, array.name, {array.shape[0], array.shape[1], from.units_of(dim)});
    if (!suits || from.scales == nullptr) return suits;
    return check_array(source, scales_name(array.name), {array.shape[0], array.shape[1], from.scales_of(dim)});
}

/// The source has all of these arrays.
inline Checked<void> check_arrays(const StoredSource& source, std::span<const StoredArray> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const StoredArray& array = expected[i];
        const auto from = source.conversion(array);
        if (!from) return from.error();
        auto suits =
            *from == nullptr ? check_array(source, array.name, array.shape) : check_converted(source, array, **from);
        if (!suits) return suits;
        if (*from != nullptr && array.codec->scales != nullptr) ++i; // its own scales are made
    }
    return {};
}

/// Where a snapshot that is loaded has its data.
enum class LoadTo {
    host, ///< offloaded on the host
    cells ///< in cells of the memory, if it has any; else as `host`
};

/// Where the snapshots of a hybrid's members begin and end, as far as those that were loaded tell.
struct StoredRange {
    std::int64_t begin = 0; ///< the largest one
    std::optional<std::int64_t> end{};
};

/// An operation: makes a snapshot of what was saved, and adds where its arrays go to `arrays`. `finish` returns it,
/// before or after they are there. The names of what was saved begin with `prefix`.
struct Load {
    StoredSource& source;
    std::string prefix;
    std::vector<StoredArray>& arrays;
    LoadTo to = LoadTo::host;
    StoredRange* range = nullptr; ///< of the hybrid whose member it is, if it is one's
};

} // namespace cellar::detail
