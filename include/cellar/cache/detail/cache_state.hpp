// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/digest.hpp>
#include <cellar/base/guards.hpp>
#include <cellar/base/kept.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/plan.hpp>
#include <cellar/base/reserved_list.hpp>
#include <cellar/base/scratch.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/book/cache_book.hpp>
#include <cellar/book/cell_rows.hpp>
#include <cellar/book/kept_cells.hpp>
#include <cellar/book/page_rows.hpp>
#include <cellar/cache/cache_limits.hpp>
#include <cellar/cache/cache_shape.hpp>
#include <cellar/cache/detail/layer_store.hpp>
#include <cellar/cache/detail/list_memory.hpp>
#include <cellar/cache/detail/mask_buffer.hpp>
#include <cellar/cache/detail/tiered_rows.hpp>
#include <cellar/cache/fwd.hpp>
#include <cellar/cache/layer_memory.hpp>
#include <cellar/cache/sizes.hpp>
#include <cellar/element/format_codec.hpp>
#include <cellar/memory/layer_name.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::detail {

template <bool HoldsData>
constexpr void expect_rows() {
    static_assert(HoldsData, "rows: this cache has no keys and values (its backend is NoData), expected a backend "
                             "with memory");
}

/// The number of cells, checked.
template <WindowPolicy Window>
constexpr Cell checked_cells(const CacheLimits& limits, const Window& resolved) {
    const std::int64_t cells = cell_count(limits, resolved);
    constexpr std::int64_t max = INT32_MAX - 63; // whole words of a bitmap
    CELLAR_EXPECTS(cells <= max, "limits: ", cells, " cells, expected at most ", max);
    return static_cast<Cell>(cells);
}

/// The size of a cache's book. A sequence gets room for the runs of its share of the pool, plus those of a pass, up to
/// 64 MB for all sequences; beyond that, preparing a pass reserves more.
template <WindowPolicy Window>
constexpr BookSize book_size(const CacheLimits& limits, const Window& resolved) {
    const Cell cells = checked_cells(limits, resolved);
    const std::int64_t own = resolved.cells(1, planned_capacity(limits), limits.batch);
    const std::int64_t share = (std::int64_t{cells} + limits.sequences - 1) / limits.sequences;
    constexpr std::int64_t planned_in_all = (std::int64_t{64} << 20) / std::int64_t{2 * sizeof(PositionRun)};
    return {.cells = cells,
            .sequences = limits.sequences,
            .batch = limits.batch,
            .padding = limits.padding,
            .start_padding = limits.start_padding,
            .planned_runs = std::min(std::min(own, share + limits.batch) + 2 * std::int64_t{limits.batch} + 2,
                                     planned_in_all / limits.sequences + 1),
            .positions = limits.positions,
            .choice = limits.placement == Placement::blocks ? Choice::blocks : Choice::lowest};
}

/// The cells that each token of a pass sees, as runs in the order of memory.
struct VisibleRuns {
    TrivialList<CellRange> runs;
    ReservedList<std::size_t> ends; ///< one for each token: the end of its runs
    bool known = false;             ///< of the open pass
};

/// Memory of `attend`: see `AttentionSource`.
struct AttentionScratch {
    Scratch tokens;
    Scratch lists;
    Scratch rows;
    Scratch parts;
    const void* planned_for = nullptr; ///< in the open pass
};

enum class MaskElement { none, of_float, of_half, of_bool };

/// What the open pass is. It is not in the pass, so that moving that is cheap.
struct PassState {
    explicit PassState(std::size_t layers) : put(layers) {}
    static constexpr std::int64_t bytes_for(std::int64_t layers) { return bytes_of<bool>(layers); }

    /// `puts`: each layer must be put before it is read.
    void begin(bool is_reserved, bool puts) {
        open = true;
        reserved = is_reserved;
        must_put = puts;
        std::fill(put.begin(), put.end(), false);
        layer_name = {};
    }

    bool open = false;
    bool reserved = false;
    bool must_put = false;
    TrivialList<bool> put; ///< which layers were put, by index into the stores; at least as many as these
    LayerName layer_name;
};

