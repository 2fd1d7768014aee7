// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/trivial_list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cellar::detail {

/// The data of a snapshot that is offloaded.
class OffloadedData {
public:
    OffloadedData() = default;
    OffloadedData(const OffloadedData&) = delete;
    OffloadedData& operator=(const OffloadedData&) = delete;
    virtual ~OffloadedData() = default;

    virtual std::int64_t bytes() const = 0;

    /// Waits for the work that uses it. Must precede the destructor, unless the memory was destroyed before.
    virtual void finish_work() noexcept = 0;
};

struct FinishAndDelete {
    void operator()(OffloadedData* data) const noexcept {
        data->finish_work();
        delete data;
    }
};

/// Data that no snapshot owns yet, or no longer.
template <class Data>
using UnownedData = std::unique_ptr<Data, FinishAndDelete>;

/// Whether the next token after a snapshot, or of a restored sequence, must find its whole window.
enum class Resuming {
    checked, ///< it must
    anywhere ///< it need not: the inputs of an encoder
};

/// What a snapshot owns, in place or offloaded. A table fills in the rest, which depends on the memory.
template <class TheTable>
struct Kept {
    using Table = TheTable;

    bool is_offloaded() const { return data != nullptr; }

    std::unique_ptr<OffloadedData> data{}; ///< null if it is in place
    Table* table = nullptr;                ///< null before something is owned, and after the table is destroyed
    std::size_t index = 0;                 ///< among those of the table that are in place, or among those that are not
};

/// A table of what snapshots own. All of them live at fixed addresses. `Table` derives from it, and has `give(kept)`,
/// which gives up what a snapshot owns in place.
template <class Table, class Kept>
class KeptLists {
    using List = TrivialList<Kept*>;

public:
    KeptLists() = default;
    KeptLists(const KeptLists&) = delete;
    KeptLists& operator=(const KeptLists&) = delete;
    ~KeptLists() {
        for (const List* list : {&in_place_, &offloaded_})
            for (Kept* kept : *list) kept->table = nullptr;
    }

    /// In no particular order.
    const List& in_place() const { return in_place_; }
    const List& offloaded() const { return offloaded_; }

    /// Room for one more that is offloaded. May throw.
    void prepare_adopt() { reserve_one(offloaded_); }
    /// Takes over what no table has, with its data.
    void finish_adopt(Kept& kept, UnownedData<OffloadedData> data) noexcept {
        kept.data.reset(data.release());
        add(kept);
    }

    /// Gives up what it owns, and takes it off the table.
    void release(Kept& kept) noexcept {
        kept.is_offloaded() ? kept.data->finish_work() : static_cast<Table&>(*this).give(kept);
        remove(kept);
    }

protected:
    void reserve_in_place() { reserve_one(in_place_); }
    void reserve_beside(const Kept& kept) { reserve_one(list_of(kept)); }

    /// Needs room.
    void add(Kept& kept) noexcept {
        List& list = list_of(kept);
        kept.table = static_cast<Table*>(this);
        kept.index = list.size();
        list.push_back(&kept);
    }
    void remove(Kept& kept) noexcept {
        List& list = list_of(kept);
        list.back()->index = kept.index;
        list[kept.index] = list.back();
        list.pop_back();
        kept.table = nullptr;
    }
    /// What is in place again has no use for its data.
    UnownedData<OffloadedData> remove_with_data(Kept& kept) noexcept {
        if (kept.is_offloaded()) remove(kept);
        return UnownedData<OffloadedData>{kept.data.release()};
    }

private:
    static void reserve_one(List& list) {
        if (list.size() == list.capacity()) list.reserve(2 * list.size() + 1);
    }
    List& list_of(const Kept& kept) { return kept.is_offloaded() ? offloaded_ : in_place_; }

    List in_place_;
    List offloaded_;
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
Kept& expect_kept(const KeptPointer<Kept>& kept, Where where) {
    expect_not_moved(kept, "snapshot", where);
    CELLAR_EXPECTS_AT(where, kept->table != nullptr,
                      "the snapshot's memory was destroyed, expected it to live as long as its snapshots are used");
    return *kept;
}

} // namespace cellar::detail
