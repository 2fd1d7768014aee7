// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Keys and values in memory of CUDA, without Kokkos; cellar keeps the books. The code of
// docs/how-to/bring-your-own-memory.md: nvcc compiles it, and test_own_memory.cpp runs it on the host.
#include "cuda.hpp"
#include <cellar/base/function.hpp>
#include <cellar/cellar.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace own_memory {

// [books]
using Books = cellar::Cache<cellar::StandardV<float>,        // says how large a row is
                            cellar::FullCausal,              // which tokens a token sees
                            cellar::RopeShift<cellar::Neox>, // keys rotate when their tokens move
                            cellar::NoData>;                 // and the program has the memory
// [/books]

// [pool]
inline constexpr int page_size = 16;

enum class Order { nhd, hnd };

/// The keys or the values of a layer, in memory of your own: FlashInfer's [pages, 16, kv_heads, head_dim] (NHD), or
/// [pages, kv_heads, 16, head_dim] (HND).
struct Pool {
    float* data;
    Order order;
    int kv_heads;
    int head_dim;

    CELLAR_FUNCTION float& at(std::int64_t cell, std::int64_t head, std::int64_t d) const {
        const std::int64_t page = cell / page_size;
        const std::int64_t place = cell % page_size;
        const std::int64_t row = order == Order::nhd ? (page * page_size + place) * kv_heads + head
                                                     : (page * kv_heads + head) * page_size + place;
        return data[row * head_dim + d];
    }
    CELLAR_FUNCTION std::int64_t row_size() const { return std::int64_t{kv_heads} * head_dim; }
};
// [/pool]

// [kernels]
/// Writes the batch's rows [tokens, kv_heads, head_dim]. A thread for each element.
__global__ void put_rows(Pool pool, const float* rows, const std::int32_t* cells, std::int64_t tokens) {
    const std::int64_t i = index();
    if (i >= tokens * pool.row_size()) return;
    const std::int64_t d = i % pool.head_dim;
    const std::int64_t head = i / pool.head_dim % pool.kv_heads;
    pool.at(cells[i / pool.row_size()], head, d) = rows[i];
}

/// Copies cells as memmove does: both ranges may overlap. A thread for each element of a row.
__global__ void copy_cells(Pool pool, cellar::Move move) {
    const std::int64_t i = index();
    if (i >= pool.row_size()) return;
    const std::int64_t d = i % pool.head_dim;
    const std::int64_t head = i / pool.head_dim;
    for (std::int32_t n = 0; n < move.count; ++n) {
        const std::int32_t c = move.to < move.from ? n : move.count - 1 - n;
        pool.at(move.to + c, head, d) = pool.at(move.from + c, head, d);
    }
}

/// Rotates keys by some positions. A thread for each cell, head and pair of elements.
__global__ void rotate(Pool keys, cellar::KeyRotation rotation, const double* frequencies) {
    const std::int64_t i = index();
    const std::int64_t pairs = keys.head_dim / 2;
    if (i >= rotation.count * keys.kv_heads * pairs) return;
    const std::int64_t cell = rotation.first + i / (pairs * keys.kv_heads);
    const std::int64_t head = i / pairs % keys.kv_heads;
    float& a = keys.at(cell, head, i % pairs);
    float& b = keys.at(cell, head, i % pairs + pairs); // Neox
    const double angle = rotation.delta * frequencies[i % pairs];
    const double cosine = cos(angle);
    const double sine = sin(angle);
    const double rotated = a * cosine - b * sine;
    b = static_cast<float>(a * sine + b * cosine);
    a = static_cast<float>(rotated);
}
// [/kernels]

// [table]
/// On the device, as FlashInfer names them.
struct PageTable {
    const std::int32_t* indptr;  // row r has pages indices[indptr[r], indptr[r + 1])
    const std::int32_t* indices; //
    const std::int32_t* last_page_len;
    std::int64_t rows;
};
// [/table]

// [gather]
/// What a kernel of FlashInfer reads, copied to [rows, most, kv_heads, head_dim]. A thread for each element.
__global__ void gather(Pool pool, PageTable table, std::int64_t most, float* to) {
    const std::int64_t i = index();
    const std::int64_t token = i / pool.row_size() % most;
    const std::int64_t r = i / pool.row_size() / most;
    if (r >= table.rows) return;
    const std::int64_t pages = table.indptr[r + 1] - table.indptr[r];
    if (pages == 0 || token >= (pages - 1) * page_size + table.last_page_len[r]) return;
    const std::int64_t page = table.indices[table.indptr[r] + token / page_size];
    to[i] = pool.at(page * page_size + token % page_size, i / pool.head_dim % pool.kv_heads, i % pool.head_dim);
}
// [/gather]

// [upload]
/// A list on the device.
template <class T>
class DeviceList {
public:
    DeviceList() = default;
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;
    ~DeviceList() { cudaFree(data_); }

