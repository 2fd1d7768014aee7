// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/page_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/slot_copy.hpp>
#include <cellar/memory/stored_snapshot.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/recurrent/detail/kept_slot.hpp>
#include <cellar/recurrent/detail/paged_state.hpp>
#include <cellar/recurrent/detail/state_table.hpp>
#include <cellar/recurrent/detail/stored_state.hpp>
#include <cellar/recurrent/state_snapshot.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cellar::detail {

/// The operations of a recurrent memory that make, use or change snapshots, in their two phases.
template <class State>
class StateSnapshots {
    using Paged = PagedState<typename State::States, typename State::Backend>;

public:
    explicit StateSnapshots(State& state) : state_{state} {}

    struct Keep {
        Sequence sequence;
        KeptSlotPointer kept;
    };
    struct Restore {
        Sequence sequence;
        const KeptSlot* kept;
        typename Paged::Transfer transfer{}; // of a state that is paged out
    };
    struct PageOut {
        KeptSlot* kept;
        UnownedData<Paged> data; // null if it is paged out already
    };
    struct PageIn {
        KeptSlot* kept;
        typename Paged::Transfer transfer{};
    };

    Result<Keep> prepare(const op::Snapshot& snapshot) {
        const Sequence s = snapshot.sequence;
        const Position from = snapshot.from;
        state_.expect_no_pass("snapshot");
        const Position to = snapshot.to == to_end ? table().states(s).next() : snapshot.to;
        CELLAR_EXPECTS(from.value >= 0 && from <= to, "snapshot: positions [", from, ", ", to, ") of sequence ", s,
                       ", expected 0 <= from <= to");
        auto kept = table().prepare_snapshot(s, to);
        if (!kept) return kept.error();
        return Keep{s, *std::move(kept)};
    }
    StateSnapshot finish(Keep&& keep) noexcept {
        table().finish_snapshot(keep.sequence, *keep.kept);
        return StateSnapshot{std::move(keep.kept)};
    }

    Result<Restore> prepare(const op::Restore<StateSnapshot>& operation) {
        const Sequence s = operation.sequence;
        const Position to = operation.to;
        state_.expect_no_pass("restore");
        const auto& kept = operation.snapshot.kept_in(table(), "restore");
        CELLAR_EXPECTS(table().has(s), "sequence ", s, ", expected 0 to ", table().limits().sequences - 1);
        CELLAR_EXPECTS(to.value >= 0 && to <= kept.to, "restore: position ", to, ", expected 0 to ", kept.to,
                       ", within the snapshot");
        if (to != kept.to) return Reason::cannot_rewind;
        table().prepare_restore(s);
        return Restore{s, &kept, prepare_write(kept)};
    }
    void finish(Restore&& restore) noexcept {
        const Slot slot = table().finish_restore(restore.sequence, *restore.kept);
        if (restore.kept->is_paged_out()) paged(*restore.kept).write(slot, std::move(restore.transfer));
    }

    Result<PageOut> prepare(const op::PageOut<StateSnapshot>& operation) {
        state_.expect_no_pass("page_out");
        auto& kept = operation.snapshot.kept_in(table(), "page_out");
        if (kept.is_paged_out()) return PageOut{&kept, nullptr};
        table().prepare_page_out();
        const bool is_empty = kept.to == Position{0};
        PageOut page{&kept,
                     UnownedData<Paged>{new Paged{state_.backend, state_.store, state_.shape, operation.to, is_empty}}};
        page.data->read(kept.slot, page.data->prepare(true));
        return page;
    }
    void finish(PageOut&& page) noexcept {
        if (page.data == nullptr) return;
        std::unique_ptr<PagedData> data{page.data.release()};
        table().finish_page_out(*page.kept, std::move(data));
    }

    Result<PageIn> prepare(const op::PageIn<StateSnapshot>& operation) {
        state_.expect_no_pass("page_in");
        auto& kept = operation.snapshot.kept_in(table(), "page_in");
        if (!kept.is_paged_out()) return PageIn{&kept};
        if (const Result<void> prepared = table().prepare_page_in(); !prepared) return prepared.error();
        return PageIn{&kept, prepare_write(kept)};
    }
    void finish(PageIn&& page) noexcept {
        KeptSlot& kept = *page.kept;
        if (!kept.is_paged_out()) return;
        table().finish_page_in(kept);
        paged(kept).write(kept.slot, std::move(page.transfer));
        kept.data->finish_work();
        kept.data = nullptr;
    }

