// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/result.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/kept_table.hpp>
#include <cellar/cache/cell_snapshot.hpp>
#include <cellar/cache/detail/stored_cells.hpp>
#include <cellar/cache/detail/tiered_rows.hpp>
#include <cellar/memory/operations.hpp>
#include <cellar/memory/snapshots.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace cellar::detail {

template <class State>
using SnapshotsOfCells = Snapshots<State, typename State::Book, CellSnapshot,
                                   TieredRows<typename State::Store, typename State::Backend>, StoredCells<State>>;

/// The operations of a cache with snapshots. Those of consecutive tokens can be joined, and divided.
template <class State>
class CellSnapshots : public SnapshotsOfCells<State> {
    using Base = SnapshotsOfCells<State>;
    using typename Base::Offload;
    using typename Base::Offloaded;
    using typename Base::Reload;

public:
    explicit CellSnapshots(State& state) : Base{state, state.book} {}

    using Base::finish;
    using Base::prepare;

    struct Merge {
        CellSnapshot* parent;
        CellSnapshot* child;
        KeptCells* first;
        KeptCells* second;
        bool replaces;                    ///< the child takes the place of the parent
        std::optional<Offload> offload{}; ///< of the child, to where the parent is
        std::optional<Reload> reload{};
        UnownedData<Offloaded> rows{}; ///< of both, if the parent is offloaded
        KeptCellsPointer dropped{};    ///< what a parent without an end has from where the child begins
        UnownedData<Offloaded> no_rows{};
    };
    Result<Merge> prepare(const op::Merge<CellSnapshot>& operation) {
        const auto& [parent, child] = operation;
        state_.expect_no_pass("merge");
        KeptCells& first = kept_of(parent, "merge");
        KeptCells& second = kept_of(child, "merge");
        CELLAR_EXPECTS(&first != &second, "merge: the snapshots are one and the same, expected two");
        const bool is_within = state_.holds_inputs && first.to == to_end && second.from >= first.from;
        CELLAR_EXPECTS(second.from == first.to || is_within || (second.from == Position{0} && second.to >= first.to),
                       "merge: the child is of positions [", second.from, ", ", second.to,
                       "), expected it to begin at ", first.to, ", where the parent ends");
        Merge merge{&parent, &child, &first, &second, second.from == Position{0}};
        if (merge.replaces) return merge;
        if (second.from < first.to) prepare_drop(merge);
        if (first.is_offloaded()) {
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
        if (merge.offload) finish(*std::move(merge.offload));
        if (merge.reload) finish(*std::move(merge.reload));
        table().finish_join(*merge.first, *merge.second);
        if (merge.rows != nullptr) replace_data(*merge.first, std::move(merge.rows));
        const CellSnapshot emptied = std::move(*merge.child);
    }

    struct Split {
        KeptCells* kept;
        KeptCellsPointer tail;
        UnownedData<Offloaded> rows_of_head{}; ///< null if it is in place
        UnownedData<Offloaded> rows_of_tail{};
    };
    Result<Split> prepare(const op::Split<CellSnapshot>& operation) {
        const Position at = operation.at;
        state_.expect_no_pass("split");
        KeptCells& kept = kept_of(operation.snapshot, "split");
        CELLAR_EXPECTS(kept.from <= at && at <= kept.to, "split: position ", at, ", expected ", kept.from, " to ",
                       kept.to);
        if (kept.is_window) return Reason::cannot_split;
        Split split{&kept, table().prepare_split(kept, at)};
        if (!kept.is_offloaded()) return split;
        const std::int32_t below = KeptTable::tokens_below(kept, at);
        split.rows_of_head = make_offloaded(below, offloaded(kept).place());
        split.rows_of_tail = make_offloaded(kept.runs.tokens() - below, offloaded(kept).place());
        split.rows_of_head->copy_rows(offloaded(kept), 0, below, 0);
        split.rows_of_tail->copy_rows(offloaded(kept), below, kept.runs.tokens() - below, 0);
        return split;
    }
    CellSnapshot finish(Split&& split) noexcept {
        split.tail->data.reset(split.rows_of_tail.release());
        table().finish_split(*split.kept, *split.tail);
        if (split.rows_of_head != nullptr) replace_data(*split.kept, std::move(split.rows_of_head));
        return CellSnapshot{std::move(split.tail)};
    }

private:
    using Base::book;
    using Base::kept_of;
    using Base::make_offloaded;
    using Base::offloaded;
    using Base::state_;
    using Base::table;

    // The work that copies from the old data is done when it returns.
    static void replace_data(KeptCells& kept, UnownedData<Offloaded> rows) noexcept {
        rows->finish_work();
        kept.data.reset(rows.release());
    }

    void prepare_drop(Merge& merge) {
        merge.dropped = table().prepare_split(*merge.first, merge.second->from);
        if (merge.first->is_offloaded()) merge.no_rows = make_offloaded(0, offloaded(*merge.first).place());
    }
    void finish_drop(Merge& merge) noexcept {
        merge.dropped->data.reset(merge.no_rows.release());
        table().finish_split(*merge.first, *merge.dropped);
        merge.dropped.reset();
    }

    // The parent is offloaded: the rows of the child follow its own, in a larger block.
    void prepare_joined_rows(Merge& merge) {
        KeptCells& first = *merge.first;
        KeptCells& second = *merge.second;
        Offloaded& own = offloaded(first);
        table().prepare_join(first, second.runs.runs());
        if (!second.is_offloaded()) merge.offload.emplace(Base::prepare_offload(*merge.child, own.place()));
        Offloaded& others = merge.offload ? *merge.offload->data : offloaded(second);
        const std::int32_t below = KeptTable::tokens_below(first, second.from);
        merge.rows = make_offloaded(std::int64_t{below} + second.runs.tokens(), own.place());
        merge.rows->copy_rows(own, 0, below, 0);
        merge.rows->copy_rows(others, 0, second.runs.tokens(), below);
    }

    // The parent is in place: a child that is offloaded is reloaded.
    Result<void> prepare_joined_cells(Merge& merge) {
        const KeptCells& second = *merge.second;
        if (!second.is_offloaded()) {
            if (book().would_repeat_cells(*merge.first, second)) return Reason::cannot_share;
            table().prepare_join(*merge.first, second.runs.runs());
            return {};
        }
        auto page = prepare(op::Reload<CellSnapshot>{*merge.child});
        if (!page) return page.error();
        table().prepare_join(*merge.first, table().pieces_of(second, second.runs.tokens()));
        merge.reload.emplace(*std::move(page));
        return {};
    }
};

} // namespace cellar::detail
