// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/kernel/copy_slots.hpp>
#include <cellar/kernel/kernel.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace test_copy_slots {

using cellar::SlotCopy;
using cellar::detail::kernel::CopySlots;
using cellar::detail::kernel::SlotPart;
using cellar::detail::kernel::SlotWord;

static_assert(std::is_trivially_copyable_v<CopySlots<SlotWord>>);
static_assert(sizeof(CopySlots<SlotWord>) <= 1024, "it is passed to the device by value");

TEST_CASE("copy_slots may copy the words in any order") {
    struct alignas(16) Row {
        std::array<std::uint32_t, 8> words;
    };
    std::array<Row, 3> from{};
    std::array<Row, 3> to{};
    std::array<std::uint32_t, 4> small_from{1, 2, 3, 4}; // rows of one element
    std::array<std::uint32_t, 4> small_to{9, 9, 9, 9};
    for (std::uint32_t row = 0; row < 3; ++row)
        for (std::uint32_t i = 0; i < 8; ++i) {
            from[row].words[i] = 100 * row + i;
            to[row].words[i] = 7;
        }
    const std::array<SlotCopy, 2> copies{{{2, 0}, {cellar::zero_slot, 2}}};
    const auto bytes = [](auto& list) { return reinterpret_cast<std::byte*>(list.data()); };
    const auto run_backwards = [](const auto& kernel, int tensors, std::int64_t words) {
        for (int copy = 1; copy >= 0; --copy)
            for (int tensor = tensors - 1; tensor >= 0; --tensor)
                for (std::int64_t word = words - 1; word >= 0; --word)
                    cellar::detail::kernel::apply(kernel, copy, tensor, word);
    };

    const CopySlots<SlotWord> wide{{{bytes(from), bytes(to), 32, 32, 32}}, copies.data()};
    run_backwards(wide, 1, 2);
    CHECK(to[0].words == from[2].words);
    CHECK(to[1].words == std::array<std::uint32_t, 8>{7, 7, 7, 7, 7, 7, 7, 7});
    CHECK(to[2].words == std::array<std::uint32_t, 8>{});

    // The rows may lie further apart in one memory than in the other.
    std::array<Row, 5> apart{};
    const std::array<SlotCopy, 2> upwards{{{0, 1}, {1, 2}}};
    run_backwards(CopySlots<SlotWord>{{{bytes(from), bytes(apart), 32, 64, 32}}, upwards.data()}, 1, 2);
    CHECK(apart[2].words == from[0].words);
    CHECK(apart[4].words == from[1].words);

    // Rows of 0 and of 4 bytes: the words behind their ends do not change.
    to.fill(Row{{7, 7, 7, 7, 7, 7, 7, 7}});
    const auto check_mixed = [&]<class Word>(Word) {
        small_to.fill(9);
        const CopySlots<Word> mixed{
            {{bytes(from), bytes(to), 32, 32, 0}, {bytes(small_from), bytes(small_to), 4, 4, 4}}, copies.data()};
        run_backwards(mixed, 2, 6);
        CHECK(small_to == std::array<std::uint32_t, 4>{3, 9, 0, 9});
        for (const Row& row : to) CHECK(row.words == std::array<std::uint32_t, 8>{7, 7, 7, 7, 7, 7, 7, 7});
    };
    check_mixed(SlotPart<std::uint32_t>{});
    check_mixed(SlotPart<std::uint16_t>{});
    check_mixed(std::byte{});
}

} // namespace test_copy_slots
