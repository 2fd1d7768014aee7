// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/element/stored_format.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/mpi/detail/mpi_errors.hpp>
#include <cellar/mpi/mpi_result.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Numbers and texts, one after another.
class WireWriter {
public:
    template <class T>
    void number(T value) {
        bytes(&value, sizeof(value));
    }
    void text(const std::string& value) {
        number(static_cast<std::uint64_t>(value.size()));
        bytes(value.data(), value.size());
    }
    void bytes(const void* from, std::size_t n) {
        if (n == 0) return;
        const std::size_t before = all_.size();
        all_.resize(before + n);
        std::memcpy(all_.data() + before, from, n);
    }
    std::span<const std::byte> all() const { return all_; }

private:
    std::vector<std::byte> all_;
};

/// Reads what a `WireWriter` wrote. It may be anything: after the first thing that is missing, all is zero and empty.
class WireReader {
public:
    explicit WireReader(std::span<const std::byte> all) : rest_{all} {}

    template <class T>
    T number() {
        T value{};
        if (const auto from = take(sizeof(T)); !from.empty()) std::memcpy(&value, from.data(), sizeof(T));
        return value;
    }
    std::string text() {
        const auto from = take(number<std::uint64_t>());
        return {reinterpret_cast<const char*>(from.data()), from.size()};
    }
    std::span<const std::byte> take(std::uint64_t n) {
        is_whole_ = is_whole_ && n <= rest_.size();
        if (!is_whole_) return {};
        const auto taken = rest_.first(static_cast<std::size_t>(n));
        rest_ = rest_.subspan(taken.size());
        return taken;
    }

    /// A number of things that take at least one byte each.
    std::uint64_t count() {
        const auto n = number<std::uint64_t>();
        is_whole_ = is_whole_ && n <= rest_.size();
        return is_whole_ ? n : 0;
    }

    /// Nothing was missing.
    bool is_whole() const { return is_whole_; }
    /// And nothing is left.
    bool is_done() const { return is_whole_ && rest_.empty(); }

private:
    std::span<const std::byte> rest_;
    bool is_whole_ = true;
};

/// An array whose rows follow, or one of integers that is here.
struct AnnouncedArray {
    std::string name;
    StoredFormat format;
    std::vector<std::uint64_t> shape;
    std::uint64_t row_bytes = 0;
    std::vector<std::int32_t> integers{};
};

/// Bytes of what follows the first extent; nothing if there is no first extent, or if all rows have 2^62 bytes or more.
inline std::optional<std::uint64_t> row_bytes_of(const StoredFormat& format, std::span<const std::uint64_t> shape) {
    if (shape.empty()) return std::nullopt;
    constexpr std::uint64_t max = std::uint64_t{1} << 62;
    if (format.unit_bytes == 0 || format.unit_bytes > max) return std::nullopt;
    std::uint64_t row = format.unit_bytes;
    for (const std::uint64_t extent : shape.subspan(1)) {
        if (extent != 0 && row > max / extent) return std::nullopt;
        row *= extent;
    }
    if (shape[0] != 0 && row > max / shape[0]) return std::nullopt;
    return row;
}

/// What a sender announces: the numbers and arrays of a snapshot.
class Announcement final : public StoredSource {
public:
    using StoredSource::StoredSource;

    static void write(WireWriter& out, const std::string& model, const StoredSnapshot& stored) {
        out.text(model);
        out.number(static_cast<std::uint64_t>(stored.numbers.size()));
        for (const auto& [name, number] : stored.numbers) {
            out.text(name);
            out.number(number);
        }
        out.number(static_cast<std::uint64_t>(stored.arrays.size()));
        for (const StoredArray& array : stored.arrays) {
            out.text(array.name);
            out.text(array.format.name);
            out.number(array.format.unit_bytes);
            out.number(static_cast<std::uint64_t>(array.shape.size()));
            for (const std::uint64_t extent : array.shape) out.number(extent);
            if (array.format != StoredFormat::i32()) continue;
            const std::span<const std::byte> integers = array.on_host();
            out.bytes(integers.data(), integers.size());
        }
    }

