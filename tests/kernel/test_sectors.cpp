// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The memory traffic of kernels on a device, where a warp of 32 consecutive threads reads and writes whole sectors of
// 32 bytes. The tests run kernels as a device does, record every address, and check that warps touch every needed
// sector once, and no other.
#include "kernel/each.hpp"
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/rotate_packs.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/kernel/write_mask.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_sectors {

using namespace cellar;
using namespace cellar::detail;

namespace {

constexpr std::uintptr_t sector = 32;

/// The memory of a device, and the sectors of it that warps have touched.
struct Traffic {
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> memory; ///< ranges of addresses
    std::set<std::uintptr_t> read;                                 ///< sectors, by the current warp
    std::set<std::uintptr_t> written;
    std::int64_t sectors_read = 0; ///< by all earlier warps
    std::int64_t sectors_written = 0;

    void record(std::set<std::uintptr_t>& sectors, const void* at, std::size_t bytes) const {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        for (const auto& [begin, end] : memory)
            if (address >= begin && address < end)
                for (std::uintptr_t byte = 0; byte < bytes; ++byte) sectors.insert((address + byte) / sector);
    }
    void next_warp() {
        sectors_read += static_cast<std::int64_t>(read.size());
        sectors_written += static_cast<std::int64_t>(written.size());
        read.clear();
        written.clear();
    }
};

Traffic* traffic = nullptr;

/// An element of the size of T. Its reads and writes are recorded.
template <class T>
struct Traced {
    T bits;

    Traced() = default;
    Traced(const Traced& other) : bits{other.bits} { traffic->record(traffic->read, &other, sizeof(T)); }
    Traced& operator=(const Traced& other) {
        traffic->record(traffic->read, &other, sizeof(T));
        traffic->record(traffic->written, this, sizeof(T));
        bits = other.bits;
        return *this;
    }
    template <class Other>
    explicit Traced(const Traced<Other>& other) : bits{} {
        traffic->record(traffic->read, &other, sizeof(Other));
    }
    explicit Traced(float) : bits{} {}
    explicit operator float() const {
        traffic->record(traffic->read, this, sizeof(T));
        return 1.0F;
    }
};

using Half = Traced<std::uint16_t>;
using Float = Traced<std::uint32_t>;
struct alignas(16) Sixteen {
    std::uint64_t parts[2];
};

/// Device memory, aligned like allocations of Kokkos.
template <class T>
class DeviceMemory {
public:
    explicit DeviceMemory(Traffic& of, std::int64_t n) : bytes_(static_cast<std::size_t>(n) * sizeof(T) + 256) {
        const auto begin = (reinterpret_cast<std::uintptr_t>(bytes_.data()) + 255) / 256 * 256;
        first_ = reinterpret_cast<T*>(begin);
        of.memory.emplace_back(begin, begin + static_cast<std::size_t>(n) * sizeof(T));
    }
    T* data() { return first_; }

private:
    std::vector<std::byte> bytes_;
    T* first_;
};

constexpr int cells = 128;
constexpr int heads = 8;
constexpr int dim = 128;
constexpr int cache_cells = 4 * cells;
constexpr std::int64_t values = std::int64_t{cells} * heads * dim;

struct TracedDevice {
    Traffic recorded;
    std::vector<Cell> first = std::vector<Cell>(cells);
    std::vector<Cell> third = std::vector<Cell>(cells);

    TracedDevice() {
        traffic = &recorded;
        std::iota(first.begin(), first.end(), 0);
        std::iota(third.begin(), third.end(), 2 * cells);
    }

    template <bool CellsFastest, class Kernel>
    void run(const Kernel& kernel, int first_index, int second_index, int third_index) {
        const kernel::EachElement<Kernel, CellsFastest> each{kernel, 0, first_index, second_index, third_index};
        for (std::int32_t i = 0; i < each.size(); ++i) {
            if (i % 32 == 0) recorded.next_warp();
            each(i);
        }
        recorded.next_warp();
    }
    template <bool ReadsAlongDims, class Kernel>
    void run_tiles(const Kernel& kernel) {
        using Tiles = cellar_test::Tiles<Kernel, ReadsAlongDims>;
        Tiles{kernel, 0, cells, heads, dim}.run(Tiles::threads, [&](int rank) {
            if (rank % 32 == 0) recorded.next_warp();
        });
        recorded.next_warp();
    }
    void check(const std::string& what, std::int64_t bytes_read, std::int64_t bytes_written) {
        CAPTURE(what);
        CHECK(std::exchange(recorded.sectors_read, 0) == bytes_read / std::int64_t{sector});
        CHECK(std::exchange(recorded.sectors_written, 0) == bytes_written / std::int64_t{sector});
    }
};

template <class E, class T>
void check_rows() {
    constexpr int width = kernel::pack_width<E, T>;
    using Es = kernel::Pack<E, width>;
    using Ts = kernel::Pack<T, width>;
    constexpr int packs = dim / width;
    constexpr std::int64_t element_bytes = values * std::int64_t{sizeof(E)};
    constexpr std::int64_t row_bytes = values * std::int64_t{sizeof(T)};
    {
        TracedDevice device;
        DeviceMemory<Es> memory{device.recorded, std::int64_t{cache_cells} * heads * packs};
        DeviceMemory<Ts> rows{device.recorded, std::int64_t{cells} * heads * packs};
        const CellsHeadsDims mapping{cache_cells, heads, packs};
        const auto view = contiguous_view(rows.data(), cells, heads, packs);
        device.run<false>(kernel::Scatter<CellsHeadsDims, Es, Ts>{mapping, memory.data(), {device.third.data()}, view},
                          cells, heads, packs);
        device.check("rows are scattered, in packs", row_bytes, element_bytes);
        device.run<false>(kernel::Gather<CellsHeadsDims, Es, Ts>{mapping, memory.data(), {device.third.data()}, view},
                          cells, heads, packs);
        device.check("rows are gathered, in packs", element_bytes, row_bytes);
    }
    {
        TracedDevice device;
        DeviceMemory<E> memory{device.recorded, std::int64_t{cache_cells} * heads * dim};
        DeviceMemory<T> rows{device.recorded, values};
        const HeadsDimsCells mapping{cache_cells, heads, dim};
        const auto view = contiguous_view(rows.data(), cells, heads, dim);
        device.run_tiles<true>(
            kernel::Scatter<HeadsDimsCells, E, T>{mapping, memory.data(), {device.third.data()}, view});
        device.check("rows are scattered to strips, by tiles", row_bytes, element_bytes);
        device.run_tiles<false>(
            kernel::Gather<HeadsDimsCells, E, T>{mapping, memory.data(), {device.third.data()}, view});
        device.check("rows are gathered from strips, by tiles", element_bytes, row_bytes);
    }
}

template <class E>
void check_copies() {
    constexpr int width = kernel::pack_width<E, E>;
    using Es = kernel::Pack<E, width>;
    constexpr std::int64_t bytes = values * std::int64_t{sizeof(E)};
    TracedDevice device;
    DeviceMemory<E> memory{device.recorded, std::int64_t{cache_cells} * heads * dim};
    const CellsHeadsDims packs{cache_cells, 1, heads * dim / width};
    device.run<false>(
        kernel::CopyCell<CellsHeadsDims, Es>{
            packs, reinterpret_cast<Es*>(memory.data()), {device.first.data()}, {device.third.data()}},
        cells, 1, packs.dim());
    device.check("cells are copied, in packs", bytes, bytes);
    const HeadsDimsCells strips{cache_cells, heads, dim};
    device.run<true>(
        kernel::CopyCell<HeadsDimsCells, E>{strips, memory.data(), {device.first.data()}, {device.third.data()}}, cells,
        heads, dim);
    device.check("cells are copied, in strips", bytes, bytes);
}

template <class E, PairPlaces places, class Pairing>
void check_rotations() {
    using Shift = RopeShift<Pairing>;
    constexpr int width = kernel::pack_width<E, E>;
    constexpr std::int64_t bytes = values * std::int64_t{sizeof(E)};
    TracedDevice device;
    DeviceMemory<E> memory{device.recorded, std::int64_t{cache_cells} * heads * dim};
    alignas(16) typename Shift::Factor factors[dim / 2] = {};
    const typename Shift::Rotation rotation{0, dim / 2};
    using Rotate =
        kernel::RotatePacks<CellsHeadsDims, E, width, places, typename Shift::Rotation, typename Shift::Factor>;
    device.run<false>(Rotate{{cache_cells, heads, dim}, memory.data(), rotation, factors, {device.third.data()}}, cells,
                      heads, rotation.pairs() / width);
    device.check("keys are rotated", bytes, bytes);
}

} // namespace

TEST_CASE("sectors: scatter and gather touch each needed sector once") {
    check_rows<Half, Half>();
    check_rows<Half, Float>();
    check_rows<Float, Float>();
}

TEST_CASE("sectors: moves touch each needed sector once") {
    check_copies<Half>();
    check_copies<Float>();
}

TEST_CASE("sectors: rotations touch each needed sector once") {
    using enum PairPlaces;
    check_rotations<Half, apart, Neox>();
    check_rotations<Half, neighbours, Interleaved>();
    check_rotations<Float, apart, Neox>();
    check_rotations<Float, neighbours, Interleaved>();
}

TEST_CASE("sectors: masks and states touch each needed sector once") {
    constexpr int tokens = 8;
    constexpr int history = 4096;
    {
        TracedDevice device;
        using Pack = kernel::Pack<Half, kernel::pack_width<Half, Half>>;
        constexpr int packs = history / kernel::pack_width<Half, Half>;
        const std::vector<std::uint64_t> bits(tokens * history / 64, 0x5555);
        DeviceMemory<Pack> mask{device.recorded, std::int64_t{tokens} * packs};
        const Half constant{0.0F};
        device.run<false>(kernel::WriteMask<Half, kernel::pack_width<Half, Half>>{bits.data(), constant, constant,
                                                                                  mask.data(), history},
                          tokens, 1, packs);
        device.check("a mask is written", 0, std::int64_t{tokens} * history * 2);
    }
    {
        TracedDevice device;
        using Unit = Traced<Sixteen>;
        constexpr std::int64_t words[2] = {3 * 64, 64}; // of a row
        DeviceMemory<Unit> from{device.recorded, 8 * (words[0] + words[1])};
        DeviceMemory<Unit> to{device.recorded, 8 * (words[0] + words[1])};
        std::vector<SlotCopy> copies;
        for (Slot slot = 0; slot < 8; ++slot) copies.push_back({slot, 7 - slot});
        kernel::CopySlots<Unit> copy{};
        for (int tensor = 0; tensor < 2; ++tensor) {
            const std::int64_t row = words[tensor] * 16;
            const std::int64_t first = tensor * 8 * words[0];
            copy.tensors[tensor] = {reinterpret_cast<std::byte*>(from.data() + first),
                                    reinterpret_cast<std::byte*>(to.data() + first), row, row, row};
        }
        copy.copies = copies.data();
        device.run<false>(copy, 8, 2, words[0]);
        device.check("states are copied", 8 * 16 * (words[0] + words[1]), 8 * 16 * (words[0] + words[1]));
    }
}

} // namespace test_sectors
