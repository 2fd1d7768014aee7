// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/backend/backend.hpp>
#include <cellar/base/slot_copy.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

// The tests of the ladder that copy rows of slots.

namespace cellar_test {

/// Rows of a tensor in a backend's memory, and the bytes that they should hold.
template <class Backend, class E>
struct SlotMemory {
    SlotMemory(Backend& backend, int count, int stride)
        : buffer{backend.template allocate<E>(std::int64_t{count} * stride)},
          stride_bytes{stride * std::int64_t{sizeof(E)}},
          expected(static_cast<std::size_t>(count * stride_bytes)) {}

    void fill(Backend& backend, std::mt19937& random) {
        std::uniform_int_distribution<int> byte{0, 255};
        for (std::byte& b : expected) b = static_cast<std::byte>(byte(random));
        std::vector<E> elements(static_cast<std::size_t>(buffer.size()));
        if (!expected.empty()) std::memcpy(static_cast<void*>(elements.data()), expected.data(), expected.size());
        backend.copy_from_host(std::span<const E>{elements}, buffer, 0);
    }

    bool is_as_expected(Backend& backend) const {
        std::vector<E> elements(static_cast<std::size_t>(buffer.size()));
        backend.copy_to_host(buffer, 0, std::span<E>{elements});
        return elements.empty() || std::memcmp(elements.data(), expected.data(), expected.size()) == 0;
    }

    std::byte* bytes() { return reinterpret_cast<std::byte*>(buffer.data()); }

    typename Backend::template Buffer<E> buffer;
    std::int64_t stride_bytes;
    std::vector<std::byte> expected;
};

/// Source and target of copies, with `count` rows each. Copies take the first `elements` elements of a row.
template <class Backend, class E>
struct SlotTensor {
    SlotTensor(Backend& backend, std::mt19937& random, int count, int elements, int padding_from, int padding_to)
        : from{backend, count, elements + padding_from},
          to{backend, count, elements + padding_to},
          bytes{elements * std::int64_t{sizeof(E)}} {
        from.fill(backend, random);
        to.fill(backend, random);
    }

    cellar::SlotRows rows() { return {from.bytes(), to.bytes(), from.stride_bytes, to.stride_bytes, bytes}; }

    void expect(const std::vector<cellar::SlotCopy>& copies) {
        for (const auto& copy : copies) {
            const auto target = to.expected.begin() + copy.to * to.stride_bytes;
            const auto source = from.expected.begin() + std::max(copy.from, 0) * from.stride_bytes;
            if (copy.from == cellar::zero_slot) std::fill_n(target, bytes, std::byte{0});
            if (copy.from != cellar::zero_slot) std::copy_n(source, bytes, target);
        }
    }

    bool is_as_expected(Backend& backend) const { return from.is_as_expected(backend) && to.is_as_expected(backend); }

    SlotMemory<Backend, E> from;
    SlotMemory<Backend, E> to;
    std::int64_t bytes;
};

/// Copies to randomly chosen rows, none twice.
inline std::vector<cellar::SlotCopy> random_copies(std::mt19937& random, int rows) {
    std::vector<cellar::Slot> targets(static_cast<std::size_t>(rows));
    std::iota(targets.begin(), targets.end(), 0);
    std::shuffle(targets.begin(), targets.end(), random);
    targets.resize(static_cast<std::size_t>(std::uniform_int_distribution<int>{0, rows}(random)));
    std::vector<cellar::SlotCopy> copies;
    std::uniform_int_distribution<int> from{cellar::zero_slot, rows - 1};
    for (const cellar::Slot to : targets) copies.push_back({from(random), to});
    return copies;
}

/// Copies rows of two tensors at once and compares with the host. A row has up to `max * multiple` elements.
template <class Backend>
void check_slot_copies(std::mt19937& random, int max, int multiple) {
    const auto up_to = [&](int n) { return std::uniform_int_distribution<int>{0, n}(random); };
    Backend backend;
    const int rows = 1 + up_to(12);
    SlotTensor<Backend, float> wide{
        backend, random, rows, multiple * up_to(max), multiple * up_to(2), multiple * up_to(2)};
    SlotTensor<Backend, cellar::half> narrow{
        backend, random, rows, multiple * up_to(max), multiple * up_to(2), multiple * up_to(2)};
    for (int step = 0; step < 4; ++step) {
        const auto copies = random_copies(random, rows);
        const std::vector<cellar::SlotRows> tensors{wide.rows(), narrow.rows()};
        backend.copy_slots(tensors, copies);
        wide.expect(copies);
        narrow.expect(copies);
        CHECK(wide.is_as_expected(backend));
        CHECK(narrow.is_as_expected(backend));
    }
}

} // namespace cellar_test

TEST_CASE_TEMPLATE("17 copy_slots copies and zeroes whole rows and nothing else", Backend, CELLAR_BACKEND) {
    std::mt19937 random{17};
    Backend backend;
    cellar_test::SlotTensor<Backend, float> tensor{backend, random, 6, 8, 4, 0};
    const std::vector<cellar::SlotRows> tensors{tensor.rows()};
    const std::vector<cellar::SlotCopy> copies{{5, 0}, {cellar::zero_slot, 2}, {0, 4}, {0, 1}};
    backend.copy_slots(tensors, copies);
    tensor.expect(copies);
    CHECK(tensor.is_as_expected(backend));
    backend.copy_slots(tensors, {});
    backend.copy_slots({}, copies);
    CHECK(tensor.is_as_expected(backend));
}

TEST_CASE_TEMPLATE("18 copy_slots takes rows of any size, stride and number", Backend, CELLAR_BACKEND) {
    std::mt19937 random{18};
    for (int round = 0; round < 20; ++round) {
        cellar_test::check_slot_copies<Backend>(random, 50, 1);
        cellar_test::check_slot_copies<Backend>(random, 50, 8);
    }
    cellar_test::check_slot_copies<Backend>(random, 100000, 1);
    cellar_test::check_slot_copies<Backend>(random, 20000, 8);
}

TEST_CASE_TEMPLATE("19 copy_slots takes many tensors at once", Backend, CELLAR_BACKEND) {
    std::mt19937 random{19};
    Backend backend;
    std::vector<cellar_test::SlotTensor<Backend, float>> all;
    std::vector<cellar::SlotRows> tensors;
    for (int i = 0; i < 37; ++i) {
        all.emplace_back(backend, random, 5, 4 * (i % 3), 0, 4);
        tensors.push_back(all.back().rows());
    }
    const auto copies = cellar_test::random_copies(random, 5);
    backend.copy_slots(tensors, copies);
    for (auto& tensor : all) {
        tensor.expect(copies);
        CHECK(tensor.is_as_expected(backend));
    }
}
