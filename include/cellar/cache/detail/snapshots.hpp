// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/kept_table.hpp>
#include <cellar/cache/cell_snapshot.hpp>
#include <cellar/cache/detail/paged_rows.hpp>
#include <cellar/cache/detail/stored_cells.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The operations of a cache that make, use or change snapshots, in their two phases.
template <class State>
class Snapshots {
    using Rows = PagedRows<typename State::Store, typename State::Backend>;

public:
    explicit Snapshots(State& state) : state_{state} {}

    struct Keep {
        Sequence sequence;
        KeptCellsPointer kept;
        bool keeps_schedule;
    };
    Result<Keep> prepare(const op::Snapshot& snapshot) {
        const Sequence s = snapshot.sequence;
        const Position from = snapshot.from;
        state_.expect_no_pass("snapshot");
        const Resuming can = resuming(snapshot.unchecked);
        const Position to = snapshot.to == to_end && can == Resuming::checked ? state_.book.next(s) : snapshot.to;
        CELLAR_EXPECTS(from.value >= 0 && from <= to, "snapshot: positions [", from, ", ", to, ") of sequence ", s,
                       ", expected 0 <= from <= to");
        auto kept = state_.book.prepare_keep(s, from, to, can);
        if (!kept) return kept.error();
        return Keep{s, *std::move(kept), snapshot.keeps_schedule};
    }
    CellSnapshot finish(Keep&& keep) noexcept {
        state_.book.finish_keep(keep.sequence, *keep.kept);
        if (!keep.keeps_schedule) state_.book.finish_unschedule(keep.sequence, keep.kept->to);
        return CellSnapshot{std::move(keep.kept)};
    }

    struct Restore {
        Sequence sequence;
        const KeptCells* kept;
        Position to;
        TrivialList<Cell> cells{}; ///< if it is paged out: room for those of the rows
        typename Rows::Staging staging{};
    };
    Result<Restore> prepare(const op::Restore<CellSnapshot>& operation) {
        const Sequence s = operation.sequence;
        const Position to = operation.to;
        state_.expect_no_pass("restore");
        const KeptCells& kept = kept_of(operation.snapshot, "restore");
        CELLAR_EXPECTS(kept.from <= to && to <= kept.to, "restore: position ", to, ", expected ", kept.from, " to ",
                       kept.to, ", within the snapshot");
        auto cells = state_.book.prepare_restore(s, kept, to, resuming(operation.unchecked));
        if (!cells) return cells.error();
        Restore restore{s, &kept, to, *std::move(cells)};
        if (!kept.is_paged_out()) return restore;
        state_.allocate_for(static_cast<std::int32_t>(restore.cells.capacity()),
                            state_.book.runs(s).last_cell_before(kept.from));
        restore.staging = prepare_write(kept, static_cast<std::int64_t>(restore.cells.capacity()));
        return restore;
    }
    void finish(Restore&& restore) noexcept {
        const KeptCells& kept = *restore.kept;
        state_.book.finish_restore(restore.sequence, kept, restore.to, restore.cells);
        if (kept.is_paged_out()) rows_of(kept).write(restore.cells, std::move(restore.staging));
    }

    struct PageOut {
        KeptCells* kept;
        PositionRuns runs;
        UnownedData<Rows> rows; ///< null if it is paged out already
    };
    Result<PageOut> prepare(const op::PageOut<CellSnapshot>& operation) {
        state_.expect_no_pass("page_out");
        KeptCells& kept = kept_of(operation.snapshot, "page_out");
        if (kept.is_paged_out()) return PageOut{&kept, PositionRuns{1}, nullptr};
        PageOut page{&kept, table().prepare_page_out(kept), make_rows(kept.runs.tokens(), operation.to)};
        TrivialList<Cell> cells;
        cells.reserve(static_cast<std::size_t>(kept.runs.tokens()));
        kept.runs.for_each(kept.from, kept.to, [&](Position, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
        });
        page.rows->read(cells, page.rows->allocate_staging(kept.runs.tokens()));
        return page;
    }
    void finish(PageOut&& page) noexcept {
        if (page.rows == nullptr) return;
        table().finish_page_out(*page.kept, std::move(page.runs), std::unique_ptr<PagedData>{page.rows.release()});
    }

