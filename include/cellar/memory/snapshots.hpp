// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/memory/operations.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace cellar::detail {

/// The operations of a memory that make or use snapshots, in their two phases. A snapshot owns places of the memory
/// (cells of tokens, or the slot of a state), or, if it is paged out, a copy of their rows.
///
/// - `State`: the parts of the memory. Has the backend, the stores of all places, and `allocate_for(kept, ...)`, for
///   stores that grow.
/// - `Book`: decides about sequences: `prepare_keep`, `prepare_restore`, `prepare_schedule`. Its `snapshots()` are the
///   table of what snapshots own (`KeptLists`), and of the places that their rows leave and come to.
/// - `Paged`: rows that are paged out. `prepare_read(places)` and `prepare_write(places)` allocate what `read(places)`
///   and `write(places)` need, which enqueue, or block.
/// - `Stored`: how rows are saved and loaded.
template <class State, class Book, class TheSnapshot, class ThePaged, class Stored>
class Snapshots {
protected:
    using Snapshot = TheSnapshot;
    using Paged = ThePaged;
    using Kept = typename Snapshot::Kept;
    using Table = typename Kept::Table;
    using Places = typename Table::Places;
    using Rows = typename Table::Rows;

public:
    Snapshots(State& state, Book& book) : state_{state}, book_{book} {}

    struct Keep {
        Sequence sequence;
        KeptPointer<Kept> kept;
        bool keeps_schedule;
    };
    Result<Keep> prepare(const op::Snapshot& snapshot) {
        const Sequence s = snapshot.sequence;
        const Position from = snapshot.from;
        state_.expect_no_pass("snapshot");
        const Resuming can = state_.resuming(snapshot.unchecked);
        const Position to = snapshot.to == to_end && can == Resuming::checked ? book_.next(s) : snapshot.to;
        CELLAR_EXPECTS(from.value >= 0 && from <= to, "snapshot: positions [", from, ", ", to, ") of sequence ", s,
                       ", expected 0 <= from <= to");
        auto kept = book_.prepare_keep(s, from, to, can);
        if (!kept) return kept.error();
        return Keep{s, *std::move(kept), snapshot.keeps_schedule};
    }
    Snapshot finish(Keep&& keep) noexcept {
        book_.finish_keep(keep.sequence, *keep.kept);
        if (!keep.keeps_schedule) book_.finish_unschedule(keep.sequence, keep.kept->to);
        return Snapshot{std::move(keep.kept)};
    }

    struct Restore {
        Sequence sequence;
        const Kept* kept;
        Position to;
        Places places; ///< if it is paged out: room for those that the sequence takes
        typename Paged::Transfer transfer{};
    };
    Result<Restore> prepare(const op::Restore<Snapshot>& operation) {
        const Sequence s = operation.sequence;
        const Position to = operation.to;
        state_.expect_no_pass("restore");
        const Kept& kept = kept_of(operation.snapshot, "restore");
        CELLAR_EXPECTS(kept.from <= to && to <= kept.to, "restore: position ", to, ", expected ", kept.from, " to ",
                       kept.to, ", within the snapshot");
        auto places = book_.prepare_restore(s, kept, to, state_.resuming(operation.unchecked));
        if (!places) return places.error();
        Restore restore{s, &kept, to, *std::move(places)};
        if (!kept.is_paged_out()) return restore;
        state_.allocate_for(kept, s, restore.places);
        restore.transfer = paged(kept).prepare_write(restore.places);
        return restore;
    }
    void finish(Restore&& restore) noexcept {
        const Kept& kept = *restore.kept;
        book_.finish_restore(restore.sequence, kept, restore.to, restore.places);
        if (kept.is_paged_out()) paged(kept).write(restore.places, std::move(restore.transfer));
    }

    struct PageOut {
        Kept* kept;
        std::optional<Rows> rows{}; ///< none if it is paged out already
        UnownedData<Paged> data{};
    };
    Result<PageOut> prepare(const op::PageOut<Snapshot>& operation) {
        state_.expect_no_pass("page_out");
        PageOut page{&kept_of(operation.snapshot, "page_out")};
        if (page.kept->is_paged_out()) return page;
        page.rows.emplace(table().prepare_page_out(*page.kept));
        page.data = make_paged(page.kept->rows(), operation.to);
        page.data->read(page.rows->places, page.data->prepare_read(page.rows->places));
        return page;
    }
    void finish(PageOut&& page) noexcept {
        if (page.rows) table().finish_page_out(*page.kept, *page.rows, std::move(page.data));
    }

