// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/id_span.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/files/detail/loaded_arrays.hpp>
#include <cellar/files/detail/loaded_parts.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/detail/sequence_forest.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar {

/// Stands for all sequences of a memory, from 0 on.
struct AllSequences {
    explicit AllSequences() = default;
};
inline constexpr AllSequences all_sequences{};

/// Stands for those of them that can go on: under `Positions::any`, a sequence may lack what its next token sees.
struct ResumableSequences {
    explicit ResumableSequences() = default;
};
inline constexpr ResumableSequences resumable_sequences{};

namespace detail {

template <class M>
std::vector<Sequence> all_of(const M& memory) {
    std::vector<Sequence> all(static_cast<std::size_t>(memory.sequences()));
    for (std::size_t s = 0; s < all.size(); ++s) all[s] = Sequence{static_cast<std::int32_t>(s)};
    return all;
}

/// The last part of each sequence.
inline Checked<std::vector<std::int32_t>> read_last_parts(const StoredSource& source, std::int64_t sequences,
                                                          std::size_t parts) {
    std::vector<std::int32_t> last;
    for (std::int64_t i = 0; i < sequences; ++i) {
        const auto k = stored_index(source, "sequences." + std::to_string(i), parts);
        if (!k) return Problem{"its sequence " + std::to_string(i) + " has no valid part"};
        last.push_back(*k);
    }
    return last;
}

/// Adds the parts and arrays of a file of `room` sequences. `may_differ`: see `load_sequences`.
template <class M>
Checked<void> prepare_sequences(M& memory, StoredSource& source, std::size_t room, bool may_differ,
                                std::vector<LoadedPart<M>>& parts, std::vector<std::int32_t>& last,
                                std::vector<StoredArray>& arrays) {
    const auto saved = source.number("sequences");
    const auto count = source.number("parts");
    if (!saved || !count || *saved < 0 || *count < 0) return Problem{"it has no sequences"};
    if (!may_differ && *saved != static_cast<std::int64_t>(room))
        return Problem{"it has " + std::to_string(*saved) + " sequences, expected " + std::to_string(room)};
    while (static_cast<std::int64_t>(parts.size()) < *count)
        if (auto added = add_next_part(memory, source, parts, arrays); !added) return added;
    auto all = read_last_parts(source, *saved, parts.size());
    if (!all) return std::move(all).error();
    for (std::size_t i = room; i < all->size(); ++i)
        if ((*all)[i] != -1)
            return Problem{"its sequence " + std::to_string(i) + " has tokens, expected at most " + std::to_string(room)
                           + " sequences"};
    last.assign(all->begin(), all->begin() + static_cast<std::ptrdiff_t>(std::min(all->size(), room)));
    return {};
}

/// Refuses if one of these is not empty.
template <class M>
Result<void> check_empty(const M& memory, IdSpan<Sequence> sequences) {
    std::vector<bool> is_listed(static_cast<std::size_t>(memory.sequences()));
    Result<void> all{};
    for (const Sequence s : sequences) {
        if (all && !is_empty(memory, s)) all = Refusal{.reason = Reason::not_empty, .sequence = s};
        CELLAR_EXPECTS(!is_listed[static_cast<std::size_t>(s.value)], "load: sequence ", s,
                       " is listed twice, expected different ones");
        is_listed[static_cast<std::size_t>(s.value)] = true;
    }
    return all;
}

/// `may_differ`: the file may have fewer sequences, or more without tokens.
template <class M>
FileResult<void> load_sequences(const std::filesystem::path& path, M& memory, IdSpan<Sequence> sequences,
                                bool may_differ, const LoadOptions& options) {
    if (const Result<void> can = check_empty(memory, sequences); !can) return refused(path, can.error());
    std::vector<LoadedPart<M>> parts;
    std::vector<std::int32_t> last;
    const auto prepare = [&](StoredSource& source, std::vector<StoredArray>& arrays) {
        return prepare_sequences(memory, source, sequences.size(), may_differ, parts, last, arrays);
    };
    if (auto read = load_arrays(path, options, prepare); !read) return read;
    RestoredSequences<M> restored{memory, {sequences.begin(), sequences.end()}};
    if (const Result<void> done = restored.restore(std::move(parts), last); !done) return refused(path, done.error());
    return {};
}

/// `left_out`: null, or gets the sequences that could not go on, which are then saved as empty ones.
template <class M>
FileResult<void> save_sequences(const std::filesystem::path& path, M& memory, IdSpan<Sequence> sequences,
                                std::vector<Sequence>* left_out, const SaveOptions& options) {
    SequenceForest<M> forest{memory};
    for (const Sequence s : sequences) {
        const Result<void> added = forest.add(s);
        if (added) continue;
        const bool lacks = added.error() == Reason::cannot_resume || added.error() == Reason::cannot_rewind;
        if (left_out == nullptr || !lacks) return refused(path, added.error());
        forest.add_empty(s);
        left_out->push_back(s);
    }
    forest.sort();
    StoredSnapshot whole;
    whole.numbers.emplace_back("sequences", static_cast<std::int64_t>(sequences.size()));
    whole.numbers.emplace_back("parts", static_cast<std::int64_t>(forest.parts().size()));
    for (std::size_t i = 0; i < sequences.size(); ++i)
        whole.numbers.emplace_back("sequences." + std::to_string(i), forest.last_parts()[i]);
    std::optional<SnapshotOf<M>> kept; // until its data is written
    const auto store = [&](std::size_t k, StoredSnapshot& stored) -> Result<void> {
        const auto& part = forest.parts()[k];
        kept.reset();
        auto snapshot = forest.snapshot(part);
        if (!snapshot) return snapshot.error();
        kept.emplace(*std::move(snapshot));
        stored.numbers.emplace_back(part_prefix(k) + "before", part.before);
        memory.save(*kept, part_prefix(k), stored);
        return {};
    };
    return write_parts(path, forest.parts().size(), whole, store, options);
}

} // namespace detail

