// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "rows.hpp"
#include "setting.hpp"
#include "subject.hpp"
#include <cellar/cache/cache.hpp>
#include <cellar/cache/encoder_memory.hpp>
#include <cellar/memory/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace property {

/// A `cellar::Batch` that owns its arrays.
class OwnedBatch {
public:
    explicit OwnedBatch(const std::vector<naive::NewToken>& tokens) {
        for (const naive::NewToken& t : tokens) {
            positions_.push_back(t.position);
            sequences_.push_back(t.sequence);
            groups_.push_back(t.group);
            stored_.push_back(t.stored ? 1 : 0);
        }
        if (naive::stored_in(tokens) == static_cast<int>(tokens.size())) stored_.clear();
        const bool any = std::any_of(groups_.begin(), groups_.end(), [](int group) { return group >= 0; });
        if (!any) groups_.clear();
    }
    operator cellar::Batch() const { return {positions_, sequences_, groups_, stored_}; }

private:
    std::vector<int> positions_;
    std::vector<int> sequences_;
    std::vector<int> groups_;
    std::vector<std::uint8_t> stored_;
};

/// Adapts a memory with cells, which the caller owns, to the suite's interface. `style` picks one of several equivalent
/// calls.
template <class Memory, class Base = Subject>
class CellSubject : public Base {
    using Layout = typename Memory::layout_type;
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;

public:
    using Pass = cellar::PassOf<Memory>;

    explicit CellSubject(Memory& memory) : memory_{memory} {}

    /// Works on a pass that the caller has opened, until `leave`.
    void join(Pass& pass) { pass_ = &pass; }
    void leave() { pass_ = nullptr; }
    bool is_in(const Pass& pass) const { return &pass == pass_; }

    int cells() const override { return static_cast<int>(memory_.cells()); }
    int allocated_cells() const override { return memory_.statistics().allocated; }

    int free_cells() const override { return memory_.free_cells(); }
    int cells_freed_by(int sequence) const override { return memory_.cells_freed_by(cellar::Sequence{sequence}); }
    int cells_needed(const std::vector<naive::NewToken>& batch) override {
        return memory_.cells_needed(OwnedBatch{batch});
    }

    std::optional<naive::Reason> begin(const std::vector<naive::NewToken>& batch) override {
        auto pass = memory_.begin(OwnedBatch{batch});
        if (!pass) return reason_of(pass.error());
        open(std::move(*pass));
        return std::nullopt;
    }

    void reserve(int tokens) override { open(memory_.reserve(tokens)); }

    void put(int layer, const std::vector<Rows>& rows, int style) override {
        if constexpr (writes) put_into(*pass_, layer, rows, style);
    }

    std::pair<int, int> history() const override { return {pass_->history().first, pass_->history().count}; }
    std::vector<int> own_cells() const override {
        if constexpr (writes) {
            const auto cells = pass_->cells();
            return {cells.begin(), cells.end()};
        } else {
            return {};
        }
    }

    void read_mask(int style, std::vector<std::vector<bool>>& visible) override {
        const bool into = style / 3 % 2 == 1;
        if (style % 3 == 0) read_mask_of(into ? own_mask<float>() : pass_->template mask<float>(), visible);
        if (style % 3 == 1)
            read_mask_of(into ? own_mask<cellar::half>() : pass_->template mask<cellar::half>(), visible);
        if (style % 3 == 2) read_mask_of(into ? own_mask<bool>() : pass_->template mask<bool>(), visible);
    }

    std::vector<std::pair<int, int>> visible(int token) override {
        std::vector<std::pair<int, int>> runs;
        for (const cellar::CellRange& run : pass_->visible(token)) runs.emplace_back(run.first, run.count);
        return runs;
    }

    std::vector<CellList> lists() override {
        std::vector<CellList> all;
        // Lists in the memory of a device are read where they lie: here, the host reads that memory.
        using Backend = typename Memory::backend_type;
        if constexpr (Backend::host_reaches || cellar::WritesLists<Backend>) {
            const cellar::CellLists lists = pass_->lists();
            const cellar::CompressedLists compressed = lists.compressed();
            for (int r = 0; r < lists.rows(); ++r) {
                CellList& list = all.emplace_back(CellList{lists.sequence(r).value, {}});
                const int first = compressed.indptr[static_cast<std::size_t>(r)];
                for (std::size_t i = 0; i < lists.cells(r).size(); ++i)
                    list.cells.emplace_back(lists.positions(r)[i],
                                            compressed.indices[static_cast<std::size_t>(first) + i]);
            }
        }
        return all;
    }