/// Memory that one pass after the other uses, and which of it is up to date for the open one.
template <class Backend>
struct PassScratch {
    template <class Rows>
    using Lists = ListMemory<Rows, Backend>;

    PassScratch(Backend& backend, std::int32_t batch)
        : mask{backend}, visible{{}, ReservedList<std::size_t>{static_cast<std::size_t>(batch)}} {}
    /// What the constructor allocates.
    static constexpr std::int64_t bytes_for(std::int32_t batch) { return bytes_of<std::size_t>(batch); }

    void begin() {
        written_mask = MaskElement::none;
        visible.known = false;
        lists_known = false;
        attention.planned_for = nullptr;
    }

    MaskBuffer<Backend> mask;
    MaskElement written_mask = MaskElement::none; ///< what `mask` holds
    VisibleRuns visible;
    std::unique_ptr<Lists<CellRows>> lists{}; ///< null until they are asked for
    std::unique_ptr<Lists<PageRows>> pages{}; ///< of one page size
    bool lists_known = false;
    AttentionScratch attention{};
};

/// In place of the plans that a program takes, where the backend carries them out.
struct NoPlans {};

/// The stores of the layers that have memory of their own.
template <class Store>
class LayerStores : public ReservedList<Store> {
public:
    LayerStores(std::size_t layers, Cell cells)
        : ReservedList<Store>{layers}, owners_{layers}, of_{layers}, cells_{cells} {}
    /// Without keys and values.
    static constexpr std::int64_t bytes_for(std::int64_t layers) {
        return bytes_of<Store>(layers) + bytes_of<int>(layers) + bytes_of<std::size_t>(layers);
    }

    template <class... Arguments>
    void add(int layer, Arguments&&... arguments) {
        owners_.push_back(layer);
        of_.push_back(this->size());
        this->emplace_back(std::forward<Arguments>(arguments)...);
    }
    /// The next layer has the memory of an earlier one.
    void share(int layer) { of_.push_back(index_of(layer)); }

    std::size_t index_of(int layer) const { return of_[static_cast<std::size_t>(layer)]; }
    /// The layer that store i belongs to.
    int owner(std::size_t i) const { return owners_[i]; }

    /// How many cells have memory: a multiple of the padding.
    Cell cells() const { return cells_; }
    /// Changes with every `grow`.
    std::uint64_t generation() const { return generation_; }
    /// May throw, with nothing but addresses changed.
    template <class Backend>
    void grow(Backend& backend, Cell cells) {
        ++generation_;
        for (Store& store : *this) store.grow(backend, cells);
        cells_ = cells;
    }

    std::int64_t bytes() const {
        std::int64_t sum = 0;
        for (const Store& store : *this) sum += store.bytes();
        return sum;
    }
    /// Of the keys and values of one token in all layers, in these formats.
    std::int64_t row_bytes(const StoredAs& as = {}) const {
        std::int64_t sum = 0;
        for (const Store& store : *this) sum += store.row_bytes(as);
        return sum;
    }

private:
    ReservedList<int> owners_;
    ReservedList<std::size_t> of_; // layer -> index of its store
    Cell cells_;
    std::uint64_t generation_ = 0;
};

/// The parts of a cache, at a fixed address: the cache may move while a pass points here. Bookkeeping and data meet
/// here, and plans go from one to the other.
template <LayoutPolicy Layout, WindowPolicy Window, ShiftPolicy TheShift, BackendPolicy TheBackend>
struct CacheState {
    using Backend = TheBackend;
    using Shift = TheShift;
    using Book = CacheBook<Window>;
    using Store = LayerStore<Layout, Backend>;
    template <class Rows>
    using Lists = typename PassScratch<Backend>::template Lists<Rows>;

    /// `memory`: a program's own for each layer; empty: the backend allocates it.
    CacheState(CacheShape the_shape, const CacheLimits& the_limits, const Window& window, Shift the_shift,
               Backend the_backend, std::span<const LayerMemory> memory = {})
        : CacheState{resolved(std::move(the_shape)),
                     resolved_limits<Layout>(expect_valid(the_limits)),
                     resolved_window(the_limits, window),
                     std::move(the_shift),
                     std::move(the_backend),
                     memory,
                     Resolved{}} {}