/// Writes these sequences. Cells that they share because of `copy_prefix` are written once, if the memory
/// has a snapshot of that prefix alone; see docs/files.md. The memory is as it was. Refuses as `snapshot` does. Takes
/// one snapshot at a time. Blocks. O(sequences^2 * runs), and what is written.
template <detail::SavesSnapshots M>
FileResult<void> save(const std::filesystem::path& path, M& memory, IdSpan<Sequence> sequences,
                      const SaveOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::save_sequences(path, memory, sequences, nullptr, options);
}

/// The same for all sequences of the memory, empty ones included.
template <detail::SavesSnapshots M>
FileResult<void> save(const std::filesystem::path& path, M& memory, AllSequences, const SaveOptions& options = {},
                      Where where = Where::current()) {
    return save(path, memory, detail::all_of(memory), options, where);
}

/// The same for all sequences that can go on. Returns the others, which `snapshot` refuses with `cannot_resume` or
/// `cannot_rewind`: in the file, they are empty.
template <detail::SavesSnapshots M>
FileResult<std::vector<Sequence>> save(const std::filesystem::path& path, M& memory, ResumableSequences,
                                       const SaveOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    std::vector<Sequence> left_out;
    auto saved = detail::save_sequences(path, memory, detail::all_of(memory), &left_out, options);
    if (!saved) return std::move(saved).error();
    return left_out;
}

/// Reads sequences that `save` wrote: the first one of the file becomes the first one of these, and so on. A file with
/// another number of sequences is `unsuitable`. The sequences are different ones; they share cells as those in the file
/// do. Refuses with `not_empty`, and as `restore` does: with `full` if there are too few cells. After an error, the
/// sequences are as before, and the memory is as it was, except for the contents of free cells. Blocks. Until it
/// returns, it needs as much host memory as the file has data. Throws `std::bad_alloc`.
template <detail::SavesSnapshots M>
FileResult<void> load(const std::filesystem::path& path, M& memory, IdSpan<Sequence> sequences,
                      const LoadOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::load_sequences(path, memory, sequences, false, options);
}

/// The same for all sequences of the memory. The file may have fewer, or more if they have no tokens.
template <detail::SavesSnapshots M>
FileResult<void> load(const std::filesystem::path& path, M& memory, AllSequences, const LoadOptions& options = {},
                      Where where = Where::current()) {
    const detail::Caller caller{where};
    return detail::load_sequences(path, memory, detail::all_of(memory), true, options);
}

} // namespace cellar
