// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Files in another format than the memory: converted when asked to, and exact in bits beside heads that are decoded and
// encoded one by one.
#include "cache/numbers.hpp"
#include "format/converted.hpp"
#include "made_files.hpp"
#include "snapshot_bytes.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/prefix_file.hpp>
#include <cellar/files/sequence_file.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/format/affine.hpp>
#include <cellar/format/blocks.hpp>
#include <cellar/format/fp4.hpp>
#include <cellar/format/fp8.hpp>
#include <cellar/format/int8.hpp>
#include <cellar/format/rotated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_conversion {

namespace {

using namespace cellar;
using cellar_test::Contents;
using cellar_test::converted;
using cellar_test::fill;
using cellar_test::random_contents;
using cellar_test::value_dim;
using disk::Bytes;
using disk::Disk;
using disk::loaded;
using disk::saved;

using RotatedKeys = Rotated<Hadamard<128>, q4_0>;
using RotatedInt8 = Rotated<Hadamard<32>, int8_per_head>;

const CacheShape& shape = cellar_test::converted_shape;
constexpr auto all = formats<float, half, bf16, q8_0, q4_0, q5_1, iq4_nl, fp8_e4m3, int8_per_head, Affine<4>, nvfp4,
                             RotatedKeys, RotatedInt8>;

/// Caches of one layout, whatever it is.
struct Side : cellar_test::Formats {
    std::function<Bytes(const Contents&, bool offloaded, SaveOptions)> saved = {};
    /// What a cache saves that has loaded the file, as a snapshot.
    std::function<Bytes(const Bytes&, FormatList)> loaded_and_saved = {};
    /// The message if it is refused, after a check that nothing has changed.
    std::function<std::string(const Bytes&, FormatList)> refusal = {};
};

template <class Layout>
Cache<Layout> make() {
    return Cache<Layout>{shape, {.sequences = 2, .cells = 320, .batch = 320}};
}

template <class Layout>
Side side() {
    Side made{cellar_test::formats_of<Layout>()};
    made.saved = [](const Contents& contents, bool offloaded, SaveOptions options) {
        auto cache = make<Layout>();
        fill(cache, contents);
        auto snapshot = cache.snapshot(Sequence{0}).value();
        if (offloaded) cache.offload(snapshot);
        return saved(cache, snapshot, std::move(options));
    };
    made.loaded_and_saved = [](const Bytes& file, FormatList known) {
        auto cache = make<Layout>();
        auto snapshot = loaded(file, cache, {.convert_from = known}).value();
        const Bytes offloaded = saved(cache, snapshot);
        REQUIRE(cache.restore(Sequence{1}, snapshot));
        REQUIRE(saved(cache, cache.snapshot(Sequence{1}).value()) == offloaded);
        return offloaded;
    };
    made.refusal = [](const Bytes& file, FormatList known) {
        auto cache = make<Layout>();
        std::mt19937 random{3};
        fill(cache, random_contents(3, random));
        const auto before = saved(cache, cache.snapshot(Sequence{0}).value());
        const auto result = loaded(file, cache, {.convert_from = known});
        REQUIRE_FALSE(result);
        CHECK(result.error() == FileReason::unsuitable);
        CHECK(saved(cache, cache.snapshot(Sequence{0}).value()) == before);
        CHECK(cache.statistics().offloaded == 0);
        CHECK(audit(cache) == "");
        return result.error().message;
    };
    return made;
}

const std::vector<Side>& sides() {
    static const std::vector<Side> made{
        side<StandardV<half>>(),
        side<StandardV<q8_0, q4_0>>(),
        side<PermutedV<RotatedKeys, bf16>>(),
        side<Blocked<int8_per_head, 16, Rotated<Hadamard<64>, q4_0>>>(),
        side<StandardV<fp8_e4m3, RotatedInt8>>(),
        side<StandardV<iq4_nl, Affine<4>>>(),
        side<Blocked<nvfp4, 64, float>>(),
    };
    return made;
}

/// The formats of all sides but one rotation of 64 values.
const std::vector<detail::FormatCodec>& known() {
    static const std::vector<detail::FormatCodec> made = [] {
        std::vector<detail::FormatCodec> list{all.begin(), all.end()};
        list.push_back(formats<Rotated<Hadamard<64>, q4_0>>[0]);
        return list;
    }();
    return made;
}

/// Calls check(from, to, contents, random) for all pairs of formats.
template <class Check>
void for_each_pair(unsigned seed, Check check) {
    std::mt19937 random{seed};
    for (const Side& from : sides())
        for (const Side& to : sides()) {
            CAPTURE(from.key);
            CAPTURE(from.value);
            CAPTURE(to.key);
            CAPTURE(to.value);
            const int tokens = std::array{0, 1, 5, 300}[random() % 4]; // 300: several pieces
            check(from, to, random_contents(tokens, random), random);
        }
}

} // namespace