    void read(int layer, int column, Rows& rows) const override {
        const cellar::LayerShape& shape = memory_.shape()[layer];
        if constexpr (!has_elements) {
            rows.key.resize(static_cast<std::size_t>(shape.kv_heads * shape.key_dim));
            rows.value.resize(static_cast<std::size_t>(shape.kv_heads * shape.value_dim));
            const cellar::Cell cell = pass_->history().first + column;
            pass_->gather(layer, {&cell, 1}, cellar::contiguous_view(rows.key.data(), 1, shape.kv_heads, shape.key_dim),
                          cellar::contiguous_view(rows.value.data(), 1, shape.kv_heads, shape.value_dim));
        } else {
            read_in_place(layer, column, rows);
        }
    }

    void commit() override {
        pass_->commit();
        drop();
    }
    void drop() override {
        own_.reset();
        leave();
    }

    bool can_rotate_by() const override { return rotates; }
    std::optional<naive::Reason> remove(int sequence, int begin, int end, int rotate_by) override {
        const auto done = [&] {
            if constexpr (rotates)
                if (rotate_by >= 0)
                    return memory_.remove(cellar::Sequence{sequence}, cellar::Position{begin}, cellar::Position{end},
                                          cellar::RotateBy{rotate_by});
            return memory_.remove(cellar::Sequence{sequence}, cellar::Position{begin}, cellar::Position{end});
        }();
        return done ? std::nullopt : std::optional{reason_of(done.error())};
    }
    std::optional<naive::Reason> copy_prefix(int from, int to, int length) override {
        const auto done = memory_.copy_prefix(cellar::Sequence{from}, cellar::Sequence{to}, cellar::Position{length});
        return done ? std::nullopt : std::optional{reason_of(done.error())};
    }
    bool can_resume(int sequence, int position) const override {
        return memory_.can_resume(cellar::Sequence{sequence}, cellar::Position{position});
    }
    int resumable_prefix(int sequence, int position) const override {
        return memory_.resumable_prefix(cellar::Sequence{sequence}, cellar::Position{position}).value;
    }
    int altered_from(int sequence) const override {
        return cellar::detail::altered_from(memory_, cellar::Sequence{sequence}).value;
    }
    int next(int sequence) const override { return memory_.next(cellar::Sequence{sequence}).value; }
    std::vector<std::pair<int, int>> cells_of(int sequence) const override {
        std::vector<std::pair<int, int>> found;
        memory_.visit_cells(cellar::Sequence{sequence}, [&](cellar::Position p, cellar::Cell cell, int count) {
            for (int i = 0; i < count; ++i) found.emplace_back(p.value + i, cell + i);
        });
        return found;
    }

    bool can_snapshot() const override { return snapshots; }
    std::optional<naive::Reason> snapshot(int sequence, int from, int to) override {
        if constexpr (snapshots) {
            auto made = memory_.snapshot(cellar::Sequence{sequence}, cellar::Position{from}, cellar::Position{to});
            if (!made) return reason_of(made.error());
            snapshots_.push_back(*std::move(made));
        }
        return std::nullopt;
    }
    std::optional<naive::Reason> restore(int sequence, std::size_t snapshot, int to) override {
        if constexpr (snapshots) {
            const auto done = memory_.restore(cellar::Sequence{sequence}, snapshots_[snapshot], cellar::Position{to});
            if (!done) return reason_of(done.error());
        }
        return std::nullopt;
    }
    std::optional<naive::Reason> rewind(int sequence, int to) override {
        if constexpr (snapshots) {
            const auto done = memory_.rewind(cellar::Sequence{sequence}, cellar::Position{to});
            if (!done) return reason_of(done.error());
        }
        return std::nullopt;
    }
    std::optional<naive::Reason> split(std::size_t snapshot, int at) override {
        if constexpr (snapshots) {
            auto tail = memory_.split(snapshots_[snapshot], cellar::Position{at});
            if (!tail) return reason_of(tail.error());
            snapshots_.push_back(*std::move(tail));
        }
        return std::nullopt;
    }
    std::optional<naive::Reason> merge(std::size_t parent, std::size_t child) override {
        if constexpr (snapshots) {
            const auto done = memory_.merge(snapshots_[parent], std::move(snapshots_[child]));
            if (!done) return reason_of(done.error());
            release(child);
        }
        return std::nullopt;
    }
    void offload(std::size_t snapshot, int style) override {
        const auto to = style % 2 == 0 ? cellar::OffloadTo::host : cellar::OffloadTo::backend;
        if constexpr (snapshots) memory_.offload(snapshots_[snapshot], to);
    }
    std::optional<naive::Reason> reload(std::size_t snapshot) override {
        if constexpr (snapshots) {
            const auto done = memory_.reload(snapshots_[snapshot]);
            if (!done) return reason_of(done.error());
        }
        return std::nullopt;
    }
    void release(std::size_t snapshot) override {
        snapshots_.erase(snapshots_.begin() + static_cast<std::ptrdiff_t>(snapshot));
    }
    void schedule(int sequence, int position) override {
        if constexpr (schedules) memory_.schedule(cellar::Sequence{sequence}, cellar::Position{position}).has_value();
    }
    void unschedule(int sequence, int position) override {
        if constexpr (schedules) memory_.unschedule(cellar::Sequence{sequence}, cellar::Position{position});
    }
    SnapshotState snapshot_state(std::size_t snapshot) const override {
        const cellar::CellSnapshot& s = snapshots_[snapshot];
        return {s.from().value, s.to().value, s.tokens(), s.altered_from().value};
    }

