// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiled by nvcc where there is one, and never run: every kernel, for every mapping and element, called from device
// code.
#include <cellar/kernel/gather.hpp>
#include <cellar/kernel/move.hpp>
#include <cellar/kernel/scatter.hpp>
#include <cellar/kernel/turn.hpp>
#include <cellar/layout/layout.hpp>
#include <cellar/shift/rope_shift.hpp>

namespace cellar_test {

template <class Kernel>
__global__ void run_each(Kernel kernel) {
    kernel(blockIdx.x, blockIdx.y, static_cast<int>(threadIdx.x));
}

template <class Kernel>
__global__ void run_each_row(Kernel kernel) {
    kernel(blockIdx.x, threadIdx.x);
}

template <class Mapping, class Element, class Pairing>
void launch_turn(Mapping mapping, Element* memory) {
    using Shift = cellar::RopeShift<Pairing>;
    const typename Shift::Rotation rotation{0, 4};
    using Turn = cellar::kernel::Turn<Mapping, Element, typename Shift::Rotation, typename Shift::Factor>;
    run_each<<<1, 1>>>(Turn{mapping, memory, rotation, nullptr, {0}});
}

template <class Mapping, class Element, class T>
void launch_rows(Mapping mapping, Element* memory) {
    const cellar::StridedView<const T, 3> from;
    const cellar::StridedView<T, 3> to;
    run_each<<<1, 1>>>(cellar::kernel::Scatter<Mapping, Element, T>{mapping, memory, nullptr, from});
    run_each<<<1, 1>>>(cellar::kernel::Gather<Mapping, Element, T>{mapping, memory, nullptr, to});
}

template <class Mapping, class Element>
void launch_all() {
    const Mapping mapping{16, 2, 8};
    Element* const memory = nullptr;
    launch_rows<Mapping, Element, Element>(mapping, memory);
    launch_rows<Mapping, Element, float>(mapping, memory);
    launch_turn<Mapping, Element, cellar::Neox>(mapping, memory);
    launch_turn<Mapping, Element, cellar::Interleaved>(mapping, memory);
    run_each_row<<<1, 1>>>(cellar::kernel::Move<Mapping, Element>{mapping, memory, {}});
}

template void launch_all<cellar::CellsHeadsDims, float>();
template void launch_all<cellar::CellsHeadsDims, cellar::half>();
template void launch_all<cellar::CellsHeadsDims, cellar::bfloat16>();
template void launch_all<cellar::HeadsDimsCells, float>();
template void launch_all<cellar::HeadsDimsCells, cellar::half>();
template void launch_all<cellar::HeadsDimsCells, cellar::bfloat16>();

} // namespace cellar_test
