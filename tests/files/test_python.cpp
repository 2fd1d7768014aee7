// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Saved snapshots, read by Python. C++ and Python compute each expected value by a formula of their own.
#include "folder.hpp"
#include "hybrid/toy.hpp"
#include "python.hpp"
#include "skip.hpp"
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace test_python {

namespace {

using namespace cellar;

constexpr int heads = 2;

/// What the elements of the token at this position are. All element types have these integers.
std::vector<float> row(int layer, int position, int dim, int first) {
    std::vector<float> elements;
    for (int h = 0; h < heads; ++h)
        for (int d = 0; d < dim; ++d)
            elements.push_back(static_cast<float>((layer * 50 + position * 17 + h * 7 + d * 3 + first) % 251 - 120));
    return elements;
}

/// Saves positions 2 to 6 of a sequence whose cells alternate with those of another one. Layer 1 uses those of layer 0.
template <class Layout>
void save_cache(const Folder& folder, std::optional<OffloadTo> to = {}) {
    const LayerShape narrow{heads, 4, 3};
    LayerShape sharing = narrow;
    sharing.shares_layer = 0;
    Cache<Layout> cache{CacheShape{.each_layer = std::vector<LayerShape>{narrow, sharing, {heads, 6, 5}}},
                        {.sequences = 2, .capacity = 16, .batch = 2}};
    for (int p = 0; p < 8; ++p) {
        auto pass = cache.begin(BatchBuilder{}.add(Sequence{1}, Position{p}).add(Sequence{0}, Position{p})).value();
        for (const int layer : {0, 2}) {
            const LayerShape& shape = cache.shape()[layer];
            auto keys = row(layer, 100, shape.key_dim, 0);
            auto values = row(layer, 100, shape.value_dim, 0);
            for (const float x : row(layer, p, shape.key_dim, 0)) keys.push_back(x);
            for (const float x : row(layer, p, shape.value_dim, 100)) values.push_back(x);
            pass.put(layer, keys, values);
        }
        pass.commit();
    }
    CellSnapshot snapshot = cache.snapshot(Sequence{0}, Position{2}, Position{7}).value();
    if (to) cache.offload(snapshot, *to);
    REQUIRE(save(folder.path / "f", cache, snapshot,
                 {.model = "tiny \"model\"", .notes = {{"chat", "[1, \"\xe2\x82\xac\"]"}}}));
}

const std::string check_cache = R"(
import numpy

def expected(layer, dim, first):
    position, head, d = numpy.ogrid[2:7, 0:2, 0:dim]
    return (layer * 50 + position * 17 + head * 7 + d * 3 + first) % 251 - 120

def check_cache(metadata, tensors, dtype_of_keys, dtype_of_values):
    own = {name for name in metadata if name.startswith("cellar.")}
    assert own == {"cellar.format", "cellar.header_crc32", "cellar.data_crc32"}, own
    assert {name: metadata[name] for name in metadata if name not in own} == {
        "model": 'tiny "model"', "snapshot.kind": "1", "snapshot.layers": "2",
        "snapshot.from": "2", "snapshot.to": "7", "snapshot.is_window": "0",
        "notes.chat": '[1, "\u20ac"]',
    }, metadata
    assert sorted(tensors) == ["layers.0.keys", "layers.0.values", "layers.2.keys", "layers.2.values", "positions"]
    assert tensors["positions"].dtype == "int32" and tensors["positions"].tolist() == [2, 3, 4, 5, 6], tensors
    for layer, key_dim, value_dim in (0, 4, 3), (2, 6, 5):
        keys, values = (tensors[f"layers.{layer}.{what}"] for what in ("keys", "values"))
        assert keys.dtype == dtype_of_keys and values.dtype == dtype_of_values, (keys.dtype, values.dtype)
        assert numpy.array_equal(keys, expected(layer, key_dim, 0)), keys
        assert numpy.array_equal(values, expected(layer, value_dim, 100)), values

)";

} // namespace

