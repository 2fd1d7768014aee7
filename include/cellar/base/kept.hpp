// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>

namespace cellar::detail {

/// The data of a snapshot that is paged out.
class PagedData {
public:
    PagedData() = default;
    PagedData(const PagedData&) = delete;
    PagedData& operator=(const PagedData&) = delete;
    virtual ~PagedData() = default;

    virtual std::int64_t bytes() const = 0;

    /// Waits for the work that uses it. Must precede the destructor, unless the memory was destroyed before.
    virtual void finish_work() noexcept = 0;
};

struct FinishAndDelete {
    void operator()(PagedData* data) const noexcept {
        data->finish_work();
        delete data;
    }
};

/// Data that no snapshot owns yet.
template <class Data>
using UnownedData = std::unique_ptr<Data, FinishAndDelete>;

/// What the snapshots of a table own. Each is a `Kept`, which has a pointer to its `table` and its `index` here. Both
/// live at fixed addresses.
template <class Kept>
class KeptList {
public:
    KeptList() = default;
    KeptList(const KeptList&) = delete;
    KeptList& operator=(const KeptList&) = delete;
    ~KeptList() { // the table is destroyed, too
        for (Kept* kept : all_) kept->table = nullptr;
    }

    /// Room for one more. May throw.
    void reserve_one() {
        if (all_.size() == all_.capacity()) all_.reserve(2 * all_.size() + 1);
    }

    /// Needs room.
    template <class Table>
    void add(Kept& kept, Table& table) noexcept {
        kept.table = &table;
        kept.index = all_.size();
        all_.push_back(&kept);
    }

    void remove(Kept& kept) noexcept {
        all_.back()->index = kept.index;
        all_[kept.index] = all_.back();
        all_.pop_back();
        kept.table = nullptr;
    }

    /// In no particular order.
    const TrivialList<Kept*>& all() const { return all_; }

private:
    TrivialList<Kept*> all_;
};

struct ReleaseKept {
    template <class Kept>
    void operator()(Kept* kept) const noexcept {
        if (kept->table != nullptr) kept->table->release(*kept);
        delete kept;
    }
};

/// What a snapshot owns. It goes back to the table that it is of, unless that was destroyed before.
template <class Kept>
using KeptPointer = std::unique_ptr<Kept, ReleaseKept>;

/// What a snapshot owns, for use.
template <class Kept>
Kept& expect_kept(const KeptPointer<Kept>& kept, const std::source_location& where) {
    expect_not_moved(kept, "snapshot", where);
    CELLAR_EXPECTS_AT(where, kept->table != nullptr,
                      "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used");
    return *kept;
}

} // namespace cellar::detail
