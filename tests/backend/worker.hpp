// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/host.hpp>
#include <cellar/base/zeroed.hpp>
#include <cellar/crc/crc32.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

// A device for tests with threads: a thread of its own does the work, in order, while the calling thread goes on. Only
// `fence` makes the calling thread wait for it, and only `fence` orders what the two do: the thread sanitizer finds an
// access that lacks one. Memory that is freed while work in flight uses it fails the test also without a sanitizer.

namespace cellar_test {

/// Work for a thread, in the order in which it was added. One thread may add work.
class WorkerThread {
public:
    WorkerThread() : thread_{[this] { run(); }} {}
    WorkerThread(const WorkerThread&) = delete;
    WorkerThread& operator=(const WorkerThread&) = delete;
    ~WorkerThread() {
        add(nullptr);
        thread_.join();
        delete last_;
    }

    void add(std::function<void()> work) {
        auto* const item = new Item{std::move(work)};
        Item* const before = std::exchange(last_, item); // which the thread may delete as soon as it has a next one
        ++added_;
        before->next.store(item, std::memory_order_release);
    }

    void wait() const {
        while (done_.load(std::memory_order_acquire) != added_) std::this_thread::yield();
    }

private:
    // The thread reads what was written before `next`. What it writes is released by `done_` alone, not by the list.
    struct Item {
        std::function<void()> work;
        std::atomic<Item*> next{nullptr};
    };