    struct PageIn {
        KeptCells* kept;
        KeptTable::Intake intake;
        typename Rows::Staging staging{};
    };
    Result<PageIn> prepare(const op::PageIn<CellSnapshot>& operation) {
        state_.expect_no_pass("page_in");
        KeptCells& kept = kept_of(operation.snapshot, "page_in");
        if (!kept.is_paged_out()) return PageIn{&kept, {{}, PositionRuns{1}}};
        auto intake = table().prepare_page_in(kept);
        if (!intake) return intake.error();
        state_.allocate_for(kept.runs.tokens());
        return PageIn{&kept, *std::move(intake), prepare_write(kept, kept.runs.tokens())};
    }
    void finish(PageIn&& page) noexcept {
        KeptCells& kept = *page.kept;
        if (!kept.is_paged_out()) return;
        table().finish_page_in(kept, page.intake);
        rows_of(kept).write(page.intake.cells, std::move(page.staging));
        kept.data->finish_work();
        kept.data = nullptr;
    }

    void save(const CellSnapshot& snapshot, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("save");
        StoredCells<State>{state_, resuming()}.save(kept_of(snapshot, "save"), prefix, stored);
    }

    void save_ahead(Sequence s, Position to, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("send_ahead");
        StoredCells<State>{state_, resuming()}.save_ahead(s, to, prefix, stored);
    }

    struct Loaded {
        KeptCellsPointer kept{};
        UnownedData<Rows> rows{}; ///< null if it goes into cells
        std::optional<KeptTable::Intake> intake{};
    };
    Checked<Loaded> prepare(const Load& operation) {
        const auto& [source, prefix, arrays, to] = operation;
        state_.expect_no_pass("load");
        Loaded load;
        StoredCells<State> cells{state_, resuming()};
        auto suits = cells.prepare_load(source, prefix, to, load.kept, load.rows, arrays);
        if (!suits) return std::move(suits).error();
        if (resuming() == Resuming::checked && !state_.book.can_restore(*load.kept, load.kept->to))
            return Problem{"its snapshot lacks positions that the window of this cache sees"};
        if (to == LoadTo::host) {
            table().prepare_adopt();
            return load;
        }
        auto intake = table().prepare_page_in(*load.kept);
        if (!intake) return Problem{"", intake.error()};
        load.intake.emplace(*std::move(intake));
        state_.allocate_for(load.kept->runs.tokens());
        return load;
    }
    CellSnapshot finish(Loaded&& load) noexcept {
        if (load.intake) {
            table().finish_intake(*load.kept, *load.intake);
        } else {
            table().finish_adopt(*load.kept, std::unique_ptr<PagedData>{load.rows.release()});
        }
        return CellSnapshot{std::move(load.kept)};
    }

    struct Merge {
        CellSnapshot* parent;
        CellSnapshot* child;
        KeptCells* first;
        KeptCells* second;
        bool replaces;                     ///< the child takes the place of the parent
        std::optional<PageOut> page_out{}; ///< of the child, to where the parent is
        std::optional<PageIn> page_in{};
        UnownedData<Rows> rows{};   ///< of both, if the parent is paged out
        KeptCellsPointer dropped{}; ///< what a parent without an end has from where the child begins
        UnownedData<Rows> no_rows{};
    };
    Result<Merge> prepare(const op::Merge<CellSnapshot>& operation) {
        const auto& [parent, child] = operation;
        state_.expect_no_pass("merge");
        KeptCells& first = kept_of(parent, "merge");
        KeptCells& second = kept_of(child, "merge");
        CELLAR_EXPECTS(&first != &second, "merge: the snapshots are one and the same, expected two");
        const bool is_within = first.to == to_end && second.from >= first.from; // inputs of an encoder
        CELLAR_EXPECTS(second.from == first.to || is_within || (second.from == Position{0} && second.to >= first.to),
                       "merge: the child is of positions [", second.from, ", ", second.to,
                       "), expected it to begin at ", first.to, ", where the parent ends");
        Merge merge{&parent, &child, &first, &second, second.from == Position{0}};
        if (merge.replaces) return merge;
        if (second.from < first.to) prepare_drop(merge);
        if (first.is_paged_out()) {
            prepare_joined_rows(merge);
        } else if (const Result<void> can = prepare_joined_cells(merge); !can) {
            return can.error();
        }
        return merge;
    }
    void finish(Merge&& merge) noexcept {
        if (merge.replaces) {
            *merge.parent = std::move(*merge.child);
            return;
        }
        if (merge.dropped) finish_drop(merge); // its entry in the table is free again, before others need theirs
        if (merge.page_out) finish(*std::move(merge.page_out));
        if (merge.page_in) finish(*std::move(merge.page_in));
        table().finish_join(*merge.first, *merge.second);
        if (merge.rows != nullptr) replace_data(*merge.first, std::move(merge.rows));
        const CellSnapshot emptied = std::move(*merge.child);
    }

