// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/cellar.hpp>
#include <cellar/interop/dlpack.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_dlpack {

using namespace cellar;

namespace {

constexpr DLDevice host{kDLCPU, 0};

template <class T, int Rank>
void check_fields(const DLTensor& tensor, const StridedView<T, Rank>& view, DLDevice device) {
    CHECK(tensor.data == view.pointer);
    CHECK(tensor.byte_offset == 0);
    CHECK(tensor.device.device_type == device.device_type);
    CHECK(tensor.device.device_id == device.device_id);
    REQUIRE(tensor.ndim == Rank);
    for (int r = 0; r < Rank; ++r) {
        CHECK(tensor.shape[r] == view.extent(r));
        CHECK(tensor.strides[r] == view.stride(r));
    }
    CHECK(tensor.dtype.lanes == 1);
}

template <class T>
DLDataType type_of() {
    T element{};
    return to_dlpack(contiguous_view(&element, 1), host)->dl_tensor.dtype;
}

/// A tensor of [2, 3, 4] floats as another library would pass it.
struct Foreign {
    std::vector<float> memory = std::vector<float>(100);
    std::int64_t shape[3] = {2, 3, 4};
    std::int64_t strides[3] = {24, 8, 2};
    DLTensor tensor{memory.data(), host, 3, {kDLFloat, 32, 1}, shape, strides, 5 * sizeof(float)};

    std::string refusal() {
        return violation_of([&] { static_cast<void>(from_dlpack<const float, 3>(tensor, host)); });
    }
};

} // namespace

TEST_CASE("to_dlpack sets every field, for views with any strides") {
    std::vector<half> memory(200);
    const StridedView<half, 3> view{memory.data() + 3, {2, 3, 4}, {50, 10, 2}};
    const auto tensor = to_dlpack(view, {kDLCUDA, 2});
    check_fields(tensor->dl_tensor, view, {kDLCUDA, 2});
    CHECK(tensor->dl_tensor.dtype.code == kDLFloat);
    CHECK(tensor->dl_tensor.dtype.bits == 16);
    CHECK(tensor->version.major == DLPACK_MAJOR_VERSION);
    CHECK(tensor->version.minor == DLPACK_MINOR_VERSION);
    CHECK(tensor->flags == 0);
    CHECK(tensor->manager_ctx != nullptr);
    REQUIRE(tensor->deleter != nullptr);

    const StridedView<const half, 3> constant = view;
    CHECK(to_dlpack(constant, host)->flags == DLPACK_FLAG_BITMASK_READ_ONLY);

    const auto old = to_dlpack<DLManagedTensor>(view, host);
    check_fields(old->dl_tensor, view, host);
    CHECK(old->deleter != nullptr);

    const auto empty = to_dlpack(StridedView<half, 3>{memory.data(), {0, 3, 4}, {12, 4, 1}}, host);
    CHECK(empty->dl_tensor.data == nullptr);
    CHECK(empty->dl_tensor.shape[0] == 0);
}

TEST_CASE("to_dlpack sets the type for every element") {
    const auto is = [](DLDataType type, int code, int bits) {
        return type.code == code && type.bits == bits && type.lanes == 1;
    };
    CHECK(is(type_of<float>(), kDLFloat, 32));
    CHECK(is(type_of<half>(), kDLFloat, 16));
    CHECK(is(type_of<bfloat16>(), kDLBfloat, 16));
    CHECK(is(type_of<bool>(), kDLBool, 8));
    CHECK(is(type_of<std::int32_t>(), kDLInt, 32));
}

TEST_CASE("to_dlpack: the deleter frees the tensor and releases the owner") {
    const auto owner = std::make_shared<std::vector<float>>(24);
    auto tensor = to_dlpack(contiguous_view(owner->data(), 2, 3, 4), host, owner);
    CHECK(owner.use_count() == 2);
    DLManagedTensorVersioned* const handed_over = tensor.release();
    CHECK(owner.use_count() == 2);
    handed_over->deleter(handed_over);
    CHECK(owner.use_count() == 1);
    { const auto old = to_dlpack<DLManagedTensor>(contiguous_view(owner->data(), 24), host, owner); }
    CHECK(owner.use_count() == 1);
    DLManagedTensorVersioned foreign{};
    { const DlpackTensor<> without_deleter{&foreign}; }
}