TEST_CASE("a file in any format is loaded in any other as its heads are, decoded and encoded one by one") {
    for_each_pair(20261128, [](const Side& from, const Side& to, const Contents& contents, std::mt19937& random) {
        const Bytes file = from.saved(contents, random() % 2 == 0, {});
        const bool is_equal = to.loaded_and_saved(file, known()) == to.saved(converted(contents, from, to), false, {});
        CHECK(is_equal);
    });
}

TEST_CASE("a file that is saved in a format is that of a memory which has it") {
    for_each_pair(20261129, [](const Side& from, const Side& to, const Contents& contents, std::mt19937& random) {
        const bool is_equal = from.saved(contents, random() % 2 == 0, {.store_as = to.as})
                              == to.saved(converted(contents, from, to), false, {});
        CHECK(is_equal);
    });
}

TEST_CASE("a file in another format is refused without the option, and nothing has changed") {
    std::mt19937 random{5};
    const Contents contents = random_contents(4, random);
    const Bytes halves = sides()[0].saved(contents, false, {});
    const Bytes blocks = sides()[1].saved(contents, false, {});
    CHECK(sides()[1].refusal(halves, {}) == "f: its layers.0.keys has elements of type F16, expected q8_0");
    CHECK(sides()[0].refusal(blocks, {})
          == "f: its layers.0.keys has elements of type 'q8_0', expected F32, F16 or BF16");
    CHECK(sides()[0].refusal(blocks, formats<q8_0, q5_1>)
          == "f: its layers.0.values has elements of type 'q4_0', expected F32, F16 or BF16");
    CHECK(sides()[1].refusal(sides()[3].saved(contents, false, {}), formats<int8_per_head, q4_0>)
          == "f: its layers.0.values has elements of type 'hadamard64.q4_0', expected q4_0");
}

TEST_CASE("a format that the heads do not suit is refused before a file is written") {
    Cache<StandardV<half>> cache{{.layers = 1, .kv_heads = 1, .head_dim = 64, .value_dim = 40},
                                 {.sequences = 1, .capacity = 8, .batch = 8}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    pass.put(0, std::vector<float>(128, 1.0F), std::vector<float>(80, 2.0F));
    pass.commit();
    Disk disk;
    const auto save_as = [&](StoredAs as) {
        return save("f", cache, Sequence{0}, {.store_as = as, .write = {.files = &disk}});
    };
    const auto refused = save_as(stored_as<q8_0>);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == FileReason::unsuitable);
    CHECK(refused.error().message
          == "f: its layers.0.values have heads of 40 values, which the format q8_0 does not take");
    CHECK_FALSE(save_as(stored_as<Rotated<Hadamard<128>, half>, half>));
    CHECK(disk.now.empty());
    CHECK(save_as(stored_as<q8_0, fp8_e5m2>));
}

