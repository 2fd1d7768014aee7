// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/format_conversion.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// Metadata: the model, and the beginnings of the keys of notes and of the snapshot's numbers.
inline constexpr const char* model_key = "model";
inline constexpr const char* note_key = "notes.";
inline constexpr const char* number_key = "snapshot.";
/// And of the formats of tensors of bytes.
inline constexpr const char* format_name_key = "formats.";

/// The tensor of an array, and whether its units are bytes: safetensors has no name for its format.
inline std::pair<TensorPlan, bool> tensor_of(const StoredArray& array) {
    const auto dtype = dtype_named(array.format.name);
    if (dtype && bytes_of(*dtype) == array.format.unit_bytes) return {{array.name, *dtype, array.shape}, false};
    TensorPlan tensor{array.name, Dtype::u8, array.shape};
    tensor.shape.push_back(array.format.unit_bytes);
    return {std::move(tensor), true};
}

inline FileError unsuitable(const std::filesystem::path& path, const std::string& problem) {
    return {FileReason::unsuitable, path.string() + ": " + problem};
}
inline FileError refused(const std::filesystem::path& path, const Refusal& refusal) {
    return {FileReason::refused, path.string() + ": the memory refuses: " + to_string(refusal), refusal};
}

/// Adds numbers and arrays to what a file will contain.
inline void add_to(FilePlan& plan, const StoredSnapshot& stored) {
    for (const auto& [name, number] : stored.numbers) plan.metadata.emplace(number_key + name, std::to_string(number));
    for (const StoredArray& array : stored.arrays) {
        auto [tensor, is_bytes] = tensor_of(array);
        if (is_bytes) plan.metadata.emplace(format_name_key + array.name, array.format.name);
        plan.tensors.push_back(std::move(tensor));
    }
}

/// Writes the arrays, in pieces of about 1 MiB. Each gives up its memory before the next one begins.
inline FileResult<void> append_arrays(FileWriter& writer, std::span<StoredArray> arrays) {
    std::vector<std::byte> copy; // of rows that are not in place
    for (StoredArray& kept : arrays) {
        const StoredArray array = std::exchange(kept, {});
        const std::uint64_t row = array.row_bytes();
        if (row == 0) continue;
        const std::size_t element_bytes = bytes_of(tensor_of(array).first.dtype);
        constexpr std::uint64_t piece = std::uint64_t{1} << 20; // bytes
        const std::uint64_t rows = std::max<std::uint64_t>(piece / row, 1);
        for (std::uint64_t first = 0; first < array.shape[0]; first += rows) {
            const std::uint64_t count = std::min(rows, array.shape[0] - first);
            FileResult<void> done;
            const auto append = [&](std::span<const std::byte> units) {
                if (done) done = writer.append_units(units, element_bytes);
            };
            if (!array.rows->in_place(first, count, append)) {
                copy.resize(static_cast<std::size_t>(count * row));
                array.rows->read(first, count, copy.data());
                append(copy);
            }
            if (!done) return done;
        }
    }
    return {};
}

inline FilePlan plan_with(const SaveOptions& options) {
    FilePlan plan;
    if (!options.model.empty()) plan.metadata.emplace(model_key, options.model);
    for (const auto& [name, text] : options.notes) plan.metadata.emplace(note_key + name, text);
    return plan;
}

/// The names of part k of several snapshots begin with this.
inline std::string part_prefix(std::size_t k) {
    return "parts." + std::to_string(k) + '.';
}

/// Writes snapshots, and the numbers of `whole`. `store(k, stored)` adds part k, or refuses. It is called twice for
/// each part, because the file begins with all names; the first time, no row is read. One part at a time is in memory.
/// Refuses a format that the heads do not suit before there is a file.
template <class Store>
FileResult<void> write_parts(const std::filesystem::path& path, std::size_t parts, const StoredSnapshot& whole,
                             Store store, const SaveOptions& options) {
    FilePlan plan = plan_with(options);
    add_to(plan, whole);
    for (std::size_t k = 0; k < parts; ++k) {
        StoredSnapshot stored;
        if (const Result<void> done = store(k, stored); !done) return refused(path, done.error());
        if (auto done = convert_arrays(stored.arrays, options.store_as); !done)
            return unsuitable(path, done.error().text);
        add_to(plan, stored);
    }
    auto writer = FileWriter::create(path, plan, options.write);
    if (!writer) return std::move(writer).error();
    for (std::size_t k = 0; k < parts; ++k) {
        StoredSnapshot stored;
        if (const Result<void> done = store(k, stored); !done) return refused(path, done.error());
        convert_arrays(stored.arrays, options.store_as).value();
        if (auto done = append_arrays(*writer, stored.arrays); !done) return done;
    }
    return writer->finish();
}

} // namespace cellar::detail
