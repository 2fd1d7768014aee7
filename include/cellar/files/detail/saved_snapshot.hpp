// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/result.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/files/tensor.hpp>
#include <cellar/memory/stored_snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

namespace cellar::detail {

/// Metadata: the model, and the beginnings of the keys of notes and of the snapshot's numbers.
inline constexpr const char* model_key = "model";
inline constexpr const char* note_key = "notes.";
inline constexpr const char* number_key = "snapshot.";

inline Dtype dtype_of_stored(StoredElement element) {
    switch (element) {
    case StoredElement::f32:
        return Dtype::f32;
    case StoredElement::f16:
        return Dtype::f16;
    case StoredElement::bf16:
        return Dtype::bfloat;
    case StoredElement::i32:
        break;
    }
    return Dtype::i32;
}

inline FileError refused(const std::filesystem::path& path, const Refusal& refusal) {
    return {FileReason::refused, path.string() + ": the memory refuses: " + to_string(refusal), refusal};
}

/// Elements of 2 or 4 bytes.
template <class Writer>
FileResult<void> append_stored(Writer& writer, Dtype dtype, const void* data, std::uint64_t elements) {
    const auto n = static_cast<std::size_t>(elements);
    if (bytes_of(dtype) == 2) return writer.append_elements(std::span{static_cast<const std::uint16_t*>(data), n});
    return writer.append_elements(std::span{static_cast<const std::uint32_t*>(data), n});
}

/// Adds numbers and arrays to what a file will contain.
inline void add_to(FilePlan& plan, const StoredSnapshot& stored) {
    for (const auto& [name, number] : stored.numbers) plan.metadata.emplace(number_key + name, std::to_string(number));
    for (const StoredArray& array : stored.arrays)
        plan.tensors.push_back({array.name, dtype_of_stored(array.element), array.shape});
}

/// Writes the arrays, in pieces of about 1 MiB. Each gives up its memory before the next one begins.
template <class Writer>
FileResult<void> append_arrays(Writer& writer, std::span<StoredArray> arrays) {
    for (StoredArray& kept : arrays) {
        const StoredArray array = std::exchange(kept, {});
        const Dtype dtype = dtype_of_stored(array.element);
        std::uint64_t row = 1;
        for (std::size_t i = 1; i < array.shape.size(); ++i) row *= array.shape[i];
        if (row == 0) continue;
        constexpr std::uint64_t piece = std::uint64_t{1} << 20; // bytes
        const std::uint64_t rows = std::max<std::uint64_t>(piece / (row * bytes_of(dtype)), 1);
        for (std::uint64_t first = 0; first < array.shape[0]; first += rows) {
            const std::uint64_t count = std::min(rows, array.shape[0] - first);
            if (auto done = append_stored(writer, dtype, array.read(first, count), count * row); !done) return done;
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

inline FileResult<void> write_snapshot(const std::filesystem::path& path, StoredSnapshot stored,
                                       const SaveOptions& options) {
    FilePlan plan = plan_with(options);
    add_to(plan, stored);
    auto writer = FileWriter::create(path, plan, options.write);
    if (!writer) return std::move(writer).error();
    if (auto done = append_arrays(*writer, stored.arrays); !done) return done;
    return writer->finish();
}

/// The names of part k of several snapshots begin with this.
inline std::string part_prefix(std::size_t k) {
    return "parts." + std::to_string(k) + '.';
}

/// Writes several snapshots, and the numbers of `whole`. `store(k, stored)` adds part k, or refuses. It is called twice
/// for each part, because the file begins with all names. One part at a time is in memory.
template <class Store>
FileResult<void> write_parts(const std::filesystem::path& path, std::size_t parts, const StoredSnapshot& whole,
                             Store store, const SaveOptions& options) {
    FilePlan plan = plan_with(options);
    add_to(plan, whole);
    for (std::size_t k = 0; k < parts; ++k) {
        StoredSnapshot stored;
        if (const Result<void> done = store(k, stored); !done) return refused(path, done.error());
        add_to(plan, stored);
    }
    auto writer = FileWriter::create(path, plan, options.write);
    if (!writer) return std::move(writer).error();
    for (std::size_t k = 0; k < parts; ++k) {
        StoredSnapshot stored;
        if (const Result<void> done = store(k, stored); !done) return refused(path, done.error());
        if (auto done = append_arrays(*writer, stored.arrays); !done) return done;
    }
    return writer->finish();
}

} // namespace cellar::detail