TEST_CASE("a file whose planes are not those of its format is refused, and nothing has changed") {
    const std::map<std::string, std::string> numbers{{"snapshot.kind", "1"},
                                                     {"snapshot.layers", "2"},
                                                     {"snapshot.from", "0"},
                                                     {"snapshot.to", "1"},
                                                     {"snapshot.is_window", "0"}};
    using Shape = std::vector<std::uint64_t>;
    const auto by_hand = [&](const std::string& format, const Shape& units, std::optional<Dtype> scales,
                             std::uint64_t scales_a_head = 1) {
        FilePlan plan{{{"positions", Dtype::i32, {1}}}, numbers};
        for (const std::string layer : {"layers.0.", "layers.1."}) {
            plan.metadata.emplace("formats." + layer + "keys", format);
            plan.tensors.push_back({layer + "keys", Dtype::u8, units});
            if (scales) plan.tensors.push_back({layer + "key_scales", *scales, {1, 2, scales_a_head}});
            plan.tensors.push_back({layer + "values", Dtype::f16, {1, 2, value_dim}});
        }
        Disk disk;
        auto writer = FileWriter::create("f", plan, {.files = &disk}).value();
        for (const TensorPlan& tensor : plan.tensors) {
            std::size_t bytes = cellar::bytes_of(tensor.dtype);
            for (const std::uint64_t extent : tensor.shape) bytes *= extent;
            REQUIRE(writer.append(Bytes(bytes)));
        }
        REQUIRE(writer.finish());
        return disk.now.at("f")->now;
    };
    const auto refusal = [&](const Bytes& file) { return sides()[0].refusal(file, known()); };
    auto halves = make<StandardV<half>>();
    CHECK(loaded(by_hand("q8_0", {1, 2, 4, 34}, {}), halves, {.convert_from = known()}));
    CHECK(loaded(by_hand("int8_per_head", {1, 2, 128, 1}, Dtype::f32), halves, {.convert_from = known()}));
    CHECK(refusal(by_hand("q8_0", {1, 2, 3, 34}, {})) == "f: its layers.0.keys is [1, 2, 3], expected [1, 2, 4]");
    CHECK(refusal(by_hand("q8_0", {1, 1, 4, 34}, {})) == "f: its layers.0.keys is [1, 1, 4], expected [1, 2, 4]");
    CHECK(refusal(by_hand("q8_0", {2, 2, 4, 34}, {})) == "f: its layers.0.keys is [2, 2, 4], expected [1, 2, 4]");
    CHECK(refusal(by_hand("q8_0", {1, 2, 136}, {}))
          == "f: its layers.0.keys has elements of type 'q8_0', expected F32, F16 or BF16");
    CHECK(refusal(by_hand("q8_0", {1, 2, 4, 36}, {}))
          == "f: its layers.0.keys has elements of type 'q8_0', expected F32, F16 or BF16");
    CHECK(refusal(by_hand("int8_per_head", {1, 2, 128, 1}, {}))
          == "f: it has no layers.0.key_scales, expected [1, 2, 1]");
    CHECK(refusal(by_hand("int8_per_head", {1, 2, 128, 1}, Dtype::f32, 2))
          == "f: its layers.0.key_scales is [1, 2, 2], expected [1, 2, 1]");
    CHECK(refusal(by_hand("int8_per_head", {1, 2, 128, 1}, Dtype::f16))
          == "f: its layers.0.key_scales has elements of type F16, expected F32");
    const auto larger = formats<Rotated<Hadamard<256>, q8_0>>;
    CHECK(sides()[0].refusal(by_hand("hadamard256.q8_0", {1, 2, 4, 34}, {}), larger)
          == "f: its layers.0.keys has elements of type hadamard256.q8_0, which has no heads of 128 values");
}

TEST_CASE("a file of units with any byte changed, or cut off anywhere, is refused, and nothing has changed") {
    const CacheShape small{.layers = 1, .kv_heads = 1, .head_dim = 32};
    const CacheLimits limits{.sequences = 1, .capacity = 4, .batch = 4};
    const auto fed = [&](auto cache, float x) {
        auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
        pass.put(0, std::vector<float>(64, x), std::vector<float>(64, -2.0F));
        pass.commit();
        return cache;
    };
    const auto check = [&](const Bytes& whole, auto cache, FormatList formats_of_file) {
        auto to = fed(std::move(cache), 7.0F);
        const Bytes before = saved(to, to.snapshot(Sequence{0}).value());
        REQUIRE(loaded(whole, to, {.convert_from = formats_of_file}));
        for (std::size_t at = 0; at < whole.size(); ++at) {
            Bytes bytes = whole;
            bytes[at] ^= std::byte{0x04};
            CAPTURE(at);
            CHECK_FALSE(loaded(bytes, to, {.convert_from = formats_of_file}));
            bytes.resize(at);
            CHECK_FALSE(loaded(bytes, to, {.convert_from = formats_of_file}));
        }
        CHECK(to.statistics().snapshots == 0);
        CHECK(to.statistics().offloaded == 0);
        CHECK(saved(to, to.snapshot(Sequence{0}).value()) == before);
        CHECK(audit(to) == "");
    };
    const auto check_all = [&]<class Layout>(Layout) {
        auto from = fed(Cache<Layout>{small, limits}, 1.5F);
        const Bytes whole = saved(from, from.snapshot(Sequence{0}).value());
        check(whole, Cache<Layout>{small, limits}, {}); // as it is
        check(whole, Cache<StandardV<half>>{small, limits},
              formats<typename Layout::key_format, typename Layout::value_format>);
    };
    check_all(StandardV<int8_per_head, q4_0>{});
    check_all(StandardV<Affine<4, 32>, fp8_e4m3>{}); // scales of two halves
    check_all(StandardV<mxfp4, Rotated<Hadamard<32>, int8_per_head>>{});
}

