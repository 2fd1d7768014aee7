// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Runs own_memory.cu on the host: after random traffic with shared prefixes, the page tables and the memory hold every
// key and value of every sequence. And the code of docs/how-to/bring-your-own-memory.md for memory of the host.
#include "own_memory.cu"
#include <cellar/attention/attend.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace test_own_memory {

using namespace own_memory;
using cellar::BatchBuilder;
using cellar::Position;
using cellar::Sequence;
using cellar::to_end;

namespace {

constexpr int layers = 2;
constexpr int kv_heads = 3;
constexpr int head_dim = 4;
constexpr int row_size = kv_heads * head_dim;
constexpr int sequences = 8;

/// What a token's key is at position 0, and its value.
float key_of(int token, int layer, int head, int d) {
    return static_cast<float>(std::sin(token * 1.7 + layer * 5 + head * 3 + d));
}
float value_of(int token, int layer, int head, int d) {
    return static_cast<float>(1000 * token + 100 * layer + 10 * head + d);
}

/// The key at a position: as the model rotates it.
std::array<float, head_dim> rotated_key(int token, int layer, int head, int position) {
    const std::vector<double> frequencies = cellar::rope_frequencies(head_dim);
    std::array<float, head_dim> key{};
    for (int pair = 0; pair < head_dim / 2; ++pair) {
        const double angle = position * frequencies[static_cast<std::size_t>(pair)];
        const double a = key_of(token, layer, head, pair);
        const double b = key_of(token, layer, head, pair + head_dim / 2);
        key[static_cast<std::size_t>(pair)] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        key[static_cast<std::size_t>(pair + head_dim / 2)] =
            static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
    }
    return key;
}

template <class T>
std::vector<T> download(const T* data, std::int64_t n, cudaStream_t stream) {
    std::vector<T> copy(static_cast<std::size_t>(n));
    check(cudaMemcpyAsync(copy.data(), data, copy.size() * sizeof(T), cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return copy;
}

/// A batch, and the numbers of its tokens.
struct Given {
    BatchBuilder batch{};
    std::vector<int> sequences{};
    std::vector<int> tokens{};
    std::vector<int> positions{};
};

/// Stands for a model. Its attention copies what it reads.
class Model {
public:
    Model(Memory& memory, const Given& given) : memory_{memory}, given_{given} {}

    struct Rows {
        const float* keys;
        const float* values;
    };
    Rows project(int layer) {
        std::vector<float> keys;
        std::vector<float> values;
        for (std::size_t i = 0; i < given_.tokens.size(); ++i)
            for (int head = 0; head < kv_heads; ++head) {
                const auto key = rotated_key(given_.tokens[i], layer, head, given_.positions[i]);
                keys.insert(keys.end(), key.begin(), key.end());
                for (int d = 0; d < head_dim; ++d) values.push_back(value_of(given_.tokens[i], layer, head, d));
            }
        return {keys_.upload(keys, memory_.stream), values_.upload(values, memory_.stream)};
    }

    void attend(int layer, const Pool& keys, const Pool& values, const PageTable& table) {
        rows = table.rows;
        const std::int64_t elements = rows * most * row_size;
        const std::vector<float> nothing(static_cast<std::size_t>(elements), -1);
        for (const Pool& pool : {keys, values}) {
            DeviceList<float> result;
            result.upload(nothing, memory_.stream);
            launch(gather, elements, memory_.stream, pool, table, most, const_cast<float*>(result.data()));
            read[layer].push_back(download(result.data(), elements, memory_.stream));
        }
        if (layer != 0) return;
        indptr = download(table.indptr, rows + 1, memory_.stream);
        indices = download(table.indices, indptr.back(), memory_.stream);
        last_page_len = download(table.last_page_len, rows, memory_.stream);
    }

    static constexpr std::int64_t most = 400; // tokens of a row
    std::int64_t rows = 0;
    std::vector<std::vector<float>> read[layers]; // keys and values [rows, most, kv_heads, head_dim]
    std::vector<std::int32_t> indptr, indices, last_page_len;

private:
    Memory& memory_;
    const Given& given_;
    DeviceList<float> keys_, values_;
};

/// Random operations on a memory, and on lists of tokens.
class Traffic {
public:
    Traffic(unsigned seed, Order order)
        : random_{seed},
          order_{order},
          memory_{layers,
                  kv_heads,
                  head_dim,
                  {.sequences = sequences, .cells = 8192, .batch = 96, .padding = page_size},
                  order} {}

    void step() {
        const Sequence s = any();
        switch (between(0, 9)) {
        case 0:
            return fork(s, any());
        case 1:
            return cut(s);
        case 2:
            return close_gap(s);
        default:
            return decode(s);
        }
    }

    int forks = 0;
    int gaps = 0;
    int copies = 0; ///< of cells, because two sequences shared them
    std::int64_t checked = 0;

private:
    int between(int min, int max) { return std::uniform_int_distribution<int>{min, max}(random_); }
    Sequence any() { return Sequence{between(0, sequences - 1)}; }
    std::vector<int>& text(Sequence s) { return texts_[static_cast<std::size_t>(s.value)]; }
    int any_page(Sequence s) { return page_size * between(0, static_cast<int>(text(s).size()) / page_size); }

    void fork(Sequence from, Sequence to) {
        if (from == to) return;
        const int length = any_page(from); // whole pages
        REQUIRE(memory_.books.copy_prefix(from, to, Position{length}));
        text(to).assign(text(from).begin(), text(from).begin() + length);
        forks += length > 0 ? 1 : 0;
    }
    void cut(Sequence s) {
        const int length = any_page(s);
        REQUIRE(memory_.books.remove(s, Position{length}, to_end));
        text(s).resize(static_cast<std::size_t>(length));
    }
    void close_gap(Sequence s) {
        int begin = any_page(s);
        int end = any_page(s);
        if (begin > end) std::swap(begin, end);
        if (begin == end) return;
        const std::int64_t shared = memory_.books.statistics().shared;
        REQUIRE(memory_.books.remove(s, Position{begin}, Position{end}));
        copies += shared > memory_.books.statistics().shared ? 1 : 0;
        text(s).erase(text(s).begin() + begin, text(s).begin() + end);
        ++gaps;
    }

    void decode(Sequence first) {
        Given given;
        for (int s = first.value; s < std::min(sequences, first.value + 3); ++s) {
            std::vector<int>& own = texts_[static_cast<std::size_t>(s)];
            if (own.size() > 300) {
                REQUIRE(memory_.books.remove(Sequence{s}, Position{0}, to_end));
                own.clear();
            }
            const int tokens = between(0, 2) == 0 ? between(1, 32) : 1;
            given.batch.add(Sequence{s}, memory_.books.next(Sequence{s}), tokens);
            given.sequences.push_back(s);
            for (int i = 0; i < tokens; ++i) {
                given.positions.push_back(static_cast<int>(own.size()));
                own.push_back(++token_);
                given.tokens.push_back(token_);
            }
        }
        Model model{memory_, given};
        const cellar::Result<void> done = memory_.step(given.batch, model);
        REQUIRE(done);
        compare(given, model);
    }

    // The place of an element in FlashInfer's layouts, by its documentation.
    std::size_t place_of(std::int32_t page, int place, int head, int d) const {
        return static_cast<std::size_t>(order_ == Order::nhd
                                            ? ((page * page_size + place) * kv_heads + head) * head_dim + d
                                            : ((page * kv_heads + head) * page_size + place) * head_dim + d);
    }

    void compare(const Given& given, const Model& model) {
        REQUIRE(model.rows == std::ssize(given.sequences));
        for (int layer = 0; layer < layers; ++layer) {
            const std::int64_t elements = std::int64_t{memory_.books.cells()} * row_size;
            const std::vector<float> keys = download(memory_.keys(layer).data, elements, memory_.stream);
            const std::vector<float> values = download(memory_.values(layer).data, elements, memory_.stream);
            bool same = true;
            for (std::size_t r = 0; r < given.sequences.size(); ++r) {
                const std::vector<int>& own = texts_[static_cast<std::size_t>(given.sequences[r])];
                const std::int32_t begin = model.indptr[r];
                const std::int32_t pages = model.indptr[r + 1] - begin;
                REQUIRE((pages - 1) * page_size + model.last_page_len[r] == std::ssize(own));
                for (int t = 0; t < static_cast<int>(own.size()); ++t) {
                    const std::int32_t page = model.indices[static_cast<std::size_t>(begin + t / page_size)];
                    for (int head = 0; head < kv_heads; ++head) {
                        const int token = own[static_cast<std::size_t>(t)];
                        const auto key = rotated_key(token, layer, head, t);
                        for (int d = 0; d < head_dim; ++d) {
                            const std::size_t at = place_of(page, t % page_size, head, d);
                            const std::size_t in_row =
                                (r * std::size_t{Model::most} + static_cast<std::size_t>(t)) * row_size
                                + static_cast<std::size_t>(head * head_dim + d);
                            same = same && std::abs(keys[at] - key[static_cast<std::size_t>(d)]) < 1e-4
                                   && values[at] == value_of(token, layer, head, d)
                                   && model.read[layer][0][in_row] == keys[at]
                                   && model.read[layer][1][in_row] == values[at];
                            ++checked;
                        }
                    }
                }
            }
            CHECK(same);
        }
    }

    std::mt19937 random_;
    Order order_;
    Memory memory_;
    std::array<std::vector<int>, sequences> texts_;
    int token_ = 0;
};

void check_traffic(Order order) {
    int forks = 0;
    int gaps = 0;
    int copies = 0;
    std::int64_t checked = 0;
    for (unsigned seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        Traffic traffic{seed, order};
        for (int i = 0; i < 150; ++i) traffic.step();
        forks += traffic.forks;
        gaps += traffic.gaps;
        copies += traffic.copies;
        checked += traffic.checked;
    }
    CHECK(forks > 20);
    CHECK(gaps > 20);
    CHECK(copies > 5);
    CHECK(checked > 1'000'000);
}

std::vector<std::uint64_t> allocated;

void* allocate(std::int64_t bytes) {
    allocated.assign(static_cast<std::size_t>(bytes / 8), 7);
    return allocated.data();
}

} // namespace

TEST_CASE("memory of CUDA in FlashInfer's layout NHD holds every key and value that the page tables name") {
    check_traffic(Order::nhd);
}
TEST_CASE("memory of CUDA in FlashInfer's layout HND holds every key and value that the page tables name") {
    check_traffic(Order::hnd);
}

TEST_CASE("cells that overlap are copied as by memmove") {
    for (const Order order : {Order::nhd, Order::hnd})
        for (const cellar::Move move : {cellar::Move{5, 3, 20}, cellar::Move{3, 5, 20}, cellar::Move{0, 32, 20}}) {
            cudaStream_t stream = nullptr;
            check(cudaStreamCreate(&stream));
            std::vector<float> data(64 * row_size);
            Pool pool{data.data(), order, kv_heads, head_dim};
            for (int cell = 0; cell < 64; ++cell)
                for (int i = 0; i < row_size; ++i)
                    pool.at(cell, i / head_dim, i % head_dim) = static_cast<float>(100 * cell + i);
            DeviceList<float> on_device;
            pool.data = const_cast<float*>(on_device.upload(data, stream));
            launch(copy_cells, pool.row_size(), stream, pool, move);
            data = download(on_device.data(), 64 * row_size, stream);
            check(cudaStreamDestroy(stream));
            pool.data = data.data();
            for (int cell = 0; cell < 64; ++cell) {
                const bool is_moved = cell >= move.to && cell < move.to + move.count;
                const int from = is_moved ? cell - move.to + move.from : cell;
                for (int i = 0; i < row_size; ++i)
                    CHECK(pool.at(cell, i / head_dim, i % head_dim) == static_cast<float>(100 * from + i));
            }
        }
}

TEST_CASE("a cache in memory of the host that a program allocated") {
    constexpr int layers = 2;
    constexpr int kv_heads = 2;
    constexpr int head_dim = 16;
    // [host]
    using Layout = cellar::Blocked<cellar::half>;
    using Cache = cellar::Cache<Layout, cellar::FullCausal, cellar::RopeShift<cellar::Neox>>;
    const cellar::CacheShape shape{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim};
    const cellar::CacheLimits limits{.sequences = 2, .cells = 1024, .batch = 64};
    const std::int64_t bytes = Cache::bytes_for(shape, limits).data;
    const std::int64_t part = bytes / (2 * layers); // keys and values of each layer take as much

    auto* const block = static_cast<std::byte*>(allocate(bytes)); // by mmap, for example, with huge pages
    std::vector<cellar::LayerMemory> memory;                      // of each layer
    for (int layer = 0; layer < layers; ++layer) {
        std::byte* const keys = block + 2 * layer * part;
        memory.push_back({.keys = {keys, part}, .values = {keys + part, part}});
    }
    Cache cache{shape, limits, memory, {}, cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(head_dim)}};
    // [/host]
    const Sequence s{0};
    {
        auto pass = cache.begin(BatchBuilder{s, Position{0}, 3}).value();
        const std::vector<float> rows(3 * kv_heads * head_dim, 2);
        for (int layer = 0; layer < layers; ++layer) pass.put(layer, rows, rows);
        std::vector<float> out(rows.size());
        cellar::attend(pass, 1, rows, out);
        CHECK(out == rows); // all values are 2
        pass.commit();
    }
    const auto* const values = reinterpret_cast<const cellar::half*>(block + 3 * part);
    CHECK(static_cast<float>(values[0]) == 2);
    REQUIRE(cache.remove(s, Position{0}, Position{1})); // rotates the keys in place
    const auto* const keys = reinterpret_cast<const cellar::half*>(block);
    CHECK(static_cast<float>(keys[head_dim]) != 2);
    CHECK(cache.bytes() == bytes);
}

} // namespace test_own_memory