    struct PageIn {
        Kept* kept;
        std::optional<Rows> rows{}; ///< none if it is in place already
        typename Paged::Transfer transfer{};
    };
    Result<PageIn> prepare(const op::PageIn<Snapshot>& operation) {
        state_.expect_no_pass("page_in");
        PageIn page{&kept_of(operation.snapshot, "page_in")};
        if (!page.kept->is_paged_out()) return page;
        auto rows = table().prepare_page_in(*page.kept);
        if (!rows) return rows.error();
        page.rows.emplace(*std::move(rows));
        state_.allocate_for(*page.kept);
        page.transfer = paged(*page.kept).prepare_write(page.rows->places);
        return page;
    }
    void finish(PageIn&& page) noexcept {
        if (!page.rows) return;
        const UnownedData<PagedData> data = table().finish_page_in(*page.kept, *page.rows);
        static_cast<Paged&>(*data).write(page.rows->places, std::move(page.transfer));
    }

    struct Loaded {
        KeptPointer<Kept> kept{};
        UnownedData<Paged> data{};
        std::optional<Rows> rows{}; ///< in place of data
    };
    Checked<Loaded> prepare(const Load& load) {
        state_.expect_no_pass("load");
        Loaded loaded;
        if (auto suits = Stored{state_}.prepare_load(load, loaded.kept, loaded.data); !suits)
            return std::move(suits).error();
        if (loaded.data != nullptr) {
            table().prepare_adopt();
            return loaded;
        }
        auto rows = table().prepare_page_in(*loaded.kept);
        if (!rows) return Problem{"", rows.error()};
        loaded.rows.emplace(*std::move(rows));
        state_.allocate_for(*loaded.kept);
        return loaded;
    }
    Snapshot finish(Loaded&& loaded) noexcept {
        if (loaded.rows) {
            table().finish_page_in(*loaded.kept, *loaded.rows);
        } else {
            table().finish_adopt(*loaded.kept, std::move(loaded.data));
        }
        return Snapshot{std::move(loaded.kept)};
    }

    Attempt<op::Schedule> prepare(const op::Schedule& schedule) {
        state_.expect_no_pass("schedule");
        const Position next = book_.next(schedule.sequence);
        CELLAR_EXPECTS(schedule.position > next && schedule.position < to_end, "schedule: position ", schedule.position,
                       ", expected more than ", next, ", the position of the next token, and less than to_end");
        const Result<bool> can = book_.prepare_schedule(schedule.sequence);
        if (!can) return can.error();
        return {schedule, *can};
    }
    void finish(op::Schedule&& schedule) noexcept { book_.finish_schedule(schedule.sequence, schedule.position); }

    Attempt<op::Unschedule> prepare(const op::Unschedule& schedule) {
        state_.expect_no_pass("unschedule");
        CELLAR_EXPECTS(schedule.position.value >= 0, "unschedule: position ", schedule.position,
                       ", expected 0 or more");
        return {schedule, book_.prepare_unschedule(schedule.sequence, schedule.position)};
    }
    void finish(op::Unschedule&& schedule) noexcept { book_.finish_unschedule(schedule.sequence, schedule.position); }

    void save(const Snapshot& snapshot, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("save");
        Stored{state_}.save(kept_of(snapshot, "save"), prefix, stored);
    }
    void save_ahead(Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("send_ahead");
        Stored{state_}.save_ahead(s, to, prefix, stored);
    }

protected:
    Book& book() { return book_; }
    Table& table() { return book_.snapshots(); }

    Kept& kept_of(const Snapshot& snapshot, const char* operation) { return snapshot.kept_in(table(), operation); }

    static Paged& paged(const Kept& kept) { return static_cast<Paged&>(*kept.data); }
    UnownedData<Paged> make_paged(std::int64_t rows, PageTo to) {
        return UnownedData<Paged>{new Paged{state_.backend, state_.stores, rows, to}};
    }

    State& state_;

private:
    Book& book_;
};

} // namespace cellar::detail