TEST_CASE("a snapshot in a colder tier is saved in the formats of the cache, and one that is loaded has them") {
    Cache<StandardV<half, int8_per_head>> cache{
        shape, {.sequences = 2, .cells = 64, .batch = 8, .offload_as = stored_as<q8_0, Rotated<Hadamard<64>, q4_0>>}};
    std::mt19937 random{7};
    fill(cache, random_contents(5, random));
    auto snapshot = cache.snapshot(Sequence{0}).value();
    const Bytes exact = saved(cache, snapshot);
    cache.offload(snapshot);
    const Bytes converted = saved(cache, snapshot);
    CHECK(converted != exact);
    REQUIRE(cache.restore(Sequence{1}, snapshot));
    CHECK(saved(cache, cache.snapshot(Sequence{1}).value()) == converted);
    const auto found = loaded(exact, cache).value();
    CHECK(found.bytes() > snapshot.bytes());
    CHECK(saved(cache, found) == exact);

    auto head = cache.snapshot(Sequence{0}).value();
    auto tail = cache.split(head, Position{3}).value();
    auto loaded_head = loaded(saved(cache, head), cache).value();
    REQUIRE(cache.merge(loaded_head, std::move(tail))); // which goes to where the head is, as it is
    CHECK(saved(cache, loaded_head) == exact);
}

TEST_CASE("sequences, prefix trees and hybrids are converted as snapshots are") {
    using Half = Cache<StandardV<half>>;
    using Few = Cache<StandardV<q8_0, int8_per_head>>;
    const CacheShape small{.layers = 1, .kv_heads = 1, .head_dim = 64};
    const CacheLimits limits{.sequences = 3, .cells = 24, .batch = 8};
    const auto feed = [](auto& memory, int tokens) {
        auto pass = memory.begin(Sequence{0}, tokens).value();
        const std::vector<float> rows(static_cast<std::size_t>(tokens) * 64, 1.0F);
        for (int layer = 0; layer < memory.layers(); ++layer)
            pass.visit(layer, [&](auto& own, int i) {
                if constexpr (requires { own.put(i, rows, rows); }) own.put(i, rows, rows);
            });
        pass.commit();
    };
    Disk disk;
    const ReadOptions here{.files = &disk};
    const SaveOptions as_few{.store_as = stored_as<q8_0, int8_per_head>, .write = {.files = &disk}};
    const LoadOptions from_few{.convert_from = formats<q8_0, int8_per_head>, .read = here};
    const LoadOptions from_half{.convert_from = formats<half>, .read = here};

    Half halves{small, limits};
    feed(halves, 6);
    REQUIRE(halves.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(save("all", halves, all_sequences, as_few));
    Few few{small, limits};
    REQUIRE(load("all", few, all_sequences, {.read = here})); // nothing is converted
    CHECK(few.tokens(Sequence{1}) == 4);
    CHECK(few.statistics().free == 24 - 6);
    Half back{small, limits};
    CHECK(load("all", back, all_sequences, {.read = here}).error() == FileReason::unsuitable);
    REQUIRE(load("all", back, all_sequences, from_few));
    CHECK(back.statistics().free == 24 - 6);

    PrefixTree<Half> tree{halves};
    const std::vector<std::int32_t> text{1, 2, 3, 4, 5, 6};
    REQUIRE(tree.insert(Sequence{0}, text));
    REQUIRE(save("tree", tree, {.write = {.files = &disk}}));
    Few others{small, limits};
    PrefixTree<Few> other{others};
    CHECK(load("tree", other, Sequence{0}, {.read = here}).error() == FileReason::unsuitable);
    CHECK(other.statistics().nodes == 0);
    REQUIRE(load("tree", other, Sequence{0}, from_half));
    CHECK(other.match(text) == PrefixMatch{6, 6});

    const auto hybrid = [&]<class Second>(Second second) {
        return Hybrid<RunTimePattern, Half, Second>{std::vector<int>{0, 1}, Half{small, limits}, std::move(second)};
    };
    auto exact = hybrid(Cache<StandardV<bf16>>{small, limits});
    feed(exact, 5);
    REQUIRE(save("both", exact, Sequence{0}, {.write = {.files = &disk}}));
    auto mixed = hybrid(Few{small, limits});
    const auto refused = load("both", mixed, Sequence{1}, {.read = here});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message
          == "both: member 1: its members.1.layers.0.keys has elements of type BF16, expected q8_0");
    CHECK(mixed.next(Sequence{1}) == Position{0});
    REQUIRE(load("both", mixed, Sequence{1}, {.convert_from = formats<bf16>, .read = here}));
    CHECK(mixed.next(Sequence{1}) == Position{5});
}

} // namespace test_conversion
