// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "backend/memory.hpp"
#include "backend/rotated.hpp"
#include "backend/slots.hpp"
#include "shift/archetypes.hpp"
#include "violations.hpp"
#include <cellar/backend/backend.hpp>
#include <cellar/shift/frequencies.hpp>
#include <cellar/shift/rope_shift.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

// The ladder: numbered tests for every backend. Each test relies on the ones before it, so the first failure shows
// where the fault is. To test a backend, write a source file with
//     #define CELLAR_BACKEND cellar::HostBackend
//     #include "backend/ladder.hpp"

static_assert(cellar::BackendPolicy<CELLAR_BACKEND>);
TYPE_TO_STRING(CELLAR_BACKEND);

namespace cellar_test {

/// Rotates keys of random memory by several deltas.
template <class Backend, class Kind, class Pairing>
void check_rotated_keys() {
    std::mt19937 random{10};
    Memory<Backend, typename Kind::Mapping, typename Kind::Element> memory{40, 3, 16};
    memory.fill(random);
    const auto frequencies = cellar::rope_frequencies(16);
    const cellar::RopeShift<Pairing> shift{frequencies};
    const std::vector<cellar::KeyRotation> rotations{{0, 7, -3}, {20, 20, -3}, {9, 1, 100000}, {12, 2, 0}};
    memory.rotate(shift, 0, rotations);
    CHECK(is_rotated_by(memory, frequencies, shift, rotations));

    Memory<Backend, typename Kind::Mapping, typename Kind::Element> same_keys{40, 3, 16};
    random.seed(10);
    same_keys.fill(random);
    constexpr bool interleaved = std::is_same_v<Pairing, cellar::Interleaved>;
    same_keys.rotate(cellar::RopeShift<cellar::RunTimePairing>{frequencies, {interleaved}}, 0, rotations);
    CHECK(same(same_keys.read(), memory.read()));
}

} // namespace cellar_test

TEST_CASE_TEMPLATE("01 allocated memory is zero", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        Backend backend;
        const auto buffer = backend.template allocate<E>(1000);
        CHECK(buffer.size() == 1000);
        std::vector<E> elements(1000, static_cast<E>(1.0f));
        backend.copy_to_host(buffer, 0, std::span<E>{elements});
        CHECK(cellar_test::same(elements, std::vector<E>(1000, E{})));
        CHECK(backend.template allocate<E>(0).size() == 0);
    });
}

TEST_CASE_TEMPLATE("02 elements survive copies from and to the host", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{2};
        Backend backend;
        auto buffer = backend.template allocate<E>(100);
        const auto elements = cellar_test::random_elements<E>(random, 30);
        backend.copy_from_host(std::span<const E>{elements}, buffer, 50);
        std::vector<E> expected(100, E{});
        std::copy(elements.begin(), elements.end(), expected.begin() + 50);
        std::vector<E> all(100);
        backend.copy_to_host(buffer, 0, std::span<E>{all});
        CHECK(cellar_test::same(all, expected));
        std::vector<E> some(30);
        backend.copy_to_host(buffer, 50, std::span<E>{some});
        CHECK(cellar_test::same(some, elements));
        backend.copy_from_host(std::span<const E>{}, buffer, 100);
        backend.copy_to_host(buffer, 100, std::span<E>{});
    });
}

TEST_CASE_TEMPLATE("03 gather returns scattered rows", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{3};
        cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
        auto cells = cellar_test::first_cells(40);
        std::shuffle(cells.begin(), cells.end(), random);
        const auto elements = cellar_test::random_elements<E>(random, 40 * memory.row());
        memory.scatter(cells, elements);
        CHECK(cellar_test::same(memory.gather(cells), elements));
    });
}

TEST_CASE_TEMPLATE("04 scatter writes where the mapping says, and nowhere else", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{4};
        cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
        memory.fill(random);
        const std::vector<cellar::Cell> cells{39, 5, 6, 7, 0, 38, 20};
        const auto elements = cellar_test::random_elements<E>(random, std::ssize(cells) * memory.row());
        memory.scatter(cells, elements);
        for (std::size_t i = 0; i < cells.size(); ++i)
            memory.expect_row(cells[i], elements.data() + static_cast<std::int64_t>(i) * memory.row());
        CHECK(memory.is_as_expected());
    });
}

