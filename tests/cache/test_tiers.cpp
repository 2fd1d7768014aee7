// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Snapshots that are offloaded to other formats than those of the cache: at random, beside rows that are decoded and
// encoded one by one.
#include "../hybrid/failing_allocations.hpp"
#include "../violations.hpp"
#include "format/heads.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_tiers {

using namespace cellar;
using cellar_test::StoredHead;

namespace {

constexpr int heads = 2;
constexpr int key_dim = 128;
constexpr int value_dim = 64;
using Row = std::vector<float>; ///< of one token
struct Token {
    Row key;
    Row value;
};
using Tokens = std::vector<Token>;

template <class Format>
Row rounded(const Row& row, std::size_t dim) {
    Row all;
    for (std::size_t i = 0; i < row.size(); i += dim) {
        const auto head = StoredHead<Format>{std::span{row}.subspan(i, dim)}.decoded();
        all.insert(all.end(), head.begin(), head.end());
    }
    return all;
}

/// What rows of one format are that have been in another one: nothing happens to those whose format is the same.
template <class Own, class Cold>
Row converted(const Row& row, std::size_t dim) {
    return std::is_same_v<Own, Cold> ? row : rounded<Own>(rounded<Cold>(row, dim), dim);
}

/// A cache and what it must have. `Cold...`: the formats of keys and values of its colder tier.
template <class Layout, class ColdKey, class ColdValue>
class Trial {
    using Key = typename Layout::key_format;
    using Value = typename Layout::value_format;
    struct Kept {
        CellSnapshot snapshot;
        Tokens tokens; ///< as they are in the cache, or were before they were offloaded
        bool is_cold = false;
    };

public:
    explicit Trial(std::uint32_t seed) : random_{seed} {}

    void run(int operations) {
        for (int i = 0; i < operations; ++i) {
            step(random_() % 8);
            check(random_() % sequences.size());
        }
        for (std::size_t s = 0; s < sequences.size(); ++s) check(s);
        CHECK(audit(cache_) == "");
    }

private:
    void step(std::uint32_t operation) {
        const std::size_t s = random_() % sequences.size();
        const Sequence sequence{static_cast<std::int32_t>(s)};
        switch (operation) {
        case 0:
            return feed(s);
        case 1:
            if (kept_.size() < 6) kept_.push_back({cache_.snapshot(sequence).value(), sequences[s]});
            return;
        case 2:
            REQUIRE(cache_.remove(sequence, Position{0}, to_end));
            return sequences[s].clear();
        default:
            if (!kept_.empty()) step(operation, kept_[random_() % kept_.size()], s);
        }
    }
    void step(std::uint32_t operation, Kept& kept, std::size_t s) {
        switch (operation) {
        case 3:
            return offload(kept);
        case 4:
            return reload(kept);
        case 5:
            return restore(kept, s);
        case 6:
            return divide_and_join(kept);
        default:
            std::swap(kept, kept_.back());
            kept_.pop_back();
        }
    }

    void feed(std::size_t s) {
        const auto n = static_cast<std::int32_t>(1 + random_() % 5);
        if (sequences[s].size() > 20) return;
        std::normal_distribution<float> normal;
        auto pass = cache_.begin(Sequence{static_cast<std::int32_t>(s)}, n).value();
        Row keys;
        Row values;
        for (std::int32_t i = 0; i < n; ++i) {
            Token token{Row(heads * key_dim), Row(heads * value_dim)};
            for (float& x : token.key) x = 3 * normal(random_);
            for (float& x : token.value) x = normal(random_);
            keys.insert(keys.end(), token.key.begin(), token.key.end());
            values.insert(values.end(), token.value.begin(), token.value.end());
            sequences[s].push_back({rounded<Key>(token.key, key_dim), rounded<Value>(token.value, value_dim)});
        }
        for (const int layer : {0, 1}) pass.put(layer, keys, values);
        pass.commit();
    }