TEST_CASE("from_dlpack takes strides and an offset, or a tensor without them") {
    Foreign foreign;
    const auto view = from_dlpack<const float, 3>(foreign.tensor, host);
    CHECK(view.pointer == foreign.memory.data() + 5);
    for (int r = 0; r < 3; ++r) {
        CHECK(view.extent(r) == foreign.shape[r]);
        CHECK(view.stride(r) == foreign.strides[r]);
    }
    foreign.tensor.strides = nullptr;
    foreign.tensor.byte_offset = 0;
    const auto dense = from_dlpack<float, 3>(foreign.tensor, host);
    CHECK(dense.pointer == foreign.memory.data());
    CHECK(dense.is_contiguous());
    CHECK(dense.size() == 24);
    foreign.shape[1] = 0;
    foreign.tensor.data = nullptr;
    foreign.tensor.byte_offset = 8;
    CHECK(from_dlpack<float, 3>(foreign.tensor, host).size() == 0);
}

TEST_CASE("from_dlpack: the message names what is wrong with the tensor") {
    Foreign foreign;
    CHECK(foreign.refusal() == "none");
    foreign.tensor.ndim = 2;
    CHECK(foreign.refusal() == "from_dlpack: a tensor of 2 extents, expected 3");
    foreign.tensor.ndim = 3;
    for (const DLDataType type :
         {DLDataType{kDLFloat, 16, 1}, DLDataType{kDLInt, 32, 1}, DLDataType{kDLFloat, 32, 4}}) {
        foreign.tensor.dtype = type;
        CHECK(foreign.refusal()
              == "from_dlpack: elements of type " + std::to_string(type.code) + " with " + std::to_string(type.bits)
                     + " bits and " + std::to_string(type.lanes) + " lanes, expected type 2 with 32 and 1");
    }
    foreign.tensor.dtype = {kDLFloat, 32, 1};
    foreign.tensor.device = {kDLCUDA, 1};
    CHECK(foreign.refusal() == "from_dlpack: memory of device 2:1, expected 1:0");
    foreign.tensor.device = {kDLCPU, 1};
    CHECK(foreign.refusal() == "from_dlpack: memory of device 1:1, expected 1:0");

    foreign.tensor.device = host;
    DLManagedTensorVersioned managed{{DLPACK_MAJOR_VERSION + 1, 0}, nullptr, nullptr, 0, foreign.tensor};
    const auto refusal = [&]<class T>(T) {
        return violation_of([&] { static_cast<void>(from_dlpack<std::remove_pointer_t<T>, 3>(managed, host)); });
    };
    CHECK(refusal(static_cast<float*>(nullptr)) == "from_dlpack: a tensor of version 2 of DLPack, expected 1");
    managed.version.major = DLPACK_MAJOR_VERSION;
    CHECK(refusal(static_cast<float*>(nullptr)) == "none");
    managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    CHECK(refusal(static_cast<float*>(nullptr))
          == "from_dlpack: the tensor is read-only, expected one that may be written");
    CHECK(refusal(static_cast<const float*>(nullptr)) == "none");
}

TEST_CASE("from_dlpack refuses tensors whose memory cannot be read") {
    {
        Foreign foreign;
        foreign.tensor.byte_offset = 6;
        CHECK(
            foreign.refusal()
            == "from_dlpack: the memory at byte_offset 6 is not aligned, expected an address that is a multiple of 4");
        foreign.tensor.byte_offset = 8;
        CHECK(foreign.refusal() == "none");
        foreign.tensor.data = reinterpret_cast<std::byte*>(foreign.memory.data()) + 1;
        foreign.tensor.byte_offset = 0;
        CHECK(foreign.refusal().starts_with("from_dlpack: the memory at byte_offset 0 is not aligned"));
        foreign.tensor.byte_offset = 3;
        CHECK(foreign.refusal() == "none");
    }
    {
        Foreign foreign;
        foreign.tensor.data = nullptr;
        CHECK(foreign.refusal() == "from_dlpack: null data with 24 elements, expected memory");
        foreign.tensor.shape = nullptr;
        CHECK(foreign.refusal() == "from_dlpack: a null shape, expected 3 extents");
    }
    for (const bool with_strides : {true, false}) {
        CAPTURE(with_strides);
        Foreign foreign;
        if (!with_strides) foreign.tensor.strides = nullptr;
        foreign.shape[2] = std::int64_t{1} << 40;
        foreign.shape[1] = std::int64_t{1} << 40;
        CHECK(foreign.refusal() == "from_dlpack: more elements than memory can hold, expected fewer");
        foreign.shape[1] = -3;
        CHECK(foreign.refusal() == "from_dlpack: extent 1 is -3, expected 0 or more");
        foreign.shape[1] = 0;
        CHECK(foreign.refusal() == "none");
    }
}