TEST_CASE("Python reads the snapshot of a cache, wherever its rows are") {
    for (const std::optional<OffloadTo> to : {std::optional<OffloadTo>{}, {OffloadTo::host}, {OffloadTo::backend}}) {
        const Folder folder;
        save_cache<PermutedV<half>>(folder, to);
        const PythonOutcome outcome =
            run_python(folder, check_cache + "check_cache(*tensors_of('f'), 'float16', 'float16')\n");
        if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
        CHECK(outcome == PythonOutcome::right);
    }
}

TEST_CASE("Python reads a snapshot whose keys and values have different element types") {
    const Folder folder;
    save_cache<StandardV<float, half>>(folder);
    const PythonOutcome outcome =
        run_python(folder, check_cache + "check_cache(*tensors_of('f'), 'float32', 'float16')\n");
    if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
    CHECK(outcome == PythonOutcome::right);
}

TEST_CASE("Python reads a snapshot of bfloat16, as float") {
    const Folder folder;
    save_cache<StandardV<bfloat16>>(folder);
    const PythonOutcome outcome = run_python(folder, check_cache + R"(
with safe_open("f", "numpy") as file:
    metadata, names = file.metadata(), file.keys()
    tensors = {"positions": file.get_tensor("positions")}
for name in names:
    if name.startswith("layers."):
        tensors[name] = bfloat16_of("f", name)
check_cache(metadata, tensors, "float32", "float32")
)");
    if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
    CHECK(outcome == PythonOutcome::right);
}

TEST_CASE("Python reads the snapshot of a hybrid, with the names of its members") {
    const Folder folder;
    toy::Memory hybrid{
        toy::layers,
        toy::Sliding{{.layers = 4, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 100, .batch = 8}},
        toy::Full{{.layers = 2, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .capacity = 20, .batch = 8}},
        toy::Recurrent{{1, {{1}}}, {.sequences = 2, .batch = 8, .snapshots = 1}}};
    REQUIRE(toy::feed(hybrid, toy::text(1, 0, 3, 90) + toy::text(0, 0, 4, 1)));
    REQUIRE(toy::feed(hybrid, toy::text(0, 4, 6, 5)));
    REQUIRE(save(folder.path / "f", hybrid, hybrid.snapshot(Sequence{0}).value()));
    const PythonOutcome outcome = run_python(folder, R"(
metadata, tensors = tensors_of("f")
assert is_whole("f")
snapshot = {name: value for name, value in metadata.items() if not name.startswith("cellar.")}
first = tensors["members.0.positions"][0] # what the window of 4 still keeps
assert 0 < first <= 7, first
number = "snapshot.members."
assert snapshot == {
    number + "0.kind": "1", number + "0.layers": "4", number + "0.from": "0", number + "0.to": "10",
    number + "0.is_window": "1",
    number + "1.kind": "1", number + "1.layers": "2", number + "1.from": "0", number + "1.to": "10",
    number + "1.is_window": "0",
    number + "2.kind": "3", number + "2.layers": "1", number + "2.to": "10",
}, snapshot
expected = {"members.0.positions": list(range(first, 10)), "members.1.positions": list(range(10))}
state = 0
for word in range(1, 11):
    state = (state * 31 + word * 7 + 1) % 65521
expected["members.2.layers.0.states.0"] = [state]
for member, layers in (0, 4), (1, 2):
    words = [[[position + 1]] for position in expected[f"members.{member}.positions"]]
    for layer in range(layers):
        for what in "keys", "values":
            expected[f"members.{member}.layers.{layer}.{what}"] = words
assert {name: tensor.tolist() for name, tensor in tensors.items()} == expected, tensors
assert all(tensor.dtype == ("int32" if "positions" in name else "float32") for name, tensor in tensors.items())
)");
    if (const std::string reason = reason_to_skip(outcome); !reason.empty()) CELLAR_SKIP(reason);
    CHECK(outcome == PythonOutcome::right);
}

} // namespace test_python
