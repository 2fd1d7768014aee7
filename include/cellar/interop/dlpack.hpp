// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>
#include <cellar/base/view.hpp>
#include <cellar/element/element.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <dlpack/dlpack.h>
#include <memory>
#include <type_traits>
#include <utility>

#if DLPACK_MAJOR_VERSION != 1
#error "cellar/interop/dlpack.hpp: expected version 1 of DLPack"
#endif

namespace cellar {

namespace detail {

template <class T>
inline constexpr DLDataType dlpack_type{kDLFloat, 8 * sizeof(T), 1};
template <>
inline constexpr DLDataType dlpack_type<bfloat16>{kDLBfloat, 16, 1};
template <>
inline constexpr DLDataType dlpack_type<bool>{kDLBool, 8, 1};
template <>
inline constexpr DLDataType dlpack_type<std::int32_t>{kDLInt, 32, 1};

template <class T>
concept dlpack_element = Element<T> || std::same_as<T, bool> || std::same_as<T, std::int32_t>;

/// A tensor, the extents it points to, and the owner of its memory.
template <class Managed, int Rank>
struct ManagedView {
    Managed tensor{};
    std::int64_t shape[std::size_t{Rank}] = {};
    std::int64_t strides[std::size_t{Rank}] = {};
    std::shared_ptr<const void> owner;

