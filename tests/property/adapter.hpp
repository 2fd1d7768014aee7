// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "rows.hpp"
#include "setting.hpp"
#include "subject.hpp"
#include <cellar/cache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace property {

/// A cache of any policies behind the suite's interface. `style` picks among the ways in which the
/// same can be said.
template <class Layout, class Window, class Shift, class Backend>
class Adapter final : public Subject {
    using Cache = cellar::Cache<Layout, Window, Shift, Backend>;
    using Pass = std::remove_cvref_t<decltype(std::declval<Cache&>().reserve(1))>;
    using Key = typename Layout::key_element;
    using Value = typename Layout::value_element;

public:
    Adapter(const std::vector<Layer>& layers, const Setting& setting, Window window, Shift shift)
        : layers_{layers}, cache_{shape(layers), limits(setting), window, std::move(shift)} {}

    int cells() const override { return static_cast<int>(cache_.cells()); }

    std::optional<naive::No> begin(const std::vector<naive::NewToken>& batch) override {
        std::vector<cellar::Position> positions;
        std::vector<cellar::Sequence> sequences;
        const std::unique_ptr<bool[]> flags{new bool[batch.size() + 1]{}};
        for (std::size_t i = 0; i < batch.size(); ++i) {
            positions.push_back({batch[i].position});
            sequences.push_back({batch[i].sequence});
            flags[i] = batch[i].bidirectional;
        }
        const std::span<const bool> all{flags.get(), batch.size()};
        const bool any = std::any_of(all.begin(), all.end(), [](bool flag) { return flag; });
        auto pass = cache_.begin({positions, sequences, any ? all : std::span<const bool>{}});
        if (!pass) return no(pass.error());
        static_cast<void>(pass_.emplace(std::move(*pass)));
        return std::nullopt;
    }

    void reserve(int tokens) override { static_cast<void>(pass_.emplace(cache_.reserve(tokens))); }

    void put(int layer, const std::vector<Rows>& rows, int style) override {
        style % 2 == 0 ? put_as<float, float>(layer, rows, style / 2 % 3)
                       : put_as<Key, Value>(layer, rows, style / 2 % 3);
    }

    std::pair<int, int> history() const override { return {pass_->history().first, pass_->history().count}; }
    std::vector<int> own_cells() const override {
        const auto cells = pass_->cells();
        return {cells.begin(), cells.end()};
    }

    void read_mask(int style, std::vector<std::vector<bool>>& visible) override {
        if (style % 3 == 0) read_mask_of(pass_->template mask<float>(), visible);
        if (style % 3 == 1) read_mask_of(pass_->template mask<cellar::half>(), visible);
        if (style % 3 == 2) read_mask_of(pass_->template mask<bool>(), visible);
    }

    void read(int layer, int column, Rows& rows) const override {
        const Layer& shape = layers_[static_cast<std::size_t>(layer)];
        const auto keys = pass_->keys(layer);
        const auto values = pass_->values(layer);
        rows.key.clear();
        rows.value.clear();
        for (int h = 0; h < shape.heads; ++h) {
            for (int d = 0; d < shape.key_dim; ++d) rows.key.push_back(static_cast<float>(keys(column, h, d)));
            for (int d = 0; d < shape.value_dim; ++d)
                rows.value.push_back(static_cast<float>(permuted ? values(h, d, column) : values(column, h, d)));
        }
    }

    void commit() override {
        pass_->commit();
        pass_.reset();
    }
    void drop() override { pass_.reset(); }

    std::optional<naive::No> remove(int sequence, int begin, int end) override {
        const auto done = cache_.remove({sequence}, {begin}, {end});
        return done ? std::nullopt : std::optional{no(done.error())};
    }
    void copy_prefix(int from, int to, int length) override { cache_.copy_prefix({from}, {to}, length); }
    bool can_resume(int sequence, int position) const override { return cache_.can_resume({sequence}, {position}); }
    int resumable_prefix(int sequence, int position) const override {
        return cache_.resumable_prefix({sequence}, {position}).value;
    }
    void defragment() override { cache_.defragment(); }
    int tokens(int sequence) const override { return cache_.tokens({sequence}); }
    std::optional<std::pair<int, int>> range(int sequence) const override {
        const auto range = cache_.range({sequence});
        if (!range) return std::nullopt;
        return std::pair{range->first.value, range->last.value};
    }
    Counts counts() const override {
        const cellar::Statistics s = cache_.statistics();
        const bool stays = cache_.limits().placement == cellar::Placement::scattered;
        return {s.cells - s.free, s.shared, s.sequences, static_cast<int>(s.tokens), stays ? s.longest_free_run : 0};
    }

private:
    static constexpr bool permuted = std::is_same_v<typename Layout::value_mapping, cellar::HeadsDimsCells>;

    static cellar::Shape shape(const std::vector<Layer>& layers) {
        std::vector<cellar::LayerShape> shapes;
        for (const Layer& l : layers) shapes.push_back({l.heads, l.key_dim, l.value_dim, l.shares});
        return cellar::Shape{std::move(shapes)};
    }

    static cellar::Limits limits(const Setting& s) {
        return {s.setup.sequences, s.setup.capacity, s.setup.batch, s.setup.padding,
                s.contiguous ? cellar::Placement::contiguous : cellar::Placement::scattered};
    }

    static naive::No no(cellar::Refusal refusal) {
        if (refusal == cellar::Refusal::full) return naive::No::full;
        return refusal == cellar::Refusal::cannot_shift ? naive::No::cannot_shift : naive::No::batch_too_long;
    }

    /// Rows as a span, as a dense view, or as a view with gaps between all elements.
    template <class K, class V>
    void put_as(int layer, const std::vector<Rows>& rows, int style) {
        const Layer& shape = layers_[static_cast<std::size_t>(layer)];
        const int gap = style == 2 ? 3 : 1;
        std::vector<K> k;
        std::vector<V> v;
        for (const Rows& row : rows) {
            append(k, row.key, gap);
            append(v, row.value, gap);
        }
        if (style == 0) {
            pass_->put(layer, std::span<const K>{k}, std::span<const V>{v});
        } else {
            pass_->put(layer, view(k, rows.size(), shape.heads, shape.key_dim, gap),
                       view(v, rows.size(), shape.heads, shape.value_dim, gap));
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

    std::vector<Layer> layers_;
    Cache cache_;
    std::optional<Pass> pass_;
};

} // namespace property
