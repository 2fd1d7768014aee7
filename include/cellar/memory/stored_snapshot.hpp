// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/element/stored_element.hpp>
#include <cellar/memory/device_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// One array of a snapshot, the last index fastest.
struct StoredArray {
    std::string name;
    StoredElement element{};
    std::vector<std::uint64_t> shape;

    /// To save it: `count` rows from `first` on, until the next call. Blocks.
    std::function<const void*(std::uint64_t first, std::uint64_t count)> read = {};
    /// The same, to memory of the caller, which saves a copy where rows lie in cells. Empty elsewhere.
    std::function<void(std::uint64_t first, std::uint64_t count, void* to)> copy = {};
    /// Visits where rows lie in memory that the host reaches, to save them or to load them, in order. Empty elsewhere.
    using Visit = std::function<void(std::byte* at, std::size_t bytes)>;
    std::function<void(std::uint64_t first, std::uint64_t count, const Visit& visit)> pieces = {};
    /// The rows, to save them or to load them, where a device has them in cells and its backend computes checksums.
    /// Null elsewhere.
    std::shared_ptr<DeviceRows> on_device = nullptr;
    /// To load it: where it goes, in host memory.
    void* data = nullptr;
    /// Or, if `data` is null: writes rows to where they go. Blocks.
    std::function<void(std::uint64_t first, std::uint64_t count, const void* rows)> write = {};
    /// Of a sequence that is announced: rows come while the transfer goes on, and the sender is told which are there.
    bool comes_later = false;
};

/// Why a source with `found` layers does not fit; else an empty string.
inline std::string mismatch_of_layers(std::optional<std::int64_t> found, std::int64_t expected) {
    if (found == expected) return "";
    return "it has " + (found ? std::to_string(*found) : "no") + " layers, expected " + std::to_string(expected);
}

/// For messages.
inline std::string text_of(const std::vector<std::uint64_t>& shape) {
    std::string text = "[";
    for (const std::uint64_t extent : shape) text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
    return text + "]";
}

/// What a memory saves of a snapshot: numbers and arrays. The snapshot stays where it is meanwhile: neither `page_out`
/// nor `page_in`. What else happens to the memory makes no difference.
struct StoredSnapshot {
    std::vector<std::pair<std::string, std::int64_t>> numbers;
    std::vector<StoredArray> arrays;
};

/// What was saved of a snapshot. It may be anything: a memory must check it.
class StoredSource {
public:
    StoredSource() = default;
    StoredSource(const StoredSource&) = delete;
    StoredSource& operator=(const StoredSource&) = delete;
    virtual ~StoredSource() = default;

    virtual std::optional<std::int64_t> number(const std::string& name) const = 0;
    /// Null if there is no such array.
    virtual const std::vector<std::uint64_t>* shape(const std::string& name) const = 0;
    /// False if there is no array of that name with as many int32 elements, or it cannot be read.
    virtual bool read(const std::string& name, std::span<std::int32_t> to) = 0;
};

/// Where a snapshot that is loaded has its data.
enum class LoadTo {
    host, ///< paged out on the host
    cells ///< in cells of the memory, if it has any; else as `host`
};

/// A snapshot that is about to be loaded, or why the memory does not take it.
template <class Prepared>
struct LoadResult {
    std::optional<Prepared> prepared;
    std::string problem;
    std::optional<Refusal> refusal = {}; ///< in place of a problem: there is no room
};

} // namespace cellar::detail