    /// See `Cache::bytes_for`.
    static constexpr MemoryBytes bytes_for(const CacheShape& the_shape, const CacheLimits& the_limits,
                                           const Window& window, const PassUses& uses) {
        const CacheShape shape = resolved(the_shape);
        const CacheLimits limits = resolved_limits<Layout>(expect_valid(the_limits));
        const Window own = resolved_window(the_limits, window);
        const BookSize size = book_size(limits, own);
        MemoryBytes bytes;
        if constexpr (!HoldsNoData<Backend>)
            for (const LayerShape& layer : shape.each_layer)
                if (layer.shares_layer < 0) bytes.data += layer_bytes<Layout>(layer, size.cells);
        bytes.bookkeeping = bytes_of<CacheState>(1) + bytes_of<LayerShape>(shape.layers) + bytes_of_factors(shape)
                            + bytes_for_book(size) + LayerStores<Store>::bytes_for(shape.layers)
                            + PassState::bytes_for(shape.layers) + PassScratch<Backend>::bytes_for(limits.batch);
        if (uses.masks) bytes.masks = MaskBuffer<Backend>::bytes_for(limits.batch, size.cells);
        bytes.lists = bytes_of_lists(limits, own, size.cells, uses);
        return bytes;
    }

    CacheState(const CacheState&) = delete;
    CacheState& operator=(const CacheState&) = delete;
    ~CacheState() {
        CELLAR_EXPECTS(!pass.open, "a cache is destroyed while a pass is open, expected it to be committed or dropped "
                                   "first");
        backend.fence(); // enqueued work uses the memory
    }

