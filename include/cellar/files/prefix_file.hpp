// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/files/detail/loaded_arrays.hpp>
#include <cellar/files/detail/loaded_parts.hpp>
#include <cellar/files/detail/loaded_prefixes.hpp>
#include <cellar/files/detail/saved_prefixes.hpp>
#include <cellar/files/detail/saved_snapshot.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_result.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/memory/saves_snapshots.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/prefix/prefix_tree.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace cellar {

/// Writes the prefixes of a tree: tokens, salts, and their snapshots, in place or offloaded. Tree and
/// memory are as they were. Blocks.
template <PrefixTreeMemory M>
    requires(detail::SavesSnapshots<M>)
FileResult<void> save(const std::filesystem::path& path, PrefixTree<M>& tree, const SaveOptions& options = {},
                      Where where = Where::current()) {
    const detail::Caller caller{where};
    const detail::SavedPrefixes<M> prefixes{tree};
    detail::StoredSnapshot whole;
    whole.numbers.emplace_back("prefixes", static_cast<std::int64_t>(prefixes.size()));
    const auto store = [&](std::size_t k, detail::StoredSnapshot& stored) -> Result<void> {
        prefixes.store(k, stored);
        return {};
    };
    return detail::write_parts(path, prefixes.size(), whole, store, options);
}

/// Reads prefixes that `save` wrote into a tree that has none. They are in place. As long as the memory has too little
/// room, some are offloaded, within `PrefixLimits::offloaded_bytes`. If that does not suffice, refuses with `full`. `s`
/// is an empty sequence, else `not_empty`, which is used meanwhile, and is empty afterwards. After an error, the tree
/// has no prefix, and the memory is as it was, except for the contents of free cells. Blocks. Until it returns, it
/// needs as much host memory as the file has data. Throws `std::bad_alloc`.
template <PrefixTreeMemory M>
    requires(detail::SavesSnapshots<M>)
FileResult<void> load(const std::filesystem::path& path, PrefixTree<M>& tree, Sequence s,
                      const LoadOptions& options = {}, Where where = Where::current()) {
    const detail::Caller caller{where};
    const std::int64_t nodes = tree.statistics().nodes;
    CELLAR_EXPECTS(nodes == 0, "load: the tree has ", nodes, " nodes, expected an empty one");
    if (!detail::is_empty(tree.memory(), s)) return detail::refused(path, {.reason = Reason::not_empty, .sequence = s});
    detail::LoadedPrefixes<M> prefixes{tree, s};
    const auto prepare = [&](auto& source, auto& arrays) { return prefixes.prepare(source, arrays); };
    if (auto read = detail::load_arrays(path, options, prepare); !read) return read;
    if (const Result<void> done = prefixes.insert(); !done) return detail::refused(path, done.error());
    return {};
}

} // namespace cellar