    Checked<void> read(std::span<const std::byte> bytes) {
        WireReader in{bytes};
        model_ = in.text();
        for (std::uint64_t n = in.count(); n > 0 && in.is_whole(); --n) {
            std::string name = in.text();
            if (!numbers_.emplace(std::move(name), in.number<std::int64_t>()).second)
                return Problem{"a number comes twice"};
        }
        for (std::uint64_t n = in.count(); n > 0 && in.is_whole(); --n)
            if (auto read = read_array(in); !read) return read;
        if (in.is_done()) return {};
        return Problem{"the announcement has another length than it says"};
    }

    const std::string& model() const { return model_; }
    const std::vector<AnnouncedArray>& arrays() const { return arrays_; }

    std::optional<std::int64_t> number(const std::string& name) const override {
        const auto found = numbers_.find(name);
        return found == numbers_.end() ? std::nullopt : std::optional{found->second};
    }
    std::optional<std::vector<std::uint64_t>> shape(const std::string& name) const override {
        const AnnouncedArray* const array = find(name);
        return array == nullptr ? std::nullopt : std::optional{array->shape};
    }
    std::optional<StoredFormat> format(const std::string& name) const override {
        const AnnouncedArray* const array = find(name);
        return array == nullptr ? std::nullopt : std::optional{array->format};
    }
    bool read(const std::string& name, std::span<std::int32_t> to) override {
        const AnnouncedArray* const array = find(name);
        if (array == nullptr || array->format != StoredFormat::i32() || array->integers.size() != to.size())
            return false;
        std::copy(array->integers.begin(), array->integers.end(), to.begin());
        return true;
    }

private:
    const AnnouncedArray* find(const std::string& name) const {
        const auto found = indices_.find(name);
        return found == indices_.end() ? nullptr : &arrays_[found->second];
    }
    Checked<void> read_array(WireReader& in) {
        AnnouncedArray array{in.text(), {}, {}};
        array.format.name = in.text();
        array.format.unit_bytes = in.number<std::uint64_t>();
        for (std::uint64_t rank = in.count(); rank > 0 && in.is_whole(); --rank)
            array.shape.push_back(in.number<std::uint64_t>());
        if (!in.is_whole()) return Problem{"the announcement is shorter than it says"};
        const auto row = row_bytes_of(array.format, array.shape);
        if (!row) return Problem{"an array is too large"};
        array.row_bytes = *row;
        if (array.format == StoredFormat::i32()) {
            if (array.shape.size() != 1) return Problem{"an array of integers has more than one extent"};
            const auto integers = in.take(array.shape[0] * 4);
            array.integers.resize(integers.size() / 4);
            if (!integers.empty()) std::memcpy(array.integers.data(), integers.data(), integers.size());
        }
        if (!indices_.emplace(array.name, arrays_.size()).second) return Problem{"an array comes twice"};
        arrays_.push_back(std::move(array));
        return {};
    }

    std::string model_;
    std::map<std::string, std::int64_t> numbers_;
    std::vector<AnnouncedArray> arrays_;
    std::map<std::string, std::size_t> indices_;
};

/// An error, for the other process.
inline void write_error(WireWriter& out, const mpi::MpiError& error) {
    using mpi::MpiReason;
    const bool is_own = error.reason == MpiReason::timed_out || error.reason == MpiReason::lost;
    out.number(static_cast<std::uint32_t>(is_own ? MpiReason::cancelled : error.reason));
    out.number(error.refusal);
    out.text(error.message);
}
inline mpi::MpiError read_error(std::span<const std::byte> bytes, const char* operation, int rank) {
    WireReader in{bytes};
    const auto reason = static_cast<mpi::MpiReason>(in.number<std::uint32_t>());
    const auto refusal = in.number<Refusal>();
    const std::string text = in.text();
    if (!in.is_done() || reason > mpi::MpiReason::failed || refusal.reason > Reason::altered)
        return error_of_rank(mpi::MpiReason::malformed, operation, rank, {" gives no valid reason for its failure"});
    return error_of_rank(reason, operation, rank, {": ", text}, refusal);
}

} // namespace cellar::detail