TEST_CASE_TEMPLATE("05 rows may have any strides", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{5};
        for (const auto order : cellar_test::all_orders) {
            CAPTURE(static_cast<int>(order));
            cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
            const std::vector<cellar::Cell> cells{30, 31, 32, 4, 9, 8};
            const auto elements = cellar_test::random_elements<E>(random, std::ssize(cells) * memory.row());
            memory.scatter(cells, elements, order);
            CHECK(cellar_test::same(memory.gather(cells), elements));
            CHECK(cellar_test::same(memory.gather(cells, order), elements));
        }
    });
}

TEST_CASE_TEMPLATE("06 scatter rounds float rows once, and gather returns the rounded values", Backend,
                   CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{6};
        for (const auto order : cellar_test::all_orders) {
            CAPTURE(static_cast<int>(order));
            cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
            const std::vector<cellar::Cell> cells{17, 3, 4, 5, 39};
            const auto floats = cellar_test::random_elements<float>(random, std::ssize(cells) * memory.row());
            memory.scatter(cells, floats, order);
            std::vector<E> rounded;
            std::vector<float> rounded_floats;
            for (const float value : floats) {
                rounded.push_back(static_cast<E>(value));
                rounded_floats.push_back(static_cast<float>(rounded.back()));
            }
            CHECK(cellar_test::same(memory.gather(cells), rounded));
            CHECK(cellar_test::same(memory.template gather<float>(cells, order), rounded_floats));
        }
    });
}

TEST_CASE_TEMPLATE("07 move copies runs of cells", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        std::mt19937 random{7};
        cellar_test::Memory<Backend, typename Kind::Mapping, typename Kind::Element> memory{40, 3, 6};
        memory.fill(random);
        const std::vector<cellar::Move> moves{{30, 2, 5}, {20, 10, 1}, {35, 15, 5}, {7, 39, 1}};
        for (const auto& move : moves)
            for (int i = 0; i < move.count; ++i)
                memory.expect_row(move.to + i, memory.expected_row(move.from + i).data());
        memory.move(moves);
        CHECK(memory.is_as_expected());
    });
}

TEST_CASE_TEMPLATE("08 a move may overlap itself", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        std::mt19937 random{8};
        for (const cellar::Move move : {cellar::Move{10, 9, 20}, {9, 10, 20}, {0, 7, 33}, {7, 0, 33}, {5, 5, 10}}) {
            CAPTURE(move.from);
            CAPTURE(move.to);
            cellar_test::Memory<Backend, typename Kind::Mapping, typename Kind::Element> memory{40, 3, 6};
            memory.fill(random);
            std::vector<std::vector<typename Kind::Element>> rows;
            for (int i = 0; i < move.count; ++i) rows.push_back(memory.expected_row(move.from + i));
            for (int i = 0; i < move.count; ++i)
                memory.expect_row(move.to + i, rows[static_cast<std::size_t>(i)].data());
            memory.move({move});
            CHECK(memory.is_as_expected());
        }
    });
}

TEST_CASE_TEMPLATE("09 a user-defined shift rotates exactly, by the factors of its layer", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
        const cellar_test::AddShift shift{2};
        memory.rotate(shift, 1, {{3, 2, 5}, {8, 1, -4}});
        for (const auto& [cell, delta] : {std::pair{3, 10}, {4, 10}, {8, -8}}) {
            for (int head = 0; head < 3; ++head) {
                for (int d = 0; d < 4; ++d) {
                    const int sum = d % 2 == 0 ? delta : 2 * delta;
                    memory.expected(cell, head, d) = static_cast<E>(static_cast<float>(sum));
                }
            }
        }
        CHECK(memory.is_as_expected());
    });
}

TEST_CASE_TEMPLATE("10 RoPE rotates keys, Neox pairing", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds(
        []<class Kind>(Kind) { cellar_test::check_rotated_keys<Backend, Kind, cellar::Neox>(); });
}

TEST_CASE_TEMPLATE("11 RoPE rotates keys, interleaved pairing", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds(
        []<class Kind>(Kind) { cellar_test::check_rotated_keys<Backend, Kind, cellar::Interleaved>(); });
}

TEST_CASE_TEMPLATE("12 only the rotary part of a head is rotated", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        std::mt19937 random{12};
        cellar_test::Memory<Backend, typename Kind::Mapping, typename Kind::Element> memory{40, 3, 16};
        memory.fill(random);
        const auto frequencies = cellar::rope_frequencies(6);
        const std::vector<cellar::KeyRotation> rotations{{0, 40, 11}};
        const cellar::RopeShift<cellar::Neox> first{frequencies};
        memory.rotate(first, 0, rotations);
        CHECK(cellar_test::is_rotated_by(memory, frequencies, first, rotations));
        const cellar::RopeShift<cellar::Interleaved> last{frequencies, 10};
        memory.rotate(last, 0, rotations);
        CHECK(cellar_test::is_rotated_by(memory, frequencies, last, rotations));
    });
}

