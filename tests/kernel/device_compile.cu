// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every kernel, for every mapping and element, called from device code. Compiled if a compiler for devices is
// installed, and never run.
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/kernel/attend_tiles.hpp>
#include <cellar/kernel/attention.hpp>
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/each_element.hpp>
#include <cellar/kernel/each_tile.hpp>
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/join_parts.hpp>
#include <cellar/kernel/kernel.hpp>
#include <cellar/kernel/pack.hpp>
#include <cellar/kernel/rotate.hpp>
#include <cellar/kernel/rotate_packs.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/kernel/staged_rows.hpp>
#include <cellar/kernel/unit_heads.hpp>
#include <cellar/kernel/write_mask.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/layout/stored_units.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <cstddef>

namespace cellar_test {

template <class Kernel>
__global__ void run_each(Kernel kernel) {
    cellar::detail::kernel::apply(kernel, blockIdx.x, blockIdx.y, threadIdx.x);
}

template <class Kernel>
__global__ void run_each_index(Kernel kernel) {
    kernel(static_cast<std::int32_t>(blockIdx.x));
}

/// A Kokkos team of one thread, as far as kernels of tiles use it.
struct Team {
    void* memory;
    int tile;

    CELLAR_FUNCTION const Team& team_shmem() const { return *this; }
    CELLAR_FUNCTION void* get_shmem(const std::int64_t&) const { return memory; }
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

template <class Kernel>
__global__ void run_team(Kernel kernel) {
    extern __shared__ double shared[];
    kernel(Team{shared, static_cast<int>(blockIdx.x)});
}

/// Launches a kernel of (i, head, d) as a backend does.
template <class Mapping, class Kernel>
void launch_elements(const Kernel& kernel) {
    run_each<<<1, 1>>>(kernel);
    run_each_index<<<1, 1>>>(
        cellar::detail::kernel::EachElement<Kernel, cellar::detail::contiguous_cells<Mapping>>{kernel, 0, 1, 1, 1});
}

template <class Mapping, class Element, class Pairing>
void launch_rotate(Mapping mapping, Element* memory) {
    using Shift = cellar::RopeShift<Pairing>;
    using Rotation = typename Shift::Rotation;
    using Factor = typename Shift::Factor;
    using Run = cellar::detail::kernel::CellRun;
    using List = cellar::detail::kernel::CellList;
    const Rotation rotation{0, 4};
    launch_elements<Mapping>(cellar::detail::kernel::Rotate<Mapping, Element, Rotation, Factor, Run>{
        mapping, memory, rotation, nullptr, {0}});
    launch_elements<Mapping>(cellar::detail::kernel::Rotate<Mapping, Element, Rotation, Factor, List>{
        mapping, memory, rotation, nullptr, {nullptr}});
}

template <class Mapping, class Element, class Pairing, cellar::detail::PairPlaces places>
void launch_rotate_packs(Mapping mapping, Element* memory) {
    using Shift = cellar::RopeShift<Pairing>;
    using Rotation = typename Shift::Rotation;
    using Factor = typename Shift::Factor;
    constexpr int width = cellar::detail::kernel::pack_width<Element, Element>;
    launch_elements<Mapping>(cellar::detail::kernel::RotatePacks<Mapping, Element, width, places, Rotation, Factor>{
        mapping, memory, Rotation{0, 4}, nullptr, {nullptr}});
}

template <class Mapping, class Element, class T>
void launch_rows(Mapping mapping, Element* memory) {
    const cellar::StridedView<const T, 3> from;
    const cellar::StridedView<T, 3> to;
    launch_elements<Mapping>(cellar::detail::kernel::Scatter<Mapping, Element, T>{mapping, memory, {nullptr}, from});
    launch_elements<Mapping>(cellar::detail::kernel::Gather<Mapping, Element, T>{mapping, memory, {nullptr}, to});
    launch_elements<Mapping>(cellar::detail::kernel::CopyCell<Mapping, Element>{mapping, memory, {nullptr}, {nullptr}});
}

template <class Mapping, class Element, class T>
void launch_packs(Mapping mapping, Element* memory) {
    constexpr int width = cellar::detail::kernel::pack_width<Element, T>;
    using Pack = cellar::detail::kernel::Pack<Element, width>;
    launch_rows<Mapping, Pack, cellar::detail::kernel::Pack<T, width>>(mapping, reinterpret_cast<Pack*>(memory));
}

template <class Mapping, class Element, class T>
void launch_tiles(Mapping mapping, Element* memory) {
    using Scatter = cellar::detail::kernel::Scatter<Mapping, Element, T>;
    using Gather = cellar::detail::kernel::Gather<Mapping, Element, T>;
    run_each_tile<<<1, 1>>>(
        cellar::detail::kernel::EachTile<Scatter, true, Team>{Scatter{mapping, memory, {nullptr}, {}}, 0, 1, 1, 1});
    run_each_tile<<<1, 1>>>(
        cellar::detail::kernel::EachTile<Gather, false, Team>{Gather{mapping, memory, {nullptr}, {}}, 0, 1, 1, 1});
}

template <class T>
void launch_masks() {
    constexpr int width = cellar::detail::kernel::pack_width<T, T>;
    using Rows = cellar::CellsHeadsDims;
    launch_elements<Rows>(cellar::detail::kernel::WriteMask<T, 1>{nullptr, T{}, T{}, nullptr, 1});
    launch_elements<Rows>(cellar::detail::kernel::WriteMask<T, width>{nullptr, T{}, T{}, nullptr, 64});
}

template void launch_masks<float>();
template void launch_masks<cellar::half>();
template void launch_masks<bool>();

template <class Mapping, class Element, class T>
void launch_attention(Mapping mapping, const Element* memory) {
    using Stored = cellar::StoredRows<Mapping, Element>;
    using Rows = cellar::detail::kernel::PackedRows<Stored>;
    const Rows rows{Stored{mapping, memory, 8}, true};
    const cellar::detail::kernel::Divisor heads{2};
    const cellar::detail::kernel::AttentionCall<T> call{{}, {}, {}, {}, nullptr, nullptr, 0, 8, heads, heads};
    run_team<<<1, 1>>>(cellar::detail::kernel::AttendTiles<Rows, Rows, T, T, Team>{
        rows, rows, {}, call, nullptr, {}, 0, {8, 8, 1}, {}});
    run_team<<<1, 1>>>(cellar::detail::kernel::JoinParts<T, Team>{call, 1});
}

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
    launch_rotate<Mapping, Element, cellar::Neox>(mapping, memory);
    launch_rotate<Mapping, Element, cellar::Interleaved>(mapping, memory);
    launch_rotate<Mapping, Element, cellar::RunTimePairing>(mapping, memory);
    launch_attention<Mapping, Element, Element>(mapping, memory);
    launch_attention<Mapping, Element, float>(mapping, memory);
    if constexpr (cellar::detail::contiguous_heads<Mapping>) {
        using enum cellar::detail::PairPlaces;
        launch_rotate_packs<Mapping, Element, cellar::Neox, apart>(mapping, memory);
        launch_rotate_packs<Mapping, Element, cellar::Interleaved, neighbours>(mapping, memory);
        launch_rotate_packs<Mapping, Element, cellar::RunTimePairing, apart>(mapping, memory);
    }
}

void launch_copy_slots() {
    launch_elements<cellar::CellsHeadsDims>(cellar::detail::kernel::CopySlots<cellar::detail::kernel::SlotWord>{});
    launch_elements<cellar::CellsHeadsDims>(
        cellar::detail::kernel::CopySlots<cellar::detail::kernel::SlotPart<std::uint32_t>>{});
    launch_elements<cellar::CellsHeadsDims>(
        cellar::detail::kernel::CopySlots<cellar::detail::kernel::SlotPart<std::uint16_t>>{});
    launch_elements<cellar::CellsHeadsDims>(cellar::detail::kernel::CopySlots<std::byte>{});
}

template <class F, class Mapping>
void launch_units() {
    using Written = cellar::StoredUnits<F, Mapping, true>;
    using Read = cellar::StoredUnits<F, Mapping>;
    using Shift = cellar::RopeShift<cellar::Neox>;
    const Mapping mapping{16, 2, 128 / cellar::detail::values_per_unit<F>};
    const cellar::detail::kernel::UnitHeads<Written> heads{{mapping, nullptr, nullptr}, {nullptr}, 1};
    run_team<<<1, 1>>>(cellar::detail::kernel::EncodeHeads<Written, Team>{heads, {}, nullptr});
    run_team<<<1, 1>>>(cellar::detail::kernel::DecodeHeads<Written, Team>{heads, {}, nullptr});
    run_team<<<1, 1>>>(
        cellar::detail::kernel::RotateHeads<Written, typename Shift::Rotation, typename Shift::Factor, Team>{
            heads, typename Shift::Rotation{0, 4}, nullptr});
    const Read rows{mapping, nullptr, nullptr};
    const cellar::detail::kernel::Divisor two{2};
    const cellar::detail::kernel::AttentionCall<float> call{{}, {}, {}, {}, nullptr, nullptr, 0, 128, two, two};
    run_team<<<1, 1>>>(cellar::detail::kernel::AttendTiles<Read, Read, float, float, Team>{
        rows, rows, {}, call, nullptr, {}, 0, {128, 128, 1}, {}});
}

template <class F>
void launch_units_of() {
    launch_units<F, cellar::CellsHeadsDims>();
    launch_units<F, cellar::BlocksHeadsCellsDims<64>>();
}

template void launch_units_of<cellar::q8_0>();
template void launch_units_of<cellar::q4_0>();
template void launch_units_of<cellar::q4_1>();
template void launch_units_of<cellar::q5_0>();
template void launch_units_of<cellar::q5_1>();
template void launch_units_of<cellar::iq4_nl>();
template void launch_units_of<cellar::mxfp4>();
template void launch_units_of<cellar::nvfp4>();
template void launch_units_of<cellar::nvfp4_four_over_six>();
template void launch_units_of<cellar::fp8_e4m3>();
template void launch_units_of<cellar::fp8_e5m2>();
template void launch_units_of<cellar::int8_per_head>();
template void launch_units_of<cellar::Affine<3>>();
template void launch_units_of<cellar::Affine<8>>();
template void launch_units_of<cellar::Rotated<cellar::Hadamard<128>, cellar::q4_0>>();

template void launch_all<cellar::CellsHeadsDims, float>();
template void launch_all<cellar::CellsHeadsDims, cellar::half>();
template void launch_all<cellar::CellsHeadsDims, cellar::bfloat16>();
template void launch_all<cellar::HeadsDimsCells, float>();
template void launch_all<cellar::HeadsDimsCells, cellar::half>();
template void launch_all<cellar::HeadsDimsCells, cellar::bfloat16>();
template void launch_all<cellar::BlocksHeadsCellsDims<64>, float>();
template void launch_all<cellar::BlocksHeadsCellsDims<64>, cellar::half>();
template void launch_all<cellar::BlocksHeadsCellsDims<64>, cellar::bfloat16>();

} // namespace cellar_test
