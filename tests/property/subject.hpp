// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_model.hpp"
#include "rows.hpp"

#include <cstddef>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

namespace property {

/// How full a cache is.
struct Counts {
    int used = 0;             ///< cells that have an owner
    int shared = 0;           ///< cells with several owners
    int sequences = 0;        ///< sequences that have tokens
    int tokens = 0;           ///< tokens of all sequences together
    int longest_free_run = 0; ///< in cells; 0 if a pass may change it by defragmenting
    int snapshots = 0;        ///< in place
    int kept = 0;             ///< tokens of these together
    int offloaded = 0;
    int offloaded_tokens = 0;

    bool operator==(const Counts&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << "{used " << c.used << ", shared " << c.shared << ", sequences " << c.sequences << ", tokens "
               << c.tokens << ", longest free run " << c.longest_free_run << ", snapshots " << c.snapshots << ", kept "
               << c.kept << ", offloaded " << c.offloaded << ", their tokens " << c.offloaded_tokens << "}";
}

/// What a snapshot is of.
struct SnapshotState {
    int from = 0;
    int to = 0;
    int tokens = 0;
    int altered = 0;

    bool operator==(const SnapshotState&) const = default;
};

/// The cells that a batch sees of a sequence.
struct CellList {
    int sequence = 0;
    std::vector<std::pair<int, int>> cells; ///< position and cell of each token, in the order of the list
};

/// The suite's interface to a cache with any policies. The comparison is compiled once, and each combination of
/// policies needs one small adapter.
class Subject {
public:
    virtual ~Subject() = default;

    virtual int cells() const = 0;
    virtual int allocated_cells() const = 0;
    virtual int free_cells() const = 0;
    virtual int cells_freed_by(int sequence) const = 0;
    virtual int cells_needed(const std::vector<naive::NewToken>& batch) = 0;

    // One open pass at a time.
    virtual std::optional<naive::Reason> begin(const std::vector<naive::NewToken>& batch) = 0;
    virtual void reserve(int tokens) = 0;
    virtual void put(int layer, const std::vector<Rows>& rows, int style) = 0;
    virtual std::pair<int, int> history() const = 0; ///< first cell, count
    virtual std::vector<int> own_cells() const = 0;
    virtual void read_mask(int style, std::vector<std::vector<bool>>& visible) = 0;
    virtual std::vector<std::pair<int, int>> visible(int token) = 0; ///< first cell and count of each run
    virtual std::vector<CellList> lists() = 0; ///< one for each sequence of the batch; none if the backend has none
    virtual void read(int layer, int column, Rows& rows) const = 0;
    virtual void commit() = 0;
    virtual void drop() = 0;

    virtual bool can_rotate_by() const = 0;
    /// `rotate_by`: -1 for the usual.
    virtual std::optional<naive::Reason> remove(int sequence, int begin, int end, int rotate_by) = 0;
    virtual std::optional<naive::Reason> copy_prefix(int from, int to, int length) = 0;
    virtual bool can_resume(int sequence, int position) const = 0;
    virtual int resumable_prefix(int sequence, int position) const = 0;
    virtual int next(int sequence) const = 0;
    virtual int altered_from(int sequence) const = 0;
    virtual std::vector<std::pair<int, int>> cells_of(int sequence) const = 0; ///< position and cell of each token

    virtual bool can_snapshot() const = 0;
    virtual std::optional<naive::Reason> snapshot(int sequence, int from, int to) = 0; ///< adds one, if not refused
    virtual std::optional<naive::Reason> restore(int sequence, std::size_t snapshot, int to) = 0;
    virtual std::optional<naive::Reason> rewind(int sequence, int to) = 0;
    virtual std::optional<naive::Reason> split(std::size_t snapshot, int at) = 0;          ///< adds one, if not refused
    virtual std::optional<naive::Reason> merge(std::size_t parent, std::size_t child) = 0; ///< the child goes
    virtual void offload(std::size_t snapshot, int style) = 0;
    virtual std::optional<naive::Reason> reload(std::size_t snapshot) = 0;
    virtual void release(std::size_t snapshot) = 0;
    virtual void schedule(int sequence, int position) = 0; ///< never refuses
    virtual void unschedule(int sequence, int position) = 0;
    virtual SnapshotState snapshot_state(std::size_t snapshot) const = 0;

    virtual void defragment() = 0;
    virtual int tokens(int sequence) const = 0;
    virtual std::optional<std::pair<int, int>> range(int sequence) const = 0;
    virtual Counts counts() const = 0;
};

} // namespace property
