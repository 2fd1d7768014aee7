// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/mask_writer.hpp"
#include "formats.hpp"
#include <cellar/backend/eigen.hpp>
#include <cellar/backend/host.hpp>
#include <cellar/backend/no_data.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <concepts>
#include <span>
#include <string_view>

using namespace cellar;

static_assert(BackendPolicy<HostBackend> && BackendPolicy<EigenBackend>);
static_assert(!BackendPolicy<int>);

// All backends store elements; the host stores any format.
static_assert(StoresFormat<EigenBackend, half> && !StoresFormat<EigenBackend, cellar_test::BlocksOf32>);
static_assert(
    StoresFormat<HostBackend, cellar_test::BlocksOf32> && StoresFormat<HostBackend, cellar_test::ScaledHeads>);

static_assert(WritesMasks<cellar_test::MaskWriter> && BackendPolicy<cellar_test::MaskWriter>);
static_assert(!WritesMasks<HostBackend> && !WritesMasks<EigenBackend>);
static_assert(!PinsHostMemory<HostBackend> && !PinsHostMemory<EigenBackend>);
static_assert(ReservesPasses<cellar_test::MaskWriter>);
static_assert(!ReservesPasses<HostBackend> && !ReservesPasses<EigenBackend>);
static_assert(HostBackend::host_reaches && EigenBackend::host_reaches && !cellar_test::MaskWriter::host_reaches);
static_assert(!UploadsCells<HostBackend> && !UploadsCells<EigenBackend>);
static_assert(!ComputesChecksums<HostBackend> && !ComputesChecksums<EigenBackend>);
static_assert(!WritesLists<HostBackend> && !WritesLists<EigenBackend> && !WritesLists<cellar_test::MaskWriter>);

// Without data, there is nothing else either.
static_assert(BackendPolicy<NoData> && HoldsNoData<NoData> && NoData::host_reaches);
static_assert(!HoldsNoData<HostBackend> && !HoldsNoData<EigenBackend> && !HoldsNoData<cellar_test::MaskWriter>);
static_assert(!WritesMasks<NoData> && !WritesLists<NoData> && !BorrowsMemory<NoData> && !ReservesPlans<NoData>);
static_assert(!StoresFormat<NoData, cellar_test::BlocksOf32>);

// Formats for devices.
static_assert(DeviceFormat<q8_0> && DeviceFormat<int8_per_head> && DeviceFormat<Rotated<Hadamard<64>, q4_0>>);
// Their functions are for the host alone, and so are those of their rotation.
static_assert(!DeviceFormat<cellar_test::BlocksOf32> && !DeviceFormat<cellar_test::ScaledHeads>);
struct HostRotation {
    static constexpr int values_per_rotation = 2;
    static constexpr std::string_view name = "host";
    static void rotate(std::span<float> head);
    static void undo(std::span<float> head);
};
static_assert(HeadRotation<HostRotation> && !DeviceFormat<Rotated<HostRotation, q4_0>>);

// A buffer has one owner.
static_assert(std::movable<HostBackend::Buffer<float>>);
static_assert(!std::copyable<HostBackend::Buffer<float>>);
static_assert(std::movable<EigenBackend::Buffer<half>>);
static_assert(!std::copyable<EigenBackend::Buffer<half>>);

namespace {

struct WithoutFence : HostBackend {
    void fence() const = delete;
};
struct WithoutMove : HostBackend {
    void move() const {}
};
struct WithoutRotate : HostBackend {
    void rotate() const {}
};
struct WithoutGather : HostBackend {
    void gather() const {}
};
// Accepts one mapping only.
struct OneMapping : HostBackend {
    template <Element E, class T>
    void scatter(const CellsHeadsDims&, Buffer<E>&, std::span<const Cell>, StridedView<const T, 3>) const {}
};
// Accepts one shift policy only.
struct OneShift : HostBackend {
    template <LayoutMapping Mapping, Element E>
    void rotate(const Mapping&, Buffer<E>&, const RopeShift<>&, int, std::span<const KeyRotation>) const {}
};
// Gathers rows of float only.
struct FloatRows : HostBackend {
    template <LayoutMapping Mapping, Element E>
    void gather(const Mapping&, const Buffer<E>&, std::span<const Cell>, StridedView<float, 3>) const {}
};

// Not known when compiling.
struct ReachesPerhaps : HostBackend {
    bool host_reaches = true;
};
// Memory that host and backend share, and masks that the backend writes: two different things.
struct Unified : cellar_test::MaskWriter {
    static constexpr bool host_reaches = true;
};
// A device whose masks the host writes.
struct Plain : HostBackend {
    static constexpr bool host_reaches = false;
};

} // namespace

static_assert(BackendPolicy<Unified> && WritesMasks<Unified>);
static_assert(BackendPolicy<Plain> && !WritesMasks<Plain>);
static_assert(!BackendPolicy<ReachesPerhaps>);
static_assert(!BackendPolicy<WithoutFence>);
static_assert(!BackendPolicy<WithoutMove>);
static_assert(!BackendPolicy<WithoutRotate>);
static_assert(!BackendPolicy<WithoutGather>);
static_assert(!BackendPolicy<OneMapping>);
static_assert(!BackendPolicy<OneShift>);
static_assert(!BackendPolicy<FloatRows>);