TEST_CASE("from_dlpack refuses strides that overflow") {
    constexpr std::int64_t max_elements = INT64_MAX / 4; // of floats
    const auto refusal = [](std::int64_t outer, std::int64_t middle, std::int64_t inner) {
        Foreign foreign;
        foreign.strides[0] = outer;
        foreign.strides[1] = middle;
        foreign.strides[2] = inner;
        return foreign.refusal();
    };
    const auto message = [](int r, std::int64_t stride, int extent) {
        return "from_dlpack: stride " + std::to_string(r) + " is " + std::to_string(stride) + " with an extent of "
               + std::to_string(extent) + ", expected elements less than 2^63 bytes apart";
    };
    CHECK(refusal(max_elements, 0, 0) == "none");
    CHECK(refusal(max_elements + 1, 0, 0) == message(0, max_elements + 1, 2));
    CHECK(refusal(-max_elements, 0, 0) == "none");
    CHECK(refusal(-max_elements - 1, 0, 0) == message(0, -max_elements - 1, 2));
    CHECK(refusal(INT64_MIN, 0, 0) == message(0, INT64_MIN, 2));
    CHECK(refusal(0, max_elements / 2, 0) == "none");
    CHECK(refusal(0, max_elements / 2 + 1, 0) == message(1, max_elements / 2 + 1, 3));
    CHECK(refusal(0, INT64_MAX, 0) == message(1, INT64_MAX, 3));
    CHECK(refusal(max_elements - 11, 4, 1) == "none"); // the last element is at max_elements
    CHECK(refusal(max_elements - 10, 4, 1) == message(2, 1, 4));
    CHECK(refusal(-(max_elements - 10), 4, 1) == message(2, 1, 4));

    Foreign foreign; // no element lies at a second index of an extent of 1, and none at all in an empty tensor
    foreign.strides[0] = INT64_MAX;
    foreign.shape[0] = 1;
    CHECK(foreign.refusal() == "none");
    foreign.shape[0] = 2;
    foreign.shape[2] = 0;
    CHECK(foreign.refusal() == "none");
}

TEST_CASE("put takes DLPack tensors, and views of a pass become tensors") {
    Cache<PermutedV<float>> cache{CacheShape{.layers = 1, .kv_heads = 3, .head_dim = 4}, {.capacity = 8, .batch = 2}};
    Foreign foreign;
    for (std::size_t i = 0; i < foreign.memory.size(); ++i) foreign.memory[i] = static_cast<float>(i);
    const std::vector<Position> positions{Position{0}, Position{1}};
    const std::vector<Sequence> sequences(2);
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    const auto rows = from_dlpack<const float, 3>(foreign.tensor, host);
    pass->put(0, rows, rows);
    const auto keys = to_dlpack(pass->keys(0), host);
    const auto values = to_dlpack(pass->values(0), host);
    const auto mask = to_dlpack(pass->mask<bool>(), host);
    check_fields(values->dl_tensor, pass->values(0), host);
    const auto k = from_dlpack<const float, 3>(*keys, host);
    const auto v = from_dlpack<const float, 3>(*values, host);
    const auto m = from_dlpack<const bool, 2>(*mask, host);
    for (int t = 0; t < 2; ++t) {
        for (int h = 0; h < 3; ++h)
            for (int d = 0; d < 4; ++d) {
                CHECK(k(t, h, d) == rows(t, h, d));
                CHECK(v(t, h, d) == rows(t, h, d));
            }
        for (int c = 0; c < 2; ++c) CHECK(m(t, c) == (c <= t));
    }
    pass->commit();
}

} // namespace test_dlpack