    const T* data() const { return data_; }

    /// Enqueues. From ordinary memory of the host (not pinned), CUDA has copied the list when the call returns: cellar
    /// may then change it.
    const T* upload(std::span<const T> list, cudaStream_t stream) {
        if (list.size() > room_) {
            check(cudaFree(std::exchange(data_, nullptr))); // waits for kernels that read it
            room_ = 0;
            check(cudaMalloc(&data_, 2 * list.size_bytes()));
            room_ = 2 * list.size();
        }
        if (!list.empty())
            check(cudaMemcpyAsync(data_, list.data(), list.size_bytes(), cudaMemcpyHostToDevice, stream));
        return data_;
    }

private:
    T* data_ = nullptr;
    std::size_t room_ = 0;
};
// [/upload]

class Memory {
public:
    Memory(int layers, int kv_heads, int head_dim, const cellar::CacheLimits& limits, Order order)
        : books{{.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim},
                limits,
                cellar::FullCausal{},
                cellar::RopeShift<cellar::Neox>{cellar::rope_frequencies(head_dim)}} {
        check(cudaStreamCreate(&stream));
        frequencies_.upload(cellar::rope_frequencies(head_dim), stream);
        // [allocate]
        const std::int64_t elements = std::int64_t{books.cells()} * kv_heads * head_dim;
        for (int i = 0; i < 2 * layers; ++i) { // keys and values of each layer
            float* data = nullptr;
            check(cudaMalloc(&data, static_cast<std::size_t>(elements) * sizeof(float)));
            pools_.push_back({data, order, kv_heads, head_dim});
        }
        // [/allocate]
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
        for (const Pool& pool : pools_) cudaFree(pool.data);
        cudaStreamDestroy(stream);
    }

    int layers() const { return static_cast<int>(pools_.size() / 2); }
    const Pool& keys(int layer) const { return pools_[static_cast<std::size_t>(2 * layer)]; }
    const Pool& values(int layer) const { return pools_[static_cast<std::size_t>(2 * layer + 1)]; }

    // [plan]
    void carry_out(const cellar::Plan& plan) {
        for (const Pool& pool : pools_)
            for (const cellar::Move& move : plan.moves) launch(copy_cells, pool.row_size(), stream, pool, move);
        for (int layer = 0; layer < layers(); ++layer)
            for (const cellar::KeyRotation& rotation : plan.rotations)
                launch(rotate, rotation.count * keys(layer).row_size() / 2, stream, keys(layer), rotation,
                       frequencies_.data());
    }
    // [/plan]

    // [page-table]
    PageTable upload(const cellar::PageLists& pages) {
        const cellar::CompressedLists lists = pages.compressed();
        return {indptr_.upload(lists.indptr, stream), indices_.upload(lists.indices, stream),
                last_page_len_.upload(pages.last_lengths(), stream), pages.rows()};
    }
    // [/page-table]

    /// `model.project(layer)` has the keys and values of the batch, and `model.attend` reads the memory.
    template <class Model>
    cellar::Result<void> step(const cellar::Batch& batch, Model& model) {
        // [step]
        auto pass = books.begin(batch);
        if (!pass) return pass.error(); // for example Reason::full: nothing has changed
        for (const cellar::Plan& plan : books.take_plans()) carry_out(plan);

        const auto pages = pass->pages(page_size);
        if (!pages) return pages.error(); // no_pages
        const PageTable table = upload(*pages);
        const std::int32_t* const cells = cells_.upload(pass->cells(), stream);
        for (int layer = 0; layer < layers(); ++layer) {
            const auto [k, v] = model.project(layer); // on the device: [tokens, kv_heads, head_dim]
            const std::int64_t elements = pass->tokens() * keys(layer).row_size();
            launch(put_rows, elements, stream, keys(layer), k, cells, pass->tokens());
            launch(put_rows, elements, stream, values(layer), v, cells, pass->tokens());
            model.attend(layer, keys(layer), values(layer), table);
        }
        pass->commit(); // without waiting: later work is enqueued behind
        // [/step]
        return {};
    }

    Books books;
    cudaStream_t stream = nullptr;

private:
    std::vector<Pool> pools_;
    DeviceList<double> frequencies_;
    DeviceList<std::int32_t> cells_, indptr_, indices_, last_page_len_;
};

#if defined(__CUDACC__) && __INCLUDE_LEVEL__ == 0
/// So that a step is compiled.
struct AnyModel {
    struct Rows {
        const float* keys;
        const float* values;
    };
    Rows project(int layer);
    void attend(int layer, const Pool& keys, const Pool& values, const PageTable& table);
};
template cellar::Result<void> Memory::step(const cellar::Batch&, AnyModel&);
#endif

} // namespace own_memory