    void defragment() override { memory_.defragment(); }
    int tokens(int sequence) const override { return memory_.tokens(cellar::Sequence{sequence}); }
    std::optional<std::pair<int, int>> range(int sequence) const override {
        const auto range = memory_.range(cellar::Sequence{sequence});
        if (!range) return std::nullopt;
        return std::pair{range->first.value, range->last.value};
    }
    Counts counts() const override {
        const cellar::CacheStatistics s = memory_.statistics();
        const bool stays = memory_.limits().placement != cellar::Placement::contiguous;
        return {s.cells - s.free,
                s.shared,
                s.sequences,
                static_cast<int>(s.tokens),
                stays ? s.longest_free_run : 0,
                s.snapshots,
                static_cast<int>(s.snapshot_tokens),
                s.offloaded,
                static_cast<int>(s.offloaded_bytes / bytes_per_token())};
    }

protected:
    static naive::Reason reason_of(cellar::Refusal refusal) {
        switch (refusal.reason) {
        case cellar::Reason::full:
            return naive::Reason::full;
        case cellar::Reason::cannot_shift:
            return naive::Reason::cannot_shift;
        case cellar::Reason::not_next:
            return naive::Reason::not_next;
        case cellar::Reason::cannot_resume:
            return naive::Reason::cannot_resume;
        case cellar::Reason::cannot_split:
            return naive::Reason::cannot_split;
        case cellar::Reason::cannot_share:
            return naive::Reason::cannot_share;
        default:
            return naive::Reason::batch_too_long;
        }
    }

    Memory& memory() { return memory_; }
    bool is_open() const { return pass_ != nullptr; }

    template <class Into>
    void put_into(Into& pass, int layer, const std::vector<Rows>& rows, int style) const {
        if constexpr (has_elements)
            if (style % 2 != 0) return put_as<Key, Value>(pass, layer, rows, style / 2 % 3);
        put_as<float, float>(pass, layer, rows, style / 2 % 3);
    }

private:
    void read_in_place(int layer, int column, Rows& rows) const {
        const cellar::LayerShape& shape = memory_.shape()[layer];
        rows.key.clear();
        rows.value.clear();
        const auto read = [&](const auto& keys, const auto& values, int row) {
            for (int h = 0; h < shape.kv_heads; ++h) {
                for (int d = 0; d < shape.key_dim; ++d) rows.key.push_back(static_cast<float>(keys(row, h, d)));
                for (int d = 0; d < shape.value_dim; ++d) rows.value.push_back(static_cast<float>(values(row, h, d)));
            }
        };
        if (column % 2 == 0) return read(pass_->keys(layer), pass_->values(layer), column);
        const auto all = std::as_const(memory_).rows(layer);
        read(all.keys, all.values, pass_->history().first + column);
    }

    static constexpr bool has_elements = cellar::Element<Key> && cellar::Element<Value>;
    static constexpr bool writes = requires(const Pass& pass) { pass.cells(); };
    static constexpr bool snapshots = requires(Memory & m) { m.snapshot({}); };
    static constexpr bool schedules = requires(Memory & m) { m.unschedule({}, {}); };
    static constexpr bool rotates = requires(Memory & m) { m.remove({}, {}, {}, cellar::RotateBy{}); };

    std::int64_t bytes_per_token() const {
        return std::max<std::int64_t>(memory_.bytes() / memory_.statistics().allocated, 1);
    }

