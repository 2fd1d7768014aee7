// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../property/matrix.hpp"
#include "cell_members.hpp"
#include "state_member.hpp"
#include "whole.hpp"
#include <cellar/cellar.hpp>

#include <climits>

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace property::hybrid {

// Kinds of members: the type, and functions that make a member and compare it.

/// A cache, with the policies of the suite of single caches.
template <class Layout, class Window, class Shift>
struct Attention {
    using Memory = cellar::Cache<Layout, typename Window::type, typename Shift::type>;
    using Subject = CellSubject<Memory>;

    static Kind kind() { return {Kind::Of::attention, Window::kind, Window::size, Shift::type::possible}; }
    static Memory make(const MemberSetting& m) {
        return Memory{shape_of(layers()), limits_of(m.cells), Window::make(m.cells.setup.window), Shift::make()};
    }
    static std::unique_ptr<Member> member(Subject& subject, const MemberSetting& m, const Trace& trace) {
        const RowSource rows{layers(), Shift::key_shift(rounding_of(typename Layout::key_format{}))};
        return std::make_unique<AttentionMember>(subject, m.cells, rows, trace);
    }
};

template <class Layout>
struct Inputs {
    using Memory = cellar::EncoderMemory<Layout>;

    class Subject final : public CellSubject<Memory, InputSubject> {
        using Base = CellSubject<Memory, InputSubject>;

    public:
        using Base::Base;

        // The memory answers 0 whatever it holds, so the naive model is compared with the newest input.
        int next(int sequence) const override {
            const auto newest = Base::range(sequence);
            return Base::next(sequence) != 0 ? -1 : newest ? newest->second + 1 : 0;
        }

        std::optional<naive::Reason> write(const Batch& inputs, const std::vector<std::vector<Rows>>& rows, int style,
                                           bool committed) override {
            std::vector<cellar::EncoderInput> all;
            for (const naive::NewToken& t : inputs) {
                const bool same = !all.empty() && all.back().sequence.value == t.sequence;
                if (!same) all.push_back({cellar::Sequence{t.sequence}, cellar::Position{t.position}, 0});
                ++all.back().tokens;
            }
            auto pass = all.size() == 1 ? Base::memory().write(all[0].sequence, all[0].position, all[0].tokens)
                                        : Base::memory().write(all);
            if (!pass) return Base::reason_of(pass.error());
            written_.assign(pass->cells().begin(), pass->cells().end());
            if (!committed) return std::nullopt;
            for (int layer = 0; layer < Base::memory().shape().layers; ++layer)
                if (Base::memory().shape()[layer].shares_layer < 0)
                    Base::put_into(*pass, layer, rows[static_cast<std::size_t>(layer)], style);
            pass->commit();
            return std::nullopt;
        }

        std::vector<int> own_cells() const override { return Base::is_open() ? std::vector<int>{} : written_; }

    private:
        std::vector<int> written_;
    };

    static Kind kind() { return {Kind::Of::inputs}; }
    static Memory make(const MemberSetting& m) { return Memory{shape_of(layers()), limits_of(m.cells)}; }
    static std::unique_ptr<Member> member(Subject& subject, const MemberSetting& m, const Trace& trace) {
        return std::make_unique<InputMember>(subject, m.cells, RowSource{layers(), {}}, trace);
    }
};

struct States {
    using Subject = StateSubject;
    using Memory = Subject::Memory;

    static Kind kind() { return {Kind::Of::states}; }
    static Memory make(const MemberSetting& m) {
        return Memory{recurrent_test::shape(), recurrent::limits_of(m.states)};
    }
    static std::unique_ptr<Member> member(Subject& subject, const MemberSetting& m, const Trace& trace) {
        return std::make_unique<StateMember>(subject, m.states, trace);
    }
};

/// `Kinds`: one of the structs above for each member.
template <class Pattern, class... Kinds>
class WholeOf final : public Whole {
    using Memory = cellar::Hybrid<Pattern, typename Kinds::Memory...>;
    using Pass = cellar::PassOf<Memory>;
    template <std::size_t I>
    using KindOf = std::tuple_element_t<I, std::tuple<Kinds...>>;

public:
    WholeOf(int layers, const std::vector<MemberSetting>& settings, const Trace& trace)
        : WholeOf{layers, settings, trace, std::index_sequence_for<Kinds...>{}} {}

    std::vector<std::unique_ptr<Member>> members() override {
        std::vector<std::unique_ptr<Member>> all;
        for_each([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            all.push_back(KindOf<I>::member(std::get<I>(subjects_), settings_[I], trace_));
        });
        return all;
    }

    HybridAnswer begin(const Batch& batch) override {
        auto pass = memory_.begin(OwnedBatch{batch});
        if (!pass) return pass.error();
        join(std::move(*pass));
        return std::nullopt;
    }
    void reserve(int tokens) override { join(memory_.reserve(tokens)); }

    int layers() const override { return memory_.layers(); }

    cellar::LayerPlace visit(int layer) override {
        const cellar::LayerPlace found = pass_->visit(layer, [&](auto& pass, int own) { return place(pass, own); });
        trace_.expect(found == Memory::place(layer), "layer ", layer, " was led to another member than it has");
        return found;
    }

    void commit() override {
        pass_->commit();
        drop();
    }
    void drop() override {
        std::apply([](auto&... subject) { (subject.leave(), ...); }, subjects_);
        pass_.reset();
    }

    HybridAnswer remove(int s, int begin, int end) override {
        return answer(memory_.remove(cellar::Sequence{s}, cellar::Position{begin}, cellar::Position{end}));
    }
    HybridAnswer copy_prefix(int from, int to, int length) override {
        return answer(memory_.copy_prefix(cellar::Sequence{from}, cellar::Sequence{to}, cellar::Position{length}));
    }
    HybridAnswer snapshot(int s, int from, int to) override {
        auto made = memory_.snapshot(cellar::Sequence{s}, cellar::Position{from}, cellar::Position{to});
        if (!made) return made.error();
        trace_.expect(made->to() == (to == INT_MAX ? memory_.next(cellar::Sequence{s}) : cellar::Position{to}),
                      "a snapshot ends at ", made->to().value);
        snapshots_.push_back(*std::move(made));
        return std::nullopt;
    }
    HybridAnswer restore(int s, std::size_t snapshot, int to) override {
        return answer(memory_.restore(cellar::Sequence{s}, snapshots_[snapshot], cellar::Position{to}));
    }
    HybridAnswer rewind(int s, int to) override {
        return answer(memory_.rewind(cellar::Sequence{s}, cellar::Position{to}));
    }
    HybridAnswer reload(std::size_t snapshot) override { return answer(memory_.reload(snapshots_[snapshot])); }
    HybridAnswer schedule(int s, int p) override {
        return answer(memory_.schedule(cellar::Sequence{s}, cellar::Position{p}));
    }
    void unschedule(int s, int p) override { memory_.unschedule(cellar::Sequence{s}, cellar::Position{p}); }
    HybridAnswer merge(std::size_t parent, std::size_t child) override {
        const auto merged = answer(memory_.merge(snapshots_[parent], std::move(snapshots_[child])));
        if (!merged) release(child);
        return merged;
    }
    HybridAnswer split(std::size_t snapshot, int at) override {
        auto tail = memory_.split(snapshots_[snapshot], cellar::Position{at});
        if (!tail) return tail.error();
        trace_.expect(tail->from() == cellar::Position{at}, "the rest of a snapshot begins at ", tail->from().value);
        snapshots_.push_back(*std::move(tail));
        return std::nullopt;
    }
    void offload(std::size_t snapshot, cellar::OffloadTo to) override { memory_.offload(snapshots_[snapshot], to); }
    void release(std::size_t snapshot) override {
        snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(snapshot));
    }
    bool can_resume(int s, int p) const override {
        return memory_.can_resume(cellar::Sequence{s}, cellar::Position{p});
    }
    int next(int s) const override { return memory_.next(cellar::Sequence{s}).value; }
    int resumable_prefix(int s, int p) const override {
        return memory_.resumable_prefix(cellar::Sequence{s}, cellar::Position{p}).value;
    }
    void defragment() override { memory_.defragment(); }

private:
    template <std::size_t... I>
    WholeOf(int layers, const std::vector<MemberSetting>& settings, const Trace& trace, std::index_sequence<I...>)
        : trace_{trace},
          settings_{settings},
          memory_{layers, Kinds::make(settings[I])...},
          subjects_{memory_.template member<static_cast<int>(I)>()...} {}

    template <class F>
    static void for_each(F f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (f(std::integral_constant<std::size_t, I>{}), ...);
        }
        (std::index_sequence_for<Kinds...>{});
    }

    void join(Pass pass) {
        pass_.emplace(std::move(pass));
        std::apply([&](auto&... subject) { (subject.join(pass_->template of<typename Kinds::Memory>()), ...); },
                   subjects_);
    }

    cellar::LayerPlace place(const cellar::NoMemory&, int own) const { return {cellar::no_memory, own}; }
    template <class P>
    cellar::LayerPlace place(const P& pass, int own) const {
        cellar::LayerPlace found{-1, own};
        for_each([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
            if constexpr (std::is_same_v<typename KindOf<I>::Subject::Pass, P>)
                if (std::get<I>(subjects_).is_in(pass)) found.member = static_cast<int>(I);
        });
        return found;
    }

    static HybridAnswer answer(const cellar::Result<void>& result) {
        return result ? std::nullopt : std::optional{result.error()};
    }

    const Trace& trace_;
    const std::vector<MemberSetting> settings_;
    Memory memory_;
    std::vector<cellar::SnapshotOf<Memory>> snapshots_;
    std::tuple<typename Kinds::Subject...> subjects_;
    std::optional<Pass> pass_;
};

} // namespace property::hybrid
