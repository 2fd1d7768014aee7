// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cellar::detail {

/// Memory of a device for rows on their way from or to another process. It may outlive the memory whose rows they are.
class DeviceRoom {
public:
    DeviceRoom() = default;
    DeviceRoom(const DeviceRoom&) = delete;
    DeviceRoom& operator=(const DeviceRoom&) = delete;
    virtual ~DeviceRoom() = default;

    virtual std::byte* data() = 0;
    virtual std::int64_t size() const = 0;
    /// Whose rows it can hold.
    virtual const void* owner() const = 0;
};

/// Rows of an array in memory that the host does not reach. All functions block until the device's work is done, so
/// that another library may use the memory afterwards.
class DeviceRows {
public:
    DeviceRows() = default;
    DeviceRows(const DeviceRows&) = delete;
    DeviceRows& operator=(const DeviceRows&) = delete;
    virtual ~DeviceRows() = default;

    /// Rooms serve all rows that have the same owner.
    virtual const void* owner() const = 0;
    /// Room for that many bytes or a few more. Throws `std::bad_alloc`.
    virtual std::unique_ptr<DeviceRoom> make_room(std::int64_t bytes) = 0;
    /// Copies rows [first, first + count) to `to`, in a room. Returns the CRC-32 of the copy.
    virtual std::uint32_t gather(std::uint64_t first, std::uint64_t count, std::byte* to) = 0;
    /// The other way round. Returns the CRC-32 of what was copied.
    virtual std::uint32_t scatter(std::uint64_t first, std::uint64_t count, const std::byte* from) = 0;
};

} // namespace cellar::detail
