// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/base/view.hpp>
#include <cellar/memory/device_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace cellar::detail {

/// Room of a backend's memory.
template <class Backend>
class BackendRoom final : public DeviceRoom {
public:
    // Floats are aligned for all elements, and for checksums.
    BackendRoom(Backend& backend, std::int64_t bytes)
        : backend_{&backend}, memory_{backend.template allocate<float>((bytes + 3) / 4)} {
        backend.fence(); // else it is cleared later, when rows may have arrived
    }

    std::byte* data() override { return reinterpret_cast<std::byte*>(memory_.data()); }
    std::int64_t size() const override { return std::int64_t{sizeof(float)} * memory_.size(); }
    const void* owner() const override { return backend_; }

private:
    const Backend* backend_; // which may be no more
    typename Backend::template Buffer<float> memory_;
};

/// The keys, or the values, of one layer in cells of a device. `find(first, count, cells)` lists the cells of rows.
template <class Backend, class Elements, class Find>
class DeviceCells final : public DeviceRows {
    using E = typename Elements::element_type;

public:
    DeviceCells(Backend& backend, Elements& rows, Find find) : backend_{backend}, rows_{rows}, find_{std::move(find)} {}

    const void* owner() const override { return &backend_; }
    std::unique_ptr<DeviceRoom> make_room(std::int64_t bytes) override {
        return std::make_unique<BackendRoom<Backend>>(backend_, bytes);
    }
    std::uint32_t gather(std::uint64_t first, std::uint64_t count, std::byte* to) override {
        find_(first, count, cells_);
        backend_.gather(rows_.mapping(), rows_.memory(), std::span<const Cell>{cells_},
                        view(reinterpret_cast<E*>(to), count));
        return backend_.crc32(to, bytes_of(count));
    }
    std::uint32_t scatter(std::uint64_t first, std::uint64_t count, const std::byte* from) override {
        find_(first, count, cells_);
        backend_.scatter(rows_.mapping(), rows_.memory(), std::span<const Cell>{cells_},
                         view(reinterpret_cast<const E*>(from), count));
        return backend_.crc32(from, bytes_of(count));
    }

private:
    template <class T>
    StridedView<T, 3> view(T* data, std::uint64_t count) const {
        return contiguous_view(data, count, rows_.mapping().heads(), rows_.mapping().dim());
    }
    std::int64_t bytes_of(std::uint64_t count) const {
        return static_cast<std::int64_t>(count) * rows_.row() * std::int64_t{sizeof(E)};
    }

    Backend& backend_;
    Elements& rows_;
    Find find_;
    TrivialList<Cell> cells_; // again for each call
};

} // namespace cellar::detail