    struct Split {
        KeptCells* kept;
        KeptCellsPointer tail;
        UnownedData<Rows> rows_of_head{}; ///< null if it is in place
        UnownedData<Rows> rows_of_tail{};
    };
    Result<Split> prepare(const op::Split<CellSnapshot>& operation) {
        const Position at = operation.at;
        state_.expect_no_pass("split");
        KeptCells& kept = kept_of(operation.snapshot, "split");
        CELLAR_EXPECTS(kept.from <= at && at <= kept.to, "split: position ", at, ", expected ", kept.from, " to ",
                       kept.to);
        if (kept.is_window) return Reason::cannot_split;
        Split split{&kept, table().prepare_split(kept, at)};
        if (!kept.is_paged_out()) return split;
        const std::int32_t below = KeptTable::tokens_below(kept, at);
        split.rows_of_head = make_rows(below, rows_of(kept).place());
        split.rows_of_tail = make_rows(kept.runs.tokens() - below, rows_of(kept).place());
        split.rows_of_head->copy_rows(rows_of(kept), 0, below, 0);
        split.rows_of_tail->copy_rows(rows_of(kept), below, kept.runs.tokens() - below, 0);
        return split;
    }
    CellSnapshot finish(Split&& split) noexcept {
        table().finish_split(*split.kept, *split.tail);
        if (split.rows_of_head != nullptr) {
            replace_data(*split.kept, std::move(split.rows_of_head));
            split.tail->data.reset(split.rows_of_tail.release());
        }
        return CellSnapshot{std::move(split.tail)};
    }

private:
    Resuming resuming(bool unchecked = false) const {
        return unchecked || state_.holds_inputs ? Resuming::anywhere : Resuming::checked;
    }

    KeptTable& table() { return state_.book.snapshots(); }

    KeptCells& kept_of(const CellSnapshot& snapshot, const char* operation) {
        return snapshot.kept_in(table(), operation);
    }

    static Rows& rows_of(const KeptCells& kept) { return static_cast<Rows&>(*kept.data); }

    UnownedData<Rows> make_rows(std::int64_t tokens, PageTo to) {
        CELLAR_EXPECTS(!HoldsNoData<typename State::Backend>, "page_out: the cache has no keys and values, expected a "
                                                              "backend with memory");
        return UnownedData<Rows>{new Rows{state_.backend, state_.stores, tokens, to}};
    }

    // The work that copies from the old data is done when it returns.
    static void replace_data(KeptCells& kept, UnownedData<Rows> rows) noexcept {
        rows->finish_work();
        kept.data.reset(rows.release());
    }

    void prepare_drop(Merge& merge) {
        merge.dropped = table().prepare_split(*merge.first, merge.second->from);
        if (merge.first->is_paged_out()) merge.no_rows = make_rows(0, rows_of(*merge.first).place());
    }
    void finish_drop(Merge& merge) noexcept {
        table().finish_split(*merge.first, *merge.dropped);
        merge.dropped->data.reset(merge.no_rows.release());
        merge.dropped.reset();
    }

    // The parent is paged out: the rows of the child follow its own, in a larger block.
    void prepare_joined_rows(Merge& merge) {
        KeptCells& first = *merge.first;
        KeptCells& second = *merge.second;
        Rows& own = rows_of(first);
        table().prepare_join(first, second.runs.runs());
        if (!second.is_paged_out())
            merge.page_out.emplace(*prepare(op::PageOut<CellSnapshot>{*merge.child, own.place()}));
        Rows& others = merge.page_out ? *merge.page_out->rows : rows_of(second);
        const std::int32_t below = KeptTable::tokens_below(first, second.from);
        merge.rows = make_rows(std::int64_t{below} + second.runs.tokens(), own.place());
        merge.rows->copy_rows(own, 0, below, 0);
        merge.rows->copy_rows(others, 0, second.runs.tokens(), below);
    }

    // The parent is in place: a child that is paged out is paged in.
    Result<void> prepare_joined_cells(Merge& merge) {
        const KeptCells& second = *merge.second;
        if (!second.is_paged_out()) {
            if (state_.book.would_repeat_cells(*merge.first, second)) return Reason::cannot_share;
            table().prepare_join(*merge.first, second.runs.runs());
            return {};
        }
        auto page = prepare(op::PageIn<CellSnapshot>{*merge.child});
        if (!page) return page.error();
        table().prepare_join(*merge.first, table().pieces_of(second, second.runs.tokens()));
        merge.page_in.emplace(*std::move(page));
        return {};
    }

    // What the second phase needs to write n rows to cells.
    typename Rows::Staging prepare_write(const KeptCells& kept, std::int64_t n) {
        if constexpr (ReservesPasses<typename State::Backend>) state_.backend.reserve(n, 0); // the list of cells
        return rows_of(kept).allocate_staging(n);
    }

    State& state_;
};

} // namespace cellar::detail