    void run() {
        Item* item = first_;
        while (true) {
            Item* next = nullptr;
            while ((next = item->next.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
            delete std::exchange(item, next);
            if (!item->work) return;
            std::this_thread::sleep_for(std::chrono::microseconds{200}); // as late as on a device
            item->work();
            item->work = {};
            done_.fetch_add(1, std::memory_order_release);
        }
    }

    Item* first_ = new Item{};
    Item* last_ = first_;
    std::int64_t added_ = 0;
    std::atomic<std::int64_t> done_{0};
    std::thread thread_;
};

/// The blocks of memory of a backend, and how much work in flight uses each.
class WorkerBlocks {
public:
    using Uses = std::shared_ptr<std::atomic<int>>;

    void add(const void* begin, std::int64_t bytes) {
        if (bytes != 0) blocks_[address(begin)] = {bytes, std::make_shared<std::atomic<int>>(0)};
    }
    void remove(const void* begin) {
        const auto block = blocks_.find(address(begin));
        if (block == blocks_.end()) return;
        if (block->second.uses->load() != 0) FAIL_CHECK("memory is freed while work in flight uses it");
        blocks_.erase(block);
    }
    /// Null if the memory is no block of the backend.
    Uses uses_of(const void* inside) const {
        auto block = blocks_.upper_bound(address(inside));
        if (block == blocks_.begin()) return nullptr;
        --block;
        return address(inside) < block->first + static_cast<std::uintptr_t>(block->second.bytes) ? block->second.uses
                                                                                                 : nullptr;
    }

private:
    struct Block {
        std::int64_t bytes;
        Uses uses;
    };

    static std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

    std::map<std::uintptr_t, Block> blocks_;
};

/// A backend whose work is done by a thread. It says that the host does not reach its memory, as a device does.
class WorkerBackend {
public:
    static constexpr bool host_reaches = false;

    template <class E>
    class Buffer {
    public:
        Buffer(std::shared_ptr<WorkerBlocks> blocks, std::int64_t n) : blocks_{std::move(blocks)}, memory_{n} {
            blocks_->add(memory_.data(), n * std::int64_t{sizeof(E)});
        }
        Buffer(Buffer&&) noexcept = default;
        Buffer& operator=(Buffer&& other) noexcept {
            std::swap(blocks_, other.blocks_);
            std::swap(memory_, other.memory_);
            return *this;
        }
        ~Buffer() {
            if (blocks_ != nullptr) blocks_->remove(memory_.data());
        }

        E* data() { return memory_.data(); }
        const E* data() const { return memory_.data(); }
        std::int64_t size() const { return memory_.size(); }

    private:
        std::shared_ptr<WorkerBlocks> blocks_;
        cellar::ZeroedArray<E> memory_;
    };

    template <cellar::Element E>
    Buffer<E> allocate(std::int64_t n) const {
        return Buffer<E>{blocks_, n};
    }

    template <class E>
    using PinnedBuffer = Buffer<E>;

    template <cellar::Element E>
    PinnedBuffer<E> allocate_pinned(std::int64_t n) const {
        return Buffer<E>{blocks_, n};
    }

    template <cellar::LayoutMapping Mapping, cellar::Element E, class T>
    void scatter(const Mapping& mapping, Buffer<E>& buffer, std::span<const cellar::Cell> cells,
                 cellar::StridedView<const T, 3> rows) {
        add({buffer.data(), rows.pointer}, [mapping, to = buffer.data(), list = copy_of(cells), rows] {
            cellar::detail::scatter_rows(mapping, to, std::span{list}, rows);
        });
    }

    template <cellar::LayoutMapping Mapping, cellar::Element E, class T>
    void gather(const Mapping& mapping, const Buffer<E>& buffer, std::span<const cellar::Cell> cells,
                cellar::StridedView<T, 3> rows) {
        add({buffer.data(), rows.pointer}, [mapping, from = buffer.data(), list = copy_of(cells), rows] {
            const std::span<const cellar::Cell> all{list};
            cellar::detail::gather_rows(mapping, from, all, rows, 0, cellar::detail::gather_parts(mapping, all));
        });
    }

    template <cellar::LayoutMapping Mapping, cellar::Element E>
    void move(const Mapping& mapping, Buffer<E>& buffer, std::span<const cellar::Move> moves) {
        add({buffer.data()}, [mapping, data = buffer.data(), list = copy_of(moves)] {
            const std::span<const cellar::Move> all{list};
            cellar::detail::move_runs(mapping, data, all, 0, cellar::detail::move_parts(mapping, all));
        });
    }

    template <cellar::LayoutMapping Mapping, cellar::Element E, cellar::ShiftPolicy Shift>
    void rotate(const Mapping& mapping, Buffer<E>& buffer, const Shift& shift, int layer,
                std::span<const cellar::KeyRotation> rotations) {
        const auto all = std::make_shared<Shift>(shift);
        add({buffer.data()}, [mapping, data = buffer.data(), all, layer, list = copy_of(rotations)] {
            cellar::detail::rotate_runs(mapping, data, *all, layer, std::span<const cellar::KeyRotation>{list});
        });
    }

    void copy_slots(std::span<const cellar::SlotRows> tensors, std::span<const cellar::SlotCopy> copies) {
        std::vector<const void*> used;
        for (const cellar::SlotRows& rows : tensors) {
            used.push_back(rows.from);
            used.push_back(rows.to);
        }
        add(used, [all = copy_of(tensors), list = copy_of(copies)] {
            for (const cellar::SlotRows& rows : all)
                for (const cellar::SlotCopy& copy : list) cellar::detail::copy_row(rows, copy, 0, rows.bytes);
        });
    }

    template <class T>
    void write_mask(std::span<const std::uint64_t> bits, T visible, T hidden, cellar::StridedView<T, 2> mask) {
        add({mask.pointer}, [list = copy_of(bits), visible, hidden, mask] {
            const std::int64_t words = (mask.extent(1) + 63) / 64;
            for (std::int64_t t = 0; t < mask.extent(0); ++t)
                for (std::int64_t c = 0; c < mask.extent(1); ++c) {
                    const std::uint64_t word = list[static_cast<std::size_t>(t * words + c / 64)];
                    mask(t, c) = (word >> (c % 64) & 1) != 0 ? visible : hidden;
                }
        });
    }
    void reserve(std::int64_t, std::int64_t) {}

    template <cellar::Element E>
    void copy_to_host(const Buffer<E>& buffer, std::int64_t first, std::span<E> to) {
        cellar::detail::expect_within(buffer.size(), first, std::ssize(to));
        add({buffer.data()}, [from = buffer.data() + first, to] { std::copy_n(from, to.size(), to.data()); });
        fence();
    }

    template <cellar::Element E>
    void copy_from_host(std::span<const E> from, Buffer<E>& buffer, std::int64_t first) {
        cellar::detail::expect_within(buffer.size(), first, std::ssize(from));
        add({buffer.data()}, [to = buffer.data() + first, from] { std::copy_n(from.data(), from.size(), to); });
        fence();
    }

    std::uint32_t crc32(const std::byte* bytes, std::int64_t n) {
        std::uint32_t crc = 0;
        add({bytes}, [&] { crc = cellar::detail::crc32_of({bytes, static_cast<std::size_t>(n)}); });
        fence();
        return crc;
    }

    void fence() {
        if (thread_ != nullptr) thread_->wait();
    }

    /// Work that a program enqueues beside the library's.
    template <class Work>
    void add(const std::vector<const void*>& used, Work work) const {
        std::vector<WorkerBlocks::Uses> uses;
        for (const void* const inside : used)
            if (auto block = blocks_->uses_of(inside)) uses.push_back(std::move(block));
        for (const auto& block : uses) block->fetch_add(1, std::memory_order_relaxed);
        thread_->add([uses, work = std::move(work)] {
            work();
            for (const auto& block : uses) block->fetch_sub(1, std::memory_order_relaxed);
        });
    }

private:
    template <class T>
    static std::vector<T> copy_of(std::span<const T> list) {
        return {list.begin(), list.end()};
    }

    std::shared_ptr<WorkerBlocks> blocks_ = std::make_shared<WorkerBlocks>();
    std::unique_ptr<WorkerThread> thread_ = std::make_unique<WorkerThread>();
};
static_assert(cellar::BackendPolicy<
                  WorkerBackend> && cellar::WritesMasks<WorkerBackend> && cellar::ReservesPasses<WorkerBackend>);
static_assert(cellar::PinsHostMemory<WorkerBackend> && cellar::ComputesChecksums<WorkerBackend>);

} // namespace cellar_test
