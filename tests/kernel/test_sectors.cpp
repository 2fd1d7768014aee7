// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reaches the memory of a device: a warp of 32 threads, one behind the other, reads and writes whole sectors of 32
// bytes. Kernels, launched as on a device, touch no sector that they do not need, and none twice.
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

using namespace cellar;
using namespace cellar::detail;

namespace {

constexpr std::uintptr_t sector = 32;

/// The memory of a device, and what warps have touched of it.
struct Traffic {
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> memory; ///< ranges of addresses
    std::set<std::uintptr_t> read;                                 ///< sectors, by the warp at work
    std::set<std::uintptr_t> written;
    std::int64_t sectors_read = 0; ///< by all warps before
    std::int64_t sectors_written = 0;

    void note(std::set<std::uintptr_t>& sectors, const void* at, std::size_t bytes) const {
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

/// An element as large as T whose reads and writes are noted.
template <class T>
struct Traced {
    T bits;

    Traced() = default;
    Traced(const Traced& other) : bits{other.bits} { traffic->note(traffic->read, &other, sizeof(T)); }
    Traced& operator=(const Traced& other) {
        traffic->note(traffic->read, &other, sizeof(T));
        traffic->note(traffic->written, this, sizeof(T));
        bits = other.bits;
        return *this;
    }
    template <class Other>
    explicit Traced(const Traced<Other>& other) : bits{} {
        traffic->note(traffic->read, &other, sizeof(Other));
    }
    explicit Traced(float) : bits{} {}
    explicit operator float() const {
        traffic->note(traffic->read, this, sizeof(T));
        return 1.0F;
    }
};

using Half = Traced<std::uint16_t>;
using Float = Traced<std::uint32_t>;
struct alignas(16) Sixteen {
    std::uint64_t parts[2];
};

/// Device memory, aligned as what Kokkos allocates.
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
constexpr int all = 4 * cells; // of the cache
constexpr std::int64_t values = std::int64_t{cells} * heads * dim;

struct Setting {
    Traffic noted;
    std::vector<Cell> first = std::vector<Cell>(cells);
    std::vector<Cell> third = std::vector<Cell>(cells);

    Setting() {
        traffic = &noted;
        std::iota(first.begin(), first.end(), 0);
        std::iota(third.begin(), third.end(), 2 * cells);
    }

    template <bool CellsFastest, class Kernel>
    void run(const Kernel& kernel, int first_index, int second_index, int third_index) {
        const kernel::EachElement<Kernel, CellsFastest> each{kernel, 0, first_index, second_index, third_index};
        for (std::int32_t i = 0; i < each.size(); ++i) {
            if (i % 32 == 0) noted.next_warp();
            each(i);
        }
        noted.next_warp();
    }
    template <bool ReadsAlongDims, class Kernel>
    void run_tiles(const Kernel& kernel) {
        using Tiles = cellar_test::Tiles<Kernel, ReadsAlongDims>;
        Tiles{kernel, cells, heads, dim}.run(Tiles::threads, [&](int rank) {
            if (rank % 32 == 0) noted.next_warp();
        });
        noted.next_warp();
    }
    void check(const std::string& what, std::int64_t bytes_read, std::int64_t bytes_written) {
        CAPTURE(what);
        CHECK(std::exchange(noted.sectors_read, 0) == bytes_read / std::int64_t{sector});
        CHECK(std::exchange(noted.sectors_written, 0) == bytes_written / std::int64_t{sector});
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
        Setting on;
        DeviceMemory<Es> memory{on.noted, std::int64_t{all} * heads * packs};
        DeviceMemory<Ts> rows{on.noted, std::int64_t{cells} * heads * packs};
        const CellsHeadsDims mapping{all, heads, packs};
        const auto view = contiguous_view(rows.data(), cells, heads, packs);
        on.run<false>(kernel::Scatter<CellsHeadsDims, Es, Ts>{mapping, memory.data(), {on.third.data()}, view}, cells,
                      heads, packs);
        on.check("rows are put, in packs", row_bytes, element_bytes);
        on.run<false>(kernel::Gather<CellsHeadsDims, Es, Ts>{mapping, memory.data(), {on.third.data()}, view}, cells,
                      heads, packs);
        on.check("rows are gathered, in packs", element_bytes, row_bytes);
    }
    {
        Setting on;
        DeviceMemory<E> memory{on.noted, std::int64_t{all} * heads * dim};
        DeviceMemory<T> rows{on.noted, values};
        const HeadsDimsCells mapping{all, heads, dim};
        const auto view = contiguous_view(rows.data(), cells, heads, dim);
        on.run_tiles<true>(kernel::Scatter<HeadsDimsCells, E, T>{mapping, memory.data(), {on.third.data()}, view});
        on.check("rows are put into strips, by tiles", row_bytes, element_bytes);
        on.run_tiles<false>(kernel::Gather<HeadsDimsCells, E, T>{mapping, memory.data(), {on.third.data()}, view});
        on.check("rows are gathered from strips, by tiles", element_bytes, row_bytes);
    }
}

template <class E>
void check_copies() {
    constexpr int width = kernel::pack_width<E, E>;
    using Es = kernel::Pack<E, width>;
    constexpr std::int64_t bytes = values * std::int64_t{sizeof(E)};
    Setting on;
    DeviceMemory<E> memory{on.noted, std::int64_t{all} * heads * dim};
    const CellsHeadsDims packs{all, 1, heads * dim / width};
    on.run<false>(
        kernel::CopyCell<CellsHeadsDims, Es>{
            packs, reinterpret_cast<Es*>(memory.data()), {on.first.data()}, {on.third.data()}},
        cells, 1, packs.dim());
    on.check("cells are copied, in packs", bytes, bytes);
    const HeadsDimsCells strips{all, heads, dim};
    on.run<true>(kernel::CopyCell<HeadsDimsCells, E>{strips, memory.data(), {on.first.data()}, {on.third.data()}},
                 cells, heads, dim);
    on.check("cells are copied, in strips", bytes, bytes);
}

template <class E, kernel::PairOrder order, class Pairing>
void check_turns() {
    using Shift = RopeShift<Pairing>;
    constexpr int width = kernel::pack_width<E, E>;
    constexpr std::int64_t bytes = values * std::int64_t{sizeof(E)};
    Setting on;
    DeviceMemory<E> memory{on.noted, std::int64_t{all} * heads * dim};
    alignas(16) typename Shift::Factor factors[dim / 2] = {};
    const typename Shift::Rotation rotation{0, dim / 2};
    using KeyRotation = kernel::RotatePacks<E, width, order, typename Shift::Rotation, typename Shift::Factor>;
    on.run<false>(KeyRotation{{all, heads, dim}, memory.data(), rotation, factors, {on.third.data()}}, cells, heads,
                  rotation.pairs() / width);
    on.check("keys are turned", bytes, bytes);
}

} // namespace

TEST_CASE("sectors: what is put and gathered") {
    check_rows<Half, Half>();
    check_rows<Half, Float>();
    check_rows<Float, Float>();
}

TEST_CASE("sectors: what is moved") {
    check_copies<Half>();
    check_copies<Float>();
}

TEST_CASE("sectors: what is turned") {
    using enum kernel::PairOrder;
    check_turns<Half, apart, Neox>();
    check_turns<Half, neighbours, Interleaved>();
    check_turns<Float, apart, Neox>();
    check_turns<Float, neighbours, Interleaved>();
}

TEST_CASE("sectors: masks and states") {
    constexpr int tokens = 8;
    constexpr int history = 4096;
    {
        Setting on;
        using Pack = kernel::Pack<Half, kernel::pack_width<Half, Half>>;
        constexpr int packs = history / kernel::pack_width<Half, Half>;
        const std::vector<std::uint64_t> bits(tokens * history / 64, 0x5555);
        DeviceMemory<Pack> mask{on.noted, std::int64_t{tokens} * packs};
        const Half constant{0.0F};
        on.run<false>(kernel::WriteMask<Half, kernel::pack_width<Half, Half>>{bits.data(), constant, constant,
                                                                              mask.data(), history},
                      tokens, 1, packs);
        on.check("a mask is written", 0, std::int64_t{tokens} * history * 2);
    }
    {
        Setting on;
        using Word = Traced<Sixteen>;
        constexpr std::int64_t words[2] = {3 * 64, 64}; // of a row
        DeviceMemory<Word> from{on.noted, 8 * (words[0] + words[1])};
        DeviceMemory<Word> to{on.noted, 8 * (words[0] + words[1])};
        std::vector<SlotCopy> copies;
        for (Slot slot = 0; slot < 8; ++slot) copies.push_back({slot, 7 - slot});
        kernel::CopySlots<Word> copy{};
        for (int tensor = 0; tensor < 2; ++tensor) {
            const std::int64_t row = words[tensor] * 16;
            const std::int64_t first = tensor * 8 * words[0];
            copy.tensors[tensor] = {reinterpret_cast<std::byte*>(from.data() + first),
                                    reinterpret_cast<std::byte*>(to.data() + first), row, row, row};
        }
        copy.copies = copies.data();
        on.run<false>(copy, 8, 2, words[0]);
        on.check("states are copied", 8 * 16 * (words[0] + words[1]), 8 * 16 * (words[0] + words[1]));
    }
}