    Result<op::Merge<StateSnapshot>> prepare(const op::Merge<StateSnapshot>& merge) {
        state_.expect_no_pass("merge");
        const auto& first = merge.parent.kept_in(table(), "merge");
        const auto& second = merge.child.kept_in(table(), "merge");
        CELLAR_EXPECTS(&first != &second, "merge: the snapshots are one and the same, expected two");
        CELLAR_EXPECTS(second.to >= first.to, "merge: the child ends at position ", second.to, ", expected at least ",
                       first.to, ", where the parent ends");
        return merge;
    }
    void finish(op::Merge<StateSnapshot>&& merge) noexcept { merge.parent = std::move(merge.child); }

    Result<StateSnapshot> prepare(const op::Split<StateSnapshot>& split) {
        state_.expect_no_pass("split");
        static_cast<void>(split.snapshot.kept_in(table(), "split"));
        return Reason::cannot_split;
    }
    StateSnapshot finish(StateSnapshot&& rest) noexcept { return std::move(rest); } // never called: nothing is split

    void save(const StateSnapshot& snapshot, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("save");
        const KeptSlot& kept = snapshot.kept_in(table(), "save");
        const auto on_host = [this_state = &state_, &kept,
                              copy = std::make_shared<std::unique_ptr<Paged>>()]() -> Paged& {
            if (*copy == nullptr && !(kept.is_paged_out() && paged(kept).is_on_host()))
                *copy = copy_to_host(*this_state, kept);
            this_state->backend.fence();
            return *copy != nullptr ? **copy : paged(kept);
        };
        StoredState<typename State::States, typename State::Backend>{state_.shape}.save(kept.to, on_host, prefix,
                                                                                        stored);
    }

    void save_ahead(Position to, const std::string& prefix, StoredSnapshot& stored) {
        state_.expect_no_pass("send_ahead");
        StoredState<typename State::States, typename State::Backend>{state_.shape}.save_ahead(to, prefix, stored);
    }

    struct Loaded {
        KeptSlotPointer kept;
        UnownedData<Paged> data;
    };
    Checked<Loaded> prepare(const Load& operation) {
        auto& source = operation.source;
        const std::string& prefix = operation.prefix;
        state_.expect_no_pass("load");
        StoredState<typename State::States, typename State::Backend> stored{state_.shape};
        if (auto suits = stored.check(source, prefix); !suits) return std::move(suits).error();
        const Position to{static_cast<std::int32_t>(*source.number(prefix + "to"))};
        const bool is_empty = to == Position{0};
        Loaded load{KeptSlotPointer{new KeptSlot{.to = to, .data = nullptr}},
                    UnownedData<Paged>{new Paged{state_.backend, state_.store, state_.shape, PageTo::host, is_empty}}};
        if (!is_empty) stored.add_arrays([&data = *load.data]() -> Paged& { return data; }, prefix, operation.arrays);
        table().prepare_page_out();
        return load;
    }
    StateSnapshot finish(Loaded&& load) noexcept {
        std::unique_ptr<PagedData> data{load.data.release()};
        table().finish_adopt(*load.kept, std::move(data));
        return StateSnapshot{std::move(load.kept)};
    }

private:
    StateTable& table() { return state_.book.table(); }

    // A state in place, or paged out to memory that the host cannot reach.
    static std::unique_ptr<Paged> copy_to_host(State& state, const KeptSlot& kept) {
        auto copy = std::make_unique<Paged>(state.backend, state.store, state.shape, PageTo::host, false);
        kept.is_paged_out() ? copy->assign_from_backend(paged(kept)) : copy->read(kept.slot, copy->prepare(true));
        return copy;
    }

    static Paged& paged(const KeptSlot& kept) { return static_cast<Paged&>(*kept.data); }
    static typename Paged::Transfer prepare_write(const KeptSlot& kept) {
        return kept.is_paged_out() ? paged(kept).prepare(false) : typename Paged::Transfer{};
    }

    State& state_;
};

} // namespace cellar::detail