    /// The index of a layer's store.
    std::size_t store_index(const char* operation, int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < shape.layers, operation, ": layer ", layer, ", expected 0 to ",
                       shape.layers - 1);
        return stores.index_of(layer);
    }

    const LayerShape& layer_shape(int layer) const {
        CELLAR_EXPECTS(layer >= 0 && layer < shape.layers, "layer ", layer, ", expected 0 to ", shape.layers - 1);
        return shape.each_layer[static_cast<std::size_t>(layer)];
    }

    /// The keys and values of a layer in all cells that have memory.
    auto rows(const char* operation, int layer) const {
        return stores[store_index(operation, layer)].rows({0, stores.cells()});
    }
    auto rows(const char* operation, int layer) {
        return stores[store_index(operation, layer)].rows({0, stores.cells()});
    }

    /// `puts`: each layer must be put before it is read.
    void begin_pass(bool reserved, bool puts) {
        pass.begin(reserved, puts);
        scratch.begin();
    }

    /// Finds the cells that the tokens of the open pass see.
    void find_visible() {
        VisibleRuns& visible = scratch.visible;
        visible.runs.clear();
        visible.ends.clear();
        book.for_each_visible_row([&](std::int64_t, const CellSet& cells) {
            cells.for_each_run([&](CellRange run) { visible.runs.push_back(run); });
            visible.ends.push_back(visible.runs.size());
        });
        visible.known = true;
    }

    /// The rows of lists that a pass has at most.
    static constexpr std::int32_t most_rows(const CacheLimits& limits) {
        return std::min(limits.batch, limits.sequences);
    }
    /// Whether the lists of a pass lose cells at their front.
    static constexpr bool slides(const Window& window) { return window.oldest_visible(to_end - 1).value != 0; }
    /// The cells that tokens of one sequence can see in a pass at most.
    static constexpr std::int64_t most_in_row(const CacheLimits& limits, const Window& window, Cell cells) {
        if (limits.positions == Positions::any) return cells;
        return std::min<std::int64_t>(cells, window.cells(1, cells, limits.batch));
    }

    /// Once rows of all that a sequence can see are reserved.
    static constexpr std::int64_t bytes_of_lists(const CacheLimits& limits, const Window& window, Cell cells,
                                                 const PassUses& uses) {
        if (!uses.lists && uses.page_size == 0) return 0;
        const std::int32_t n = limits.sequences;
        const std::int32_t batch = most_rows(limits);
        const std::int64_t row = most_in_row(limits, window, cells);
        std::int64_t bytes = bytes_of<RunChanges>(n) + Lists<CellRows>::bytes_for(n, batch, row, slides(window));
        if (uses.page_size != 0)
            bytes += Lists<PageRows>::bytes_for(n, batch, PageRows::pages_of(row, uses.page_size), slides(window));
        return bytes;
    }

    /// Makes the lists, and their pages if a page size is given. May throw; all rows stay right.
    void prepare_lists(std::int32_t page_size) {
        const std::int32_t batch = most_rows(limits);
        auto& pages = scratch.pages;
        book.table().track_changes();
        if (scratch.lists == nullptr)
            scratch.lists = std::make_unique<Lists<CellRows>>(backend, limits.sequences, batch);
        if (page_size == 0 || (pages != nullptr && pages->rows.page_size() == page_size)) return;
        auto others = std::make_unique<Lists<PageRows>>(backend, limits.sequences, batch, page_size);
        if constexpr (WritesLists<Backend>)
            if (pages != nullptr) backend.fence(); // enqueued kernels may use the old ones
        pages = std::move(others);
    }

    /// Room for rows of that many cells, and for their pages. May throw; all rows stay right.
    void reserve_lists(std::int64_t cells, std::int32_t page_size) {
        prepare_lists(page_size);
        const bool slide = slides(book.window());
        scratch.lists->reserve(cells, slide);
        if (page_size != 0) scratch.pages->reserve(scratch.pages->rows.pages_of(cells), slide);
    }

    /// Brings the lists up to date with the open pass. `page_size`: 0, or that of the pages that follow.
    void find_lists(std::int32_t page_size) {
        prepare_lists(page_size);
        if (scratch.lists_known) return;
        pass.reserved ? scratch.lists->rows.clear_batch() : scratch.lists->rows.update(book);
        scratch.lists_known = true;
    }

    void expect_no_pass(const char* operation) const { detail::expect_no_pass(operation, pass.open); }

    /// Room for what the backend needs to move and to rotate that many cells in every layer, by as many plans. May
    /// throw, with nothing changed.
    void reserve_plan(std::int64_t moved, std::int64_t rotated, std::size_t count = 1) {
        if constexpr (HoldsNoData<Backend>) {
            if (moved + rotated != 0 && plans.size() + count > plans.capacity())
                plans.reserve(2 * plans.size() + count);
        } else if constexpr (ReservesPlans<Backend>) {
            if (moved != 0) backend.reserve_moves(moved);
            if constexpr (rotates_keys<Shift>)
                if (rotated != 0)
                    for (std::size_t i = 0; i < stores.size(); ++i)
                        backend.reserve_rotations(shift, stores.owner(i), rotated);
        }
    }

    /// Enqueues the work of a plan in every layer.
    void carry_out(const Plan& plan) {
        for (std::size_t i = 0; i < stores.size(); ++i) {
            if (!plan.moves.empty())
                for_each_plane(stores[i], Store::planes(), [&](auto& plane) {
                    backend.move(plane.mapping(), plane.memory(), std::span{plan.moves});
                });
            if constexpr (rotates_keys<Shift>)
                if (!plan.rotations.empty())
                    stores[i].all_keys().rotate(backend, shift, stores.owner(i), std::span{plan.rotations});
        }
    }

    /// Writes zeros to the keys and values of free cells. Blocks. May throw, with some of them written.
    void erase_free_cells() {
        TrivialList<Cell> cells;
        for (Cell cell = 0; cell < stores.cells(); ++cell)
            if (book.table().free().contains(cell)) cells.push_back(cell);
        for (Store& store : stores)
            for_each_plane(store, Store::planes(), [&](auto& plane) { plane.erase(backend, cells); });
    }

    /// In place of `carry_out`, where the program does this work. `reserve_plan` has made room.
    void hand_over(Plan& plan) noexcept requires(HoldsNoData<Backend>) {
        if (!plan.moves.empty() || !plan.rotations.empty()) plans.push_back(std::move(plan));
    }

    /// Allocates memory for the cells of the next n tokens, which go after cell `behind` if they fit. Blocks if it has
    /// to grow, and then returns true. May throw, with nothing but addresses changed. O(1) if all cells have memory;
    /// else as `CellPool::end_of_next` and, amortised, O(n).
    bool allocate_for(std::int32_t n, Cell behind = -1) {
        if (stores.cells() == book.cells() || n == 0) return false;
        return allocate_up_to(book.end_of_next(n, behind));
    }
    /// The same for the tokens of a batch that the book has prepared. Under `Placement::blocks`, opens and drops the
    /// pass to see which cells it takes.
    bool allocate_for(const Batch& batch) {
        if (stores.cells() == book.cells() || batch.tokens() == 0) return false;
        const Cell end = book.end_of_next(batch);
        const bool again = book.prepare_tokens(batch);
        return allocate_up_to(end) || again;
    }

    /// Memory of cells from `first` on is not needed for now.
    void uncommit(Cell first) noexcept {
        for (Store& store : stores) for_each_plane(store, Store::planes(), [&](auto& plane) { plane.uncommit(first); });
    }

    /// The same for all cells below `end`.
    void allocate_below(Cell end) { static_cast<void>(allocate_up_to(end)); }

    /// The same for all rows of a snapshot, and for those of one that is offloaded that s takes.
    bool allocate_for(const KeptCells& kept) { return allocate_for(kept.rows()); }
    bool allocate_for(const KeptCells& kept, Sequence s, const TrivialList<Cell>& room) {
        return allocate_for(static_cast<std::int32_t>(room.capacity()), book.runs(s).last_cell_before(kept.from));
    }

    /// Only rows on the host are converted.
    OffloadPlace offload_place(OffloadTo to) const {
        return {to, to == OffloadTo::host ? limits.offload_as : StoredAs{}};
    }

    /// `unchecked`: of an operation with a snapshot.
    Resuming resuming(bool unchecked) const {
        return unchecked || holds_inputs ? Resuming::anywhere : Resuming::checked;
    }

    /// Room for what the backend needs for passes of `tokens` tokens that see all cells.
    void reserve(std::int64_t tokens) {
        if constexpr (ReservesPasses<Backend>) backend.reserve(tokens, book.cells());
    }

    CacheShape shape; // with each layer
    CacheLimits limits;
    Shift shift;
    Backend backend;
    Book book;
    // Stands for the pairs of elements that are rotated in all layers; 0: none are; negative: as they are read.
    std::int64_t rotation = 0;
    std::int64_t scaling = 0;  // stands for the factors of all channels; 0: there are none
    BatchBuilder next_tokens;  // of a pass that was asked for by their number
    bool holds_inputs = false; // of an encoder: a sequence can resume anywhere, and a snapshot has any of its inputs
    std::optional<typename Backend::template Buffer<float>> factor_memory; // of all stores; nullopt: no factors
    LayerStores<Store> stores;
    PassState pass;
    PassScratch<Backend> scratch;
    [[no_unique_address]] std::conditional_t<HoldsNoData<Backend>, std::vector<Plan>, NoPlans> plans; // to be taken

