// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/files/detail/loaded_arrays.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_options.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace cellar {

/// Writes a snapshot of `memory`, which is one of cellar's own or a hybrid of these, to a file; see docs/files.md. The
/// snapshot may be in place or offloaded, and stays so. Blocks. Data that is not offloaded to the host passes through
/// 1 MiB of memory.
template <detail::SavesSnapshots M, std::same_as<SnapshotOf<M>> Snapshot>
FileResult<void> save(const std::filesystem::path& path, M& memory, const Snapshot& snapshot,
                      const SaveOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    const auto store = [&](std::size_t, detail::StoredSnapshot& stored) -> Result<void> {
        memory.save(snapshot, "", stored);
        return {};
    };
    return detail::write_parts(path, 1, {}, store, options);
}

/// Writes the sequence s, as its snapshot up to its next token. The memory is as it was. Refuses as `snapshot` does:
/// a recurrent memory needs room for one (`StateLimits::snapshots`).
template <detail::SavesSnapshots M>
FileResult<void> save(const std::filesystem::path& path, M& memory, Sequence s, const SaveOptions& options = {},
                      Where where = Where::current()) {
    const detail::Caller caller{where};
    const auto snapshot = detail::snapshot_keeping_schedule(memory, s, Position{0}, to_end);
    if (!snapshot) return detail::refused(path, snapshot.error());
    return save(path, memory, *snapshot, options, where);
}

/// Reads a snapshot that `save` wrote. It is offloaded on the host: `restore` copies it to a sequence, and `reload`
/// to cells or slots of its own. The memory may have another layout, backend, capacity or placement than the one that
/// was saved. Elements of another type are converted, rounding to the nearest, and so are the formats of
/// `LoadOptions::convert_from`. Another window must see no position that the snapshot lacks. Anything else is
/// `unsuitable`, and so are another model and other notes. Everything is checked before the memory takes the snapshot;
/// after an error the memory is as it was. Blocks. Throws `std::bad_alloc`.
template <detail::SavesSnapshots M>
FileResult<SnapshotOf<M>> load(const std::filesystem::path& path, M& memory, const LoadOptions& options = {},
                               Where where = Where::current()) {
    const detail::Caller caller{where};
    std::optional<detail::PreparedLoad<M>> prepared;
    const auto prepare = [&](auto& source, auto& arrays) -> detail::Checked<void> {
        auto loaded = memory.prepare(detail::Load{source, "", arrays});
        if (!loaded) return std::move(loaded).error();
        prepared.emplace(*std::move(loaded));
        return {};
    };
    if (auto read = detail::load_arrays(path, options, prepare); !read) return std::move(read).error();
    return memory.finish(*std::move(prepared));
}

/// Reads a snapshot and restores it: s then has what was saved, in place of its own tokens. Refuses as `restore` does:
/// with `full` if there are too few cells. After an error, s and the memory are as they were. Blocks. Until it returns,
/// it needs as much host memory as the snapshot. Throws `std::bad_alloc`.
template <detail::SavesSnapshots M>
FileResult<void> load(const std::filesystem::path& path, M& memory, Sequence s, const LoadOptions& options = {},
                      Where where = Where::current()) {
    const detail::Caller caller{where};
    const auto snapshot = load(path, memory, options, where);
    if (!snapshot) return snapshot.error();
    if (const Result<void> restored = memory.restore(s, *snapshot); !restored)
        return detail::refused(path, restored.error());
    return {};
}

/// The notes of a file that `save` wrote, also one of several sequences or of a prefix tree. Checks the beginning of
/// the file, which has the notes, and reads no data. To be sure that what is loaded later belongs to these notes, pass
/// them as `LoadOptions::notes`: the file may have been replaced.
inline FileResult<FileNotes> read_notes(const std::filesystem::path& path, ReadOptions options = {},
                                        Where where = Where::current()) {
    auto reader = FileReader::open(path, std::move(options), where);
    if (!reader) return std::move(reader).error();
    FileNotes notes;
    const std::string_view begin = detail::note_key;
    for (const auto& [key, text] : reader->metadata())
        if (key.starts_with(begin)) notes.emplace(key.substr(begin.size()), text);
    return notes;
}

} // namespace cellar