    void offload(Kept& kept) {
        if (kept.snapshot.is_offloaded()) return;
        constexpr std::array places{OffloadTo::host, OffloadTo::host, OffloadTo::pinned_host, OffloadTo::backend};
        const OffloadTo to = places[random_() % places.size()];
        cache_.offload(kept.snapshot, to);
        kept.is_cold = to == OffloadTo::host;
        const std::int64_t key = bytes_of(kept.is_cold ? detail::codec_of<ColdKey> : detail::codec_of<Key>, key_dim);
        const std::int64_t value =
            bytes_of(kept.is_cold ? detail::codec_of<ColdValue> : detail::codec_of<Value>, value_dim);
        CHECK(kept.snapshot.bytes() == std::ssize(kept.tokens) * 2 * heads * (key + value));
    }
    static std::int64_t bytes_of(const detail::FormatCodec& format, std::uint64_t dim) {
        return static_cast<std::int64_t>(format.units_of(dim) * format.unit_bytes
                                         + format.scales_of(dim) * format.scale_bytes);
    }

    void reload(Kept& kept) {
        REQUIRE(cache_.reload(kept.snapshot));
        kept.tokens = restored(kept);
        kept.is_cold = false;
    }
    void restore(const Kept& kept, std::size_t s) {
        const std::size_t n = random_() % (kept.tokens.size() + 1);
        const Position to{static_cast<std::int32_t>(n)};
        REQUIRE(cache_.restore(Sequence{static_cast<std::int32_t>(s)}, kept.snapshot, to));
        sequences[s] = restored(kept);
        sequences[s].resize(n);
    }
    void divide_and_join(Kept& kept) {
        const std::size_t at = random_() % (kept.tokens.size() + 1);
        const auto middle = kept.tokens.begin() + static_cast<std::ptrdiff_t>(at);
        Kept tail{cache_.split(kept.snapshot, Position{static_cast<std::int32_t>(at)}).value(),
                  Tokens(middle, kept.tokens.end()), kept.is_cold};
        kept.tokens.erase(middle, kept.tokens.end());
        Kept& moved = random_() % 2 == 0 ? kept : tail;
        random_() % 2 == 0 ? offload(moved) : reload(moved);
        REQUIRE(cache_.merge(kept.snapshot, std::move(tail.snapshot)));
        // The tail goes where the head is. Rows that are cold are decoded, unless they stay cold.
        const Tokens joined = tail.is_cold && !kept.is_cold ? restored(tail) : tail.tokens;
        kept.tokens.insert(kept.tokens.end(), joined.begin(), joined.end());
    }

    static Tokens restored(const Kept& kept) {
        if (!kept.is_cold) return kept.tokens;
        Tokens tokens;
        for (const Token& token : kept.tokens)
            tokens.push_back(
                {converted<Key, ColdKey>(token.key, key_dim), converted<Value, ColdValue>(token.value, value_dim)});
        return tokens;
    }

    void check(std::size_t s) {
        const Tokens& expected = sequences[s];
        REQUIRE(cache_.tokens(Sequence{static_cast<std::int32_t>(s)}) == std::ssize(expected));
        std::vector<Cell> cells;
        cache_.visit_cells(Sequence{static_cast<std::int32_t>(s)}, [&](Position, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) cells.push_back(cell + i);
        });
        Row keys(cells.size() * heads * key_dim);
        Row values(cells.size() * heads * value_dim);
        const auto pass = cache_.reserve(1);
        for (const int layer : {0, 1}) {
            pass.gather(layer, cells, contiguous_view(keys.data(), std::ssize(cells), heads, key_dim),
                        contiguous_view(values.data(), std::ssize(cells), heads, value_dim));
            bool is_equal = true;
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const auto key = std::span{keys}.subspan(i * heads * key_dim, heads * key_dim);
                const auto value = std::span{values}.subspan(i * heads * value_dim, heads * value_dim);
                is_equal = is_equal && cellar_test::same_bits(key, expected[i].key)
                           && cellar_test::same_bits(value, expected[i].value);
            }
            CHECK(is_equal);
        }
    }

    std::mt19937 random_;
    Cache<Layout> cache_{{.layers = 2, .kv_heads = heads, .head_dim = key_dim, .value_dim = value_dim},
                         {.sequences = 3, .cells = 512, .batch = 8, .offload_as = stored_as<ColdKey, ColdValue>}};
    std::array<Tokens, 3> sequences;
    std::vector<Kept> kept_;
};

} // namespace

TEST_CASE("what comes back from a colder tier was decoded and encoded once, after any operations") {
    Trial<StandardV<half>, q8_0, q4_0>{1}.run(400);
    Trial<Blocked<q8_0, 16, bf16>, Rotated<Hadamard<128>, q4_0>, int8_per_head>{2}.run(400);
    Trial<PermutedV<int8_per_head, float>, fp8_e4m3, float>{3}.run(400);
    Trial<StandardV<Rotated<Hadamard<64>, q8_0>, Affine<4>>, Rotated<Hadamard<64>, q8_0>, half>{4}.run(400);
}

