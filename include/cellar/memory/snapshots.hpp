// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
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
/// (cells of tokens, or the slot of a state), or, if it is offloaded, a copy of their rows.
///
/// - `State`: the parts of the memory. Has the backend, the stores of all places, `allocate_for(kept, ...)`, for stores
///   that grow, and `offload_place(to)`: where rows go that are offloaded, as `Offloaded` is told.
/// - `Book`: decides about sequences: `prepare_keep`, `prepare_restore`, `prepare_schedule`. Its `snapshots()` are the
///   table of what snapshots own (`KeptLists`), and of the places that their rows leave and come to.
/// - `Offloaded`: rows that are offloaded. `prepare_read(places)` and `prepare_write(places)` allocate what
///   `read(places)` and `write(places)` need, which enqueue, or block.
/// - `Stored`: how rows are saved and loaded.
template <class State, class Book, class TheSnapshot, class TheOffloaded, class Stored>
class Snapshots {
protected:
    using Snapshot = TheSnapshot;
    using Offloaded = TheOffloaded;
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
        Places places; ///< if it is offloaded: room for those that the sequence takes
        typename Offloaded::Transfer transfer{};
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
        if (!kept.is_offloaded()) return Restore{s, &kept, to, *std::move(places)};
        state_.allocate_for(kept, s, *places);
        auto transfer = offloaded(kept).prepare_write(*places);
        return Restore{s, &kept, to, *std::move(places), std::move(transfer)};
    }
    void finish(Restore&& restore) noexcept {
        const Kept& kept = *restore.kept;
        book_.finish_restore(restore.sequence, kept, restore.to, restore.places);
        if (kept.is_offloaded()) offloaded(kept).write(restore.places, std::move(restore.transfer));
    }

    struct Offload {
        Kept* kept;
        std::optional<Rows> rows{}; ///< none if it is offloaded already
        UnownedData<Offloaded> data{};
    };
    Result<Offload> prepare(const op::Offload<Snapshot>& operation) {
        state_.expect_no_pass("offload");
        return prepare_offload(operation.snapshot, state_.offload_place(operation.to));
    }
    void finish(Offload&& offload) noexcept {
        if (offload.rows) table().finish_offload(*offload.kept, *offload.rows, std::move(offload.data));
    }

    struct Reload {
        Kept* kept;
        std::optional<Rows> rows{}; ///< none if it is in place already
        typename Offloaded::Transfer transfer{};
    };
    Result<Reload> prepare(const op::Reload<Snapshot>& operation) {
        state_.expect_no_pass("reload");
        Reload reload{&kept_of(operation.snapshot, "reload")};
        if (!reload.kept->is_offloaded()) return reload;
        auto rows = table().prepare_reload(*reload.kept);
        if (!rows) return rows.error();
        reload.rows.emplace(*std::move(rows));
        state_.allocate_for(*reload.kept);
        reload.transfer = offloaded(*reload.kept).prepare_write(reload.rows->places);
        return reload;
    }
    void finish(Reload&& reload) noexcept {
        if (!reload.rows) return;
        const UnownedData<OffloadedData> data = table().finish_reload(*reload.kept, *reload.rows);
        static_cast<Offloaded&>(*data).write(reload.rows->places, std::move(reload.transfer));
    }

    struct Loaded {
        KeptPointer<Kept> kept{};
        UnownedData<Offloaded> data{};
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
        auto rows = table().prepare_reload(*loaded.kept);
        if (!rows) return Problem{"", rows.error()};
        loaded.rows.emplace(*std::move(rows));
        state_.allocate_for(*loaded.kept);
        return loaded;
    }
    Snapshot finish(Loaded&& loaded) noexcept {
        if (loaded.rows) {
            table().finish_reload(*loaded.kept, *loaded.rows);
        } else {
            table().finish_adopt(*loaded.kept, std::move(loaded.data));
        }
        return Snapshot{std::move(loaded.kept)};
    }

    Attempt<op::Schedule> prepare(const op::Schedule& schedule) {
        state_.expect_no_pass("schedule");
        const Position next = book_.next(schedule.sequence);
        CELLAR_EXPECTS(schedule.position.value >= 0 && schedule.position < to_end, "schedule: position ",
                       schedule.position, ", expected 0 or more, and less than to_end");
        if (schedule.position <= next)
            return Refusal{.reason = Reason::already_passed,
                           .sequence = schedule.sequence,
                           .needed = schedule.position.value,
                           .available = next.value};
        return {schedule, book_.prepare_schedule(schedule.sequence)};
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

    static Offloaded& offloaded(const Kept& kept) { return static_cast<Offloaded&>(*kept.data); }
    template <class Place>
    Offload prepare_offload(Snapshot& snapshot, const Place& place) {
        Offload offload{&kept_of(snapshot, "offload")};
        if (offload.kept->is_offloaded()) return offload;
        offload.rows.emplace(table().prepare_offload(*offload.kept));
        offload.data = make_offloaded(offload.kept->rows(), place);
        offload.data->read(offload.rows->places, offload.data->prepare_read(offload.rows->places));
        return offload;
    }
    template <class Place>
    UnownedData<Offloaded> make_offloaded(std::int64_t rows, const Place& place) {
        return UnownedData<Offloaded>{new Offloaded{state_.backend, state_.stores, rows, place}};
    }

    State& state_;

private:
    Book& book_;
};

} // namespace cellar::detail