private:
    struct Resolved {};

    CacheState(CacheShape the_shape, const CacheLimits& the_limits, const Window& window, Shift the_shift,
               Backend the_backend, std::span<const LayerMemory> memory, Resolved)
        : shape{std::move(the_shape)},
          limits{the_limits},
          shift{std::move(the_shift)},
          backend{std::move(the_backend)},
          book{book_size(limits, window), window},
          stores{static_cast<std::size_t>(shape.layers),
                 limits.initial_cells == 0 ? book.cells() : padded(limits.initial_cells)},
          pass{static_cast<std::size_t>(shape.layers)},
          scratch{backend, limits.batch} {
        check_memory(memory);
        for (int layer = 0; layer < shape.layers; ++layer) {
            const LayerShape& own = layer_shape(layer);
            if (own.shares_layer >= 0) {
                stores.share(own.shares_layer);
                continue;
            }
            check_shift(layer);
            check_factors(layer);
            check_units<typename Layout::key_format>(layer, "key_dim", own.key_dim);
            check_units<typename Layout::value_format>(layer, "value_dim", own.value_dim);
            check_tier(layer, "key_dim", own.key_dim, limits.offload_as.keys);
            check_tier(layer, "value_dim", own.value_dim, limits.offload_as.values);
            const LayerMemory* const given = memory.empty() ? nullptr : &memory[static_cast<std::size_t>(layer)];
            stores.add(layer, backend, stores.cells(), own, given, layer);
        }
        if (limits.populate) populate();
        if constexpr (rotates_keys<Shift>) rotation = digest_of_pairs();
        if constexpr (rotates_on_read<Shift>) rotation = -digest_of_pairs();
        if constexpr (!Element<typename Layout::key_format> || !Element<typename Layout::value_format>) {
            scaling = digest_of_factors();
            if (scaling != 0) place_factors();
        }
    }

    std::int64_t digest_of_pairs() const {
        Digest digest;
        for (std::size_t i = 0; i < stores.size(); ++i) {
            const auto of_layer = shift.rotation(stores.owner(i));
            digest.add(of_layer.pairs());
            for (int pair = 0; pair < of_layer.pairs(); ++pair)
                digest.add(of_layer.first(pair)).add(of_layer.second(pair));
        }
        return static_cast<std::int64_t>(digest.value() >> 1 | 1);
    }

    std::int64_t digest_of_factors() const {
        Digest digest;
        std::size_t count = 0;
        const auto add = [&](const std::vector<float>& factors) {
            count += factors.size();
            digest.add(factors.size());
            for (const float factor : factors) digest.add(std::bit_cast<std::int32_t>(factor));
        };
        for (const ChannelFactors& layer : shape.factors) {
            add(layer.keys);
            add(layer.values);
        }
        return count == 0 ? 0 : static_cast<std::int64_t>(digest.value() >> 1 | 1);
    }

    // Copies them to where the backend reads them.
    void place_factors() {
        std::vector<float> all;
        const auto for_each = [&](auto visit) {
            for (std::size_t i = 0; i < stores.size(); ++i) {
                const ChannelFactors& own = shape.factors[static_cast<std::size_t>(stores.owner(i))];
                if (!own.keys.empty()) visit(stores[i].all_keys(), own.keys);
                if (!own.values.empty()) visit(stores[i].all_values(), own.values);
            }
        };
        for_each([&](auto&, const std::vector<float>& own) { all.insert(all.end(), own.begin(), own.end()); });
        factor_memory.emplace(backend.template allocate<float>(std::ssize(all)));
        backend.copy_from_host(std::span<const float>{all}, *factor_memory, 0);
        const float* next = factor_memory->data();
        for_each([&](auto& rows, const std::vector<float>& own) {
            rows.divide_by(next);
            next += own.size();
        });
    }
    static constexpr std::int64_t bytes_of_factors(const CacheShape& shape) {
        std::int64_t count = 0;
        for (const ChannelFactors& layer : shape.factors)
            count += static_cast<std::int64_t>(layer.keys.size() + layer.values.size());
        const auto layers = static_cast<std::int64_t>(shape.factors.size());
        return bytes_of<ChannelFactors>(layers) + 2 * bytes_of<float>(count); // also where the backend reads them
    }

    // Memory that a device has allocated is committed.
    void populate() {
        for (Store& store : stores)
            for_each_plane(store, Store::planes(), [](auto& plane) {
                if constexpr (requires { plane.memory().populate(); }) plane.memory().populate();
            });
    }

    // As many cells or a few more, but not more than there are.
    Cell padded(std::int64_t cells) const {
        const std::int64_t all = book.cells();
        return static_cast<Cell>(std::min(all, (cells + limits.padding - 1) / limits.padding * limits.padding));
    }

    [[gnu::noinline]] bool allocate_up_to(Cell end) {
        if (end <= stores.cells()) return false;
        stores.grow(backend, padded(std::max<std::int64_t>(end, std::int64_t{stores.cells()} + stores.cells() / 2)));
        if (limits.populate) populate();
        return true;
    }

    void check_memory(std::span<const LayerMemory> memory) const {
        if (memory.empty()) return;
        CELLAR_EXPECTS(std::ssize(memory) == shape.layers, "memory: of ", memory.size(), " layers, expected of all ",
                       shape.layers);
        CELLAR_EXPECTS(limits.initial_cells == 0, "memory: CacheLimits::initial_cells is ", limits.initial_cells,
                       ", expected 0, because memory that is given does not grow");
    }

    template <class Format>
    static void check_units(int layer, const char* name, int dim) {
        if constexpr (!Element<Format>) {
            const auto expect_multiple = [&](int n, const char* what) {
                CELLAR_EXPECTS(dim % n == 0, "shape: layer ", layer, " has a ", name, " of ", dim,
                               ", expected a multiple of ", n, ", the values of a ", what, " of ", Format::name);
            };
            expect_multiple(values_per_unit<Format>, "unit");
            if constexpr (ScaleOf<Format>::values != whole_head) expect_multiple(ScaleOf<Format>::values, "scale");
            expect_multiple(values_per_rotation<Format>, "rotation");
            CELLAR_EXPECTS(dim <= max_encoded_dim, "shape: layer ", layer, " has a ", name, " of ", dim,
                           ", expected at most ", max_encoded_dim, " in the format ", Format::name);
        }
    }

    void check_factors(int layer) const {
        if (shape.factors.empty()) return;
        const ChannelFactors& own = shape.factors[static_cast<std::size_t>(layer)];
        CELLAR_EXPECTS((own.keys.empty() && own.values.empty()) || !HoldsNoData<Backend>, "shape: layer ", layer,
                       " has factors, expected none with NoData, which stores nothing that could be divided");
        CELLAR_EXPECTS(own.keys.empty() || !Element<typename Layout::key_format>, "shape: layer ", layer,
                       " has factors of keys, expected none for the format ",
                       format_of<typename Layout::key_format>::name);
        CELLAR_EXPECTS(own.values.empty() || !Element<typename Layout::value_format>, "shape: layer ", layer,
                       " has factors of values, expected none for the format ",
                       format_of<typename Layout::value_format>::name);
        if constexpr (rotates_keys<Shift> || rotates_on_read<Shift>) check_pairs(layer, own.keys);
    }

    void check_pairs(int layer, const std::vector<float>& factors) const {
        const ElementPair unequal = unequal_pair(factors, layer_shape(layer).key_dim, shift.rotation(layer));
        CELLAR_EXPECTS(unequal.first == unequal.second, "shape: layer ", layer, " has different factors of elements ",
                       unequal.first, " and ", unequal.second,
                       " of keys, expected one for both, because they are rotated as a pair");
    }

    static void check_tier(int layer, const char* name, int dim, const FormatCodec* format) {
        if (format == nullptr) return;
        CELLAR_EXPECTS(format->suits(static_cast<std::uint64_t>(dim)), "limits: layer ", layer, " has a ", name, " of ",
                       dim, ", expected a multiple of ", format->values_together, ", at most ", format->max_dim,
                       ", for CacheLimits::offload_as of ", format->units().name);
    }

    void check_shift(int layer) const {
        if constexpr (rotates_keys<Shift> || rotates_on_read<Shift>) {
            if constexpr (requires(std::size_t n) { shift.fits(n); }) {
                const auto layers = static_cast<std::size_t>(shape.layers);
                CELLAR_EXPECTS(shift.fits(layers), "shift: frequencies for ", shift.layers(),
                               " layers, expected for all, or for each of the cache's ", layers);
            }
            const int min = min_dim(shift.rotation(layer));
            const int dim = layer_shape(layer).key_dim;
            CELLAR_EXPECTS(min <= dim, "shift: layer ", layer, " has a key_dim of ", dim, ", expected at least ", min,
                           ", the elements that are rotated");
        }
    }
};

/// The state behind a memory that has cells, and whether the pass of its `begin` stores tokens.
template <class Memory>
struct StateOf;
template <class Layout, class Window, class Shift, class Backend>
struct StateOf<Cache<Layout, Window, Shift, Backend>> {
    using type = CacheState<Layout, Window, Shift, Backend>;
    static constexpr bool stores = true;
};
template <class Layout, class Backend>
struct StateOf<EncoderMemory<Layout, Backend>> {
    using type = CacheState<Layout, FullCausal, UnrotatedShift, Backend>;
    static constexpr bool stores = false;
};

} // namespace cellar::detail