    void open(Pass pass) { join(own_.emplace(std::move(pass))); }

    /// Passes rows as a span, as a dense view, or as a view with gaps between all elements.
    template <class K, class V, class Into>
    void put_as(Into& pass, int layer, const std::vector<Rows>& rows, int style) const {
        const cellar::LayerShape& shape = memory_.shape()[layer];
        const int gap = style == 2 ? 3 : 1;
        std::vector<K> k;
        std::vector<V> v;
        for (const Rows& row : rows) {
            append(k, row.key, gap);
            append(v, row.value, gap);
        }
        if (style == 0) {
            pass.put(layer, std::span<const K>{k}, std::span<const V>{v});
        } else {
            pass.put(layer, view(k, rows.size(), shape.kv_heads, shape.key_dim, gap),
                     view(v, rows.size(), shape.kv_heads, shape.value_dim, gap));
        }
    }

    template <class T>
    static void append(std::vector<T>& to, const std::vector<float>& row, int gap) {
        for (const float x : row) {
            to.push_back(static_cast<T>(x));
            for (int i = 1; i < gap; ++i) to.push_back(static_cast<T>(-1000.0F));
        }
    }

    template <class T>
    static cellar::StridedView<const T, 3> view(const std::vector<T>& data, std::size_t tokens, int heads, int dim,
                                                int gap) {
        cellar::StridedView<const T, 3> rows = cellar::contiguous_view(data.data(), tokens, heads, dim);
        for (std::int64_t& stride : rows.strides) stride *= gap;
        return rows;
    }

    /// The mask in memory of the program's own, with a gap behind each row.
    template <class T>
    cellar::StridedView<const T, 2> own_mask() {
        const std::int64_t tokens = pass_->tokens();
        const std::int64_t columns = pass_->history().count;
        mask_.resize(static_cast<std::size_t>(tokens * (columns + 7)) * sizeof(T));
        const cellar::StridedView<T, 2> mask{
            reinterpret_cast<T*>(mask_.data()), {tokens, columns + 3}, {columns + 7, 1}};
        pass_->mask_into(mask);
        for (std::int64_t t = 0; t < tokens; ++t)
            for (std::int64_t c = columns; c < columns + 3; ++c)
                if (is_visible(mask(t, c))) throw std::runtime_error{"a column behind the history is visible"};
        return {mask.pointer, {tokens, columns}, {columns + 7, 1}};
    }

    template <class T>
    static void read_mask_of(cellar::StridedView<const T, 2> mask, std::vector<std::vector<bool>>& visible) {
        visible.assign(static_cast<std::size_t>(mask.extent(0)), {});
        for (std::int64_t t = 0; t < mask.extent(0); ++t)
            for (std::int64_t c = 0; c < mask.extent(1); ++c)
                visible[static_cast<std::size_t>(t)].push_back(is_visible(mask(t, c)));
    }
    static bool is_visible(bool value) { return value; }
    template <class T>
    static bool is_visible(T value) {
        const float x = static_cast<float>(value);
        if (x != 0 && !(x < -3e38F)) throw std::runtime_error{"the mask is neither 0 nor -inf"};
        return x == 0;
    }

    Memory& memory_;
    std::vector<cellar::CellSnapshot> snapshots_;
    std::vector<std::byte> mask_;
    std::optional<Pass> own_;
    Pass* pass_ = nullptr;
};

inline cellar::CacheShape shape_of(const std::vector<Layer>& layers) {
    std::vector<cellar::LayerShape> shapes;
    for (const Layer& l : layers) shapes.push_back({l.heads, l.key_dim, l.value_dim, l.shares_layer});
    return cellar::CacheShape{.each_layer = std::move(shapes)};
}

inline cellar::CacheLimits limits_of(const Setting& s) {
    return {.sequences = s.setup.sequences,
            .capacity = s.setup.capacity,
            .initial_cells = s.initial_cells,
            .batch = s.setup.batch,
            .padding = s.setup.padding,
            .start_padding = s.start_padding,
            .placement = s.placement,
            .positions = s.setup.consecutive ? cellar::Positions::consecutive : cellar::Positions::any};
}

template <class Cache>
struct OwnCache {
    Cache cache;
};

/// A subject that owns its cache.
template <class Cache>
class CacheSubject final : OwnCache<Cache>, public CellSubject<Cache> {
public:
    explicit CacheSubject(Cache own) : OwnCache<Cache>{std::move(own)}, CellSubject<Cache>{OwnCache<Cache>::cache} {}
};

} // namespace property