TEST_CASE("snapshots larger than what is converted at a time come back whole, also joined") {
    constexpr std::int32_t tokens = 300; // 64 KiB each: 8 MiB are 127 of them
    Cache<StandardV<float>> cache{
        {.layers = 1, .kv_heads = 8, .head_dim = 1024},
        {.sequences = 2, .cells = 2 * tokens, .batch = tokens, .offload_as = stored_as<half>}};
    Row rows;
    for (std::int32_t i = 0; i < tokens; ++i) rows.resize(rows.size() + 8 * 1024, static_cast<float>(i));
    auto pass = cache.begin(Sequence{0}, tokens).value();
    pass.put(0, rows, rows);
    pass.commit();
    const auto check = [&](const CellSnapshot& kept) {
        REQUIRE(cache.restore(Sequence{1}, kept));
        const auto reading = cache.reserve(1);
        bool is_equal = true;
        cache.visit_cells(Sequence{1}, [&](Position position, Cell cell, std::int32_t n) {
            for (std::int32_t i = 0; i < n; ++i) {
                const auto expected = static_cast<float>(position.value + i);
                is_equal = is_equal && reading.keys(0)(cell + i, 7, 1023) == expected
                           && reading.values(0)(cell + i, 0, 0) == expected;
            }
        });
        CHECK(cache.tokens(Sequence{1}) == tokens);
        CHECK(is_equal);
    };
    for (const OffloadTo to : {OffloadTo::host, OffloadTo::backend}) {
        CellSnapshot kept = cache.snapshot(Sequence{0}).value();
        CellSnapshot tail = cache.split(kept, Position{10}).value();
        cache.offload(kept, to);
        cache.offload(tail, to == OffloadTo::host ? OffloadTo::backend : OffloadTo::host);
        REQUIRE(cache.merge(kept, std::move(tail))); // 290 rows are converted
        check(kept);
    }
    CellSnapshot kept = cache.snapshot(Sequence{0}).value();
    cache.offload(kept);
    CHECK(kept.bytes() == std::int64_t{tokens} * 2 * 8 * 1024 * 2);
    check(kept);
}

TEST_CASE("a colder tier whose format the heads do not suit is a violation") {
    const auto make = [](StoredAs as) {
        return violation_of([&] {
            Cache<StandardV<half>>{{.layers = 1, .kv_heads = 1, .head_dim = 64, .value_dim = 40},
                                   {.sequences = 1, .capacity = 8, .batch = 8, .offload_as = as}};
        });
    };
    CHECK(make(stored_as<q8_0, half>) == "none");
    CHECK(make(stored_as<q8_0>)
          == "limits: layer 0 has a value_dim of 40, expected a multiple of 32, at most 1024, for "
             "CacheLimits::offload_as of q8_0");
    CHECK(make(stored_as<Rotated<Hadamard<128>, q8_0>, half>) != "none");
}

TEST_CASE("an operation with a colder tier that has no memory changes nothing") {
    Cache<StandardV<half>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 32},
                                 {.sequences = 2, .cells = 32, .batch = 8, .offload_as = stored_as<q8_0>}};
    auto pass = cache.begin(Sequence{0}, 6).value();
    pass.put(0, Row(6 * 32, 1.0F), Row(6 * 32, 2.0F));
    pass.commit();
    CellSnapshot kept = cache.snapshot(Sequence{0}).value();
    const auto is_offloaded = [&](bool expected) {
        return [&, expected] {
            CHECK(kept.is_offloaded() == expected);
            CHECK(cache.tokens(Sequence{0}) == 6);
            CHECK(cache.tokens(Sequence{1}) == 0);
            CHECK(audit(cache) == "");
        };
    };
    CHECK(failures_of([&] { cache.offload(kept); }, is_offloaded(false)) > 2);
    CHECK(kept.bytes() == 6 * 2 * 34);
    CHECK(failures_of([&] { cache.restore(Sequence{1}, kept).value(); }, is_offloaded(true)) > 1);
    REQUIRE(cache.remove(Sequence{1}, Position{0}, to_end));
    CHECK(failures_of([&] { cache.reload(kept).value(); }, is_offloaded(true)) > 1);
    CHECK(cache.statistics().offloaded_bytes == 0);
}

} // namespace test_tiers