    static void destroy(Managed* tensor) { delete static_cast<ManagedView*>(tensor->manager_ctx); }
};

/// Refuses strides whose offsets, in bytes, overflow. An extent of 1 may have any stride.
template <class T, int Rank>
void expect_addressable(const StridedView<T, Rank>& view) {
    std::uint64_t rest = INT64_MAX / sizeof(T);
    for (int r = 0; r < Rank; ++r) {
        const auto steps = static_cast<std::uint64_t>(view.extents[r] - 1);
        const auto stride = static_cast<std::uint64_t>(view.strides[r]);
        const std::uint64_t length = view.strides[r] < 0 ? 0 - stride : stride;
        CELLAR_EXPECTS(steps == 0 || length <= rest / steps, "from_dlpack: stride ", r, " is ", view.strides[r],
                       " with an extent of ", view.extents[r], ", expected elements less than 2^63 bytes apart");
        rest -= steps * length;
    }
}

} // namespace detail

/// Calls a tensor's deleter, as its receiver must.
struct DlpackDeleter {
    template <class Managed>
    void operator()(Managed* tensor) const {
        if (tensor->deleter != nullptr) tensor->deleter(tensor);
    }
};

/// `release()` hands the tensor over; the receiver calls its deleter once.
template <class Managed = DLManagedTensorVersioned>
using DlpackTensor = std::unique_ptr<Managed, DlpackDeleter>;

/// The same memory as a DLPack tensor, without a copy: keys, values, a mask, index lists. Views of constants are marked
/// read-only, which `DLManagedTensor`, the struct from before version 1, cannot express. `device` is where the memory
/// lies; {kDLCPU, 0} for the host. The tensor keeps `owner` alive. Without an owner it must not outlive the memory.
template <class Managed = DLManagedTensorVersioned, class T, int Rank>
    requires(detail::dlpack_element<std::remove_const_t<T>>)
DlpackTensor<Managed> to_dlpack(const StridedView<T, Rank>& view, DLDevice device,
                                std::shared_ptr<const void> owner = nullptr) {
    constexpr bool versioned = std::same_as<Managed, DLManagedTensorVersioned>;
    static_assert(versioned || !std::is_const_v<T>, "to_dlpack: DLManagedTensor cannot be read-only");
    using View = detail::ManagedView<Managed, Rank>;
    auto managed = std::make_unique<View>();
    managed->owner = std::move(owner);
    for (int r = 0; r < Rank; ++r) {
        managed->shape[r] = view.extent(r);
        managed->strides[r] = view.stride(r);
    }
    Managed& tensor = managed->tensor;
    if constexpr (versioned) {
        tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
        tensor.flags = std::is_const_v<T> ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    }
    tensor.deleter = View::destroy;
    DLTensor& fields = tensor.dl_tensor;
    fields.data = view.size() == 0 ? nullptr : const_cast<std::remove_const_t<T>*>(view.pointer);
    fields.device = device;
    fields.ndim = Rank;
    fields.dtype = detail::dlpack_type<std::remove_const_t<T>>;
    fields.shape = managed->shape;
    fields.strides = managed->strides;
    fields.byte_offset = 0;
    tensor.manager_ctx = managed.get();
    return DlpackTensor<Managed>{&managed.release()->tensor};
}

/// The memory of a DLPack tensor as a view, for `put`. It must hold T, have Rank extents, lie on `device` and be
/// aligned for T, and its strides must not overflow; anything else is a violation. The view does not keep the tensor
/// alive.
template <class T, int Rank>
    requires(detail::dlpack_element<std::remove_const_t<T>>)
StridedView<T, Rank> from_dlpack(const DLTensor& tensor, DLDevice device, Where where = Where::current()) {
    const detail::Caller caller{where};
    constexpr DLDataType expected = detail::dlpack_type<std::remove_const_t<T>>;
    CELLAR_EXPECTS(tensor.ndim == Rank, "from_dlpack: a tensor of ", tensor.ndim, " extents, expected ", Rank);
    CELLAR_EXPECTS(tensor.dtype.code == expected.code && tensor.dtype.bits == expected.bits && tensor.dtype.lanes == 1,
                   "from_dlpack: elements of type ", tensor.dtype.code, " with ", tensor.dtype.bits, " bits and ",
                   tensor.dtype.lanes, " lanes, expected type ", expected.code, " with ", expected.bits, " and 1");
    CELLAR_EXPECTS(tensor.device.device_type == device.device_type && tensor.device.device_id == device.device_id,
                   "from_dlpack: memory of device ", static_cast<int>(tensor.device.device_type), ":",
                   tensor.device.device_id, ", expected ", static_cast<int>(device.device_type), ":", device.device_id);
    CELLAR_EXPECTS(Rank == 0 || tensor.shape != nullptr, "from_dlpack: a null shape, expected ", Rank, " extents");
    StridedView<T, Rank> view;
    constexpr std::int64_t max_elements = INT64_MAX / static_cast<std::int64_t>(sizeof(T));
    std::int64_t dense = 1; // before DLPack 1.2, null strides mean densely packed
    for (int r = Rank - 1; r >= 0; --r) {
        view.extents[r] = tensor.shape[r];
        view.strides[r] = tensor.strides != nullptr ? tensor.strides[r] : dense;
        CELLAR_EXPECTS(view.extents[r] >= 0, "from_dlpack: extent ", r, " is ", view.extents[r],
                       ", expected 0 or more");
        CELLAR_EXPECTS(view.extents[r] == 0 || dense <= max_elements / view.extents[r],
                       "from_dlpack: more elements than memory can hold, expected fewer");
        dense *= std::max<std::int64_t>(view.extents[r], 1);
    }
    if (view.size() == 0) return view;
    detail::expect_addressable(view);
    CELLAR_EXPECTS(tensor.data != nullptr, "from_dlpack: null data with ", view.size(), " elements, expected memory");
    auto* const first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    CELLAR_EXPECTS(reinterpret_cast<std::uintptr_t>(first) % alignof(T) == 0, "from_dlpack: the memory at byte_offset ",
                   tensor.byte_offset, " is not aligned, expected an address that is a multiple of ", alignof(T));
    view.pointer = reinterpret_cast<T*>(first);
    return view;
}

/// The same for a tensor with a version and a read-only flag, which are checked.
template <class T, int Rank>
StridedView<T, Rank> from_dlpack(const DLManagedTensorVersioned& tensor, DLDevice device,
                                 Where where = Where::current()) {
    const detail::Caller caller{where};
    CELLAR_EXPECTS(tensor.version.major == DLPACK_MAJOR_VERSION, "from_dlpack: a tensor of version ",
                   tensor.version.major, " of DLPack, expected ", DLPACK_MAJOR_VERSION);
    CELLAR_EXPECTS(std::is_const_v<T> || (tensor.flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0,
                   "from_dlpack: the tensor is read-only, expected one that may be written");
    return from_dlpack<T, Rank>(tensor.dl_tensor, device);
}

} // namespace cellar