TEST_CASE_TEMPLATE("13 empty work changes nothing", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        std::mt19937 random{13};
        cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{40, 3, 6};
        memory.fill(random);
        memory.scatter({}, std::vector<E>{});
        memory.scatter({}, std::vector<float>{});
        CHECK(memory.gather({}).empty());
        memory.move({});
        memory.move({{3, 9, 0}});
        const auto none = cellar::RopeShift<>::per_layer({{}, {1.0}});
        memory.rotate(none, 1, {});
        memory.rotate(none, 1, {{3, 0, 7}});
        memory.rotate(none, 0, {{3, 4, 7}});
        CHECK(memory.is_as_expected());

        cellar_test::Memory<Backend, typename Kind::Mapping, E> empty{40, 3, 0};
        empty.scatter({3, 9}, std::vector<E>{});
        CHECK(empty.gather({3, 9}).empty());
        empty.move({{3, 9, 5}});
        empty.rotate(none, 0, {{3, 4, 7}});
    });
}

TEST_CASE_TEMPLATE("14 addresses stay the same when a buffer moves", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        Backend backend;
        auto buffer = backend.template allocate<E>(10);
        const std::vector<E> one(1, static_cast<E>(1.0f));
        backend.copy_from_host(std::span<const E>{one}, buffer, 9);
        E* const address = buffer.data();
        std::vector<typename Backend::template Buffer<E>> buffers;
        for (int i = 0; i < 10; ++i) buffers.push_back(backend.template allocate<E>(i));
        buffers.push_back(std::move(buffer));
        buffers.reserve(1000);
        Backend moved = std::move(backend);
        CHECK(buffers.back().data() == address);
        std::vector<E> read(1);
        moved.copy_to_host(buffers.back(), 9, std::span<E>{read});
        CHECK(cellar_test::same(read, one));
    });
}

TEST_CASE_TEMPLATE("15 work is done in the order in which it is given", Backend, CELLAR_BACKEND) {
    cellar_test::for_all_kinds([]<class Kind>(Kind) {
        using E = typename Kind::Element;
        cellar_test::Memory<Backend, typename Kind::Mapping, E> memory{200, 4, 32};
        const auto cells = cellar_test::first_cells(200);
        cellar_test::Rows<Backend, E> in{memory.backend, cellar_test::Order::dense, 200, memory.mapping};
        cellar_test::Rows<Backend, E> out{memory.backend, cellar_test::Order::dense, 200, memory.mapping};
        in.write(memory.backend, std::vector<E>(static_cast<std::size_t>(200 * memory.row()), E{}));
        for (int round = 1; round <= 10; ++round) {
            memory.backend.scatter(memory.mapping, memory.buffer, std::span<const cellar::Cell>{cells}, in.constant());
            memory.rotate(cellar_test::AddShift{16}, 0, {{0, 100, round}});
            memory.move({{0, 100, 100}});
            memory.rotate(cellar_test::AddShift{16}, 0, {{100, 100, 1}});
            memory.backend.gather(memory.mapping, memory.buffer, std::span<const cellar::Cell>{cells}, out.view());
        }
        const auto rows = out.read(memory.backend);
        CHECK(static_cast<float>(rows.front()) == 10.0f);
        CHECK(static_cast<float>(rows.back()) == 22.0f);
    });
}

TEST_CASE_TEMPLATE("16 host copies that leave the buffer are violations", Backend, CELLAR_BACKEND) {
    Backend backend;
    auto buffer = backend.template allocate<float>(10);
    std::vector<float> four(4);
    const auto read = [&](std::int64_t first) { backend.copy_to_host(buffer, first, std::span<float>{four}); };
    const auto write = [&](std::int64_t first) { backend.copy_from_host(std::span<const float>{four}, buffer, first); };
    CHECK(violation_of([&] { read(6); }) == "none");
    CHECK(violation_of([&] { write(6); }) == "none");
    for (const std::int64_t first : {-1, 7, 11}) {
        CHECK(violation_of([&] { read(first); }) != "none");
        CHECK(violation_of([&] { write(first); }) != "none");
    }
}
