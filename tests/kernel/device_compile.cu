// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled for devices where there is a compiler for them, and never run: every kernel, for every mapping and element,
// called from device code.
#include <cellar/kernel/copy_cell.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/kernel/turn_packs.hpp>
#include <cellar/kernel/write_mask.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <cstddef>

namespace cellar_test {

template <class Kernel>
__global__ void run_each(Kernel kernel) {
    cellar::kernel::apply(kernel, blockIdx.x, blockIdx.y, threadIdx.x);
}

template <class Kernel>
__global__ void run_each_index(Kernel kernel) {
    kernel(static_cast<std::int32_t>(blockIdx.x));
}

/// What a kernel of tiles asks of a team of Kokkos; of one thread, which waits for none.
struct Team {
    void* memory;
    int tile;

    CELLAR_FUNCTION const Team& team_shmem() const { return *this; }
    CELLAR_FUNCTION void* get_shmem(const int&) const { return memory; }
    CELLAR_FUNCTION int league_rank() const { return tile; }
    CELLAR_FUNCTION int team_rank() const { return 0; }
    CELLAR_FUNCTION int team_size() const { return 1; }
    CELLAR_FUNCTION void team_barrier() const {}
};

template <class Each>
__global__ void run_each_tile(Each each) {
    __shared__ typename Each::Value shared[Each::bytes / sizeof(typename Each::Value)];
    each(Team{shared, static_cast<int>(blockIdx.x)});
}

/// As a backend launches kernels of (i, head, d).
template <class Mapping, class Kernel>
void launch_elements(const Kernel& kernel) {
    run_each<<<1, 1>>>(kernel);
    run_each_index<<<1, 1>>>(cellar::kernel::EachElement<Kernel, Mapping::contiguous_cells>{kernel, 0, 1, 1, 1});
}

template <class Mapping, class Element, class Pairing>
void launch_turn(Mapping mapping, Element* memory) {
    using Shift = cellar::RopeShift<Pairing>;
    using Rotation = typename Shift::Rotation;
    using Factor = typename Shift::Factor;
    using Run = cellar::kernel::CellRun;
    using List = cellar::kernel::CellList;
    const Rotation rotation{0, 4};
    launch_elements<Mapping>(
        cellar::kernel::Turn<Mapping, Element, Rotation, Factor, Run>{mapping, memory, rotation, nullptr, {0}});
    launch_elements<Mapping>(
        cellar::kernel::Turn<Mapping, Element, Rotation, Factor, List>{mapping, memory, rotation, nullptr, {nullptr}});
}

template <class Element, class Pairing, cellar::kernel::PairOrder order>
void launch_turn_packs(cellar::CellsHeadsDims mapping, Element* memory) {
    using Shift = cellar::RopeShift<Pairing>;
    using Rotation = typename Shift::Rotation;
    using Factor = typename Shift::Factor;
    constexpr int width = cellar::kernel::pack_width<Element, Element>;
    launch_elements<cellar::CellsHeadsDims>(cellar::kernel::TurnPacks<Element, width, order, Rotation, Factor>{
        mapping, memory, Rotation{0, 4}, nullptr, {nullptr}});
}

template <class Mapping, class Element, class T>
void launch_rows(Mapping mapping, Element* memory) {
    const cellar::StridedView<const T, 3> from;
    const cellar::StridedView<T, 3> to;
    launch_elements<Mapping>(cellar::kernel::Scatter<Mapping, Element, T>{mapping, memory, {nullptr}, from});
    launch_elements<Mapping>(cellar::kernel::Gather<Mapping, Element, T>{mapping, memory, {nullptr}, to});
    launch_elements<Mapping>(cellar::kernel::CopyCell<Mapping, Element>{mapping, memory, {nullptr}, {nullptr}});
}

template <class Mapping, class Element, class T>
void launch_packs(Mapping mapping, Element* memory) {
    constexpr int width = cellar::kernel::pack_width<Element, T>;
    using Pack = cellar::kernel::Pack<Element, width>;
    launch_rows<Mapping, Pack, cellar::kernel::Pack<T, width>>(mapping, reinterpret_cast<Pack*>(memory));
}

template <class Mapping, class Element, class T>
void launch_tiles(Mapping mapping, Element* memory) {
    using Scatter = cellar::kernel::Scatter<Mapping, Element, T>;
    using Gather = cellar::kernel::Gather<Mapping, Element, T>;
    run_each_tile<<<1, 1>>>(
        cellar::kernel::EachTile<Scatter, true, Team>{Scatter{mapping, memory, {nullptr}, {}}, 1, 1, 1});
    run_each_tile<<<1, 1>>>(
        cellar::kernel::EachTile<Gather, false, Team>{Gather{mapping, memory, {nullptr}, {}}, 1, 1, 1});
}

template <class T>
void launch_masks() {
    constexpr int width = cellar::kernel::pack_width<T, T>;
    using Rows = cellar::CellsHeadsDims;
    launch_elements<Rows>(cellar::kernel::WriteMask<T, 1>{nullptr, T{}, T{}, nullptr, 1});
    launch_elements<Rows>(cellar::kernel::WriteMask<T, width>{nullptr, T{}, T{}, nullptr, 64});
}

template void launch_masks<float>();
template void launch_masks<cellar::half>();
template void launch_masks<bool>();

template <class Mapping, class Element>
void launch_all() {
    const Mapping mapping{16, 2, 8};
    Element* const memory = nullptr;
    launch_rows<Mapping, Element, Element>(mapping, memory);
    launch_rows<Mapping, Element, float>(mapping, memory);
    launch_packs<Mapping, Element, Element>(mapping, memory);
    launch_packs<Mapping, Element, float>(mapping, memory);
    launch_tiles<Mapping, Element, Element>(mapping, memory);
    launch_tiles<Mapping, Element, float>(mapping, memory);
    launch_turn<Mapping, Element, cellar::Neox>(mapping, memory);
    launch_turn<Mapping, Element, cellar::Interleaved>(mapping, memory);
    const cellar::CellsHeadsDims rows{16, 2, 8};
    launch_turn_packs<Element, cellar::Neox, cellar::kernel::PairOrder::apart>(rows, memory);
    launch_turn_packs<Element, cellar::Interleaved, cellar::kernel::PairOrder::neighbours>(rows, memory);
}

void launch_copy_slots() {
    launch_elements<cellar::CellsHeadsDims>(cellar::kernel::CopySlots<cellar::kernel::SlotWord>{});
    launch_elements<cellar::CellsHeadsDims>(cellar::kernel::CopySlots<std::byte>{});
}

template void launch_all<cellar::CellsHeadsDims, float>();
template void launch_all<cellar::CellsHeadsDims, cellar::half>();
template void launch_all<cellar::CellsHeadsDims, cellar::bfloat16>();
template void launch_all<cellar::HeadsDimsCells, float>();
template void launch_all<cellar::HeadsDimsCells, cellar::half>();
template void launch_all<cellar::HeadsDimsCells, cellar::bfloat16>();

} // namespace cellar_test
