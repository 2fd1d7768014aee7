// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The code of docs/how-to/feed-images.md.
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace test_images {

using cellar::BatchBuilder;
using cellar::Cell;
using cellar::CellRange;
using cellar::Position;
using cellar::Sequence;

namespace {

constexpr int heads = 1;
constexpr int dim = 4;

/// Stands for the model: keys and values of every token are ones.
template <class Pass>
void run(Pass& pass) {
    const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()) * heads * dim, 1.0F);
    pass.put(0, rows, rows);
}

template <class Pass>
int visible_cells(Pass& pass, int token) {
    int cells = 0;
    for (const CellRange run : pass.visible(token)) cells += run.count;
    return cells;
}

} // namespace

TEST_CASE("the tokens of an image see one another") {
    const Sequence chat{0};
    // [group]
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim}, {.capacity = 64, .batch = 16}};
    BatchBuilder tokens;
    tokens.add(chat, Position{0}, 3);       // "what is this:"
    tokens.add_group(chat, Position{3}, 4); // an image of four tokens, at positions 3 to 6
    tokens.add(chat, Position{7}, 2);       // "please"
    auto pass = cache.begin(tokens).value();
    run(pass);
    CHECK(visible_cells(pass, 2) == 3); // text before the image: itself and what is before it
    CHECK(visible_cells(pass, 3) == 7); // the first token of the image: the text before it, and the whole image
    CHECK(visible_cells(pass, 6) == 7); // the last one: the same
    CHECK(visible_cells(pass, 7) == 8); // text after the image
    pass.commit();
    // [/group]
}

TEST_CASE("the tokens of an image at one position") {
    const Sequence chat{0};
    // [at]
    cellar::Cache<> cache{{.layers = 1, .kv_heads = heads, .head_dim = dim},
                          {.capacity = 64, .cells = 80, .batch = 16}};
    auto pass =
        cache.begin(BatchBuilder{chat, Position{0}, 3}.add_at(chat, Position{3}, 4).add(chat, Position{4})).value();
    run(pass);
    CHECK(visible_cells(pass, 3) == 7); // tokens at one position see one another
    pass.commit();
    CHECK(cache.next(chat) == Position{5});
    CHECK(cache.tokens(chat) == 8); // eight tokens at five positions
    // [/at]
    CHECK(cache.cells() == 80);
}

TEST_CASE("an image of a model with M-RoPE is removed") {
    const Sequence chat{0};
    // [mrope]
    using Shift = cellar::RopeShift<cellar::Neox>;
    cellar::Cache<cellar::StandardV<float>, cellar::FullCausal, Shift> cache{
        {.layers = 1, .kv_heads = heads, .head_dim = dim},
        {.capacity = 64, .batch = 16},
        {},
        Shift{cellar::rope_frequencies(dim)}};
    // The batch counts tokens: 3 of text, 4 of an image of 2 x 2 patches, 2 of text. The model rotates the keys by
    // positions of its own: text by 0 to 2, the image by 3 to 4 in height and width, text by 5 and 6.
    auto pass = cache.begin(BatchBuilder{chat, Position{0}, 9}).value();
    run(pass);
    pass.commit();

    // The image goes: four tokens. Rotary positions 3 and 4 go with it: the text after them moves back by two.
    REQUIRE(cache.remove(chat, Position{3}, Position{7}, cellar::RotateBy{2}));
    CHECK(cache.next(chat) == Position{5});
    // [/mrope]
    auto after = cache.begin(BatchBuilder{chat, Position{5}}).value();
    run(after);
    const auto keys = after.keys(0);
    CHECK(keys(7, 0, 0) == doctest::Approx(std::cos(2.0) + std::sin(2.0))); // (1, 1) rotated by -2
    CHECK(keys(7, 0, 2) == doctest::Approx(std::cos(2.0) - std::sin(2.0)));
    CHECK(keys(2, 0, 0) == 1.0F);
}

TEST_CASE("images for cross attention") {
    const Sequence chat{0};
    // [cross]
    using Self = cellar::Cache<>;
    using Cross = cellar::EncoderMemory<>;
    using Memory = cellar::Hybrid<cellar::Repeat<Self>, Self, Cross>; // no layer of the pattern belongs to Cross

    constexpr int layers = 2;
    constexpr int image = 6; // tokens that the encoder makes of an image
    Memory memory{
        layers, Self{{.layers = layers, .kv_heads = heads, .head_dim = dim}, {.capacity = 64, .batch = 16}},
        Cross{{.layers = layers, .kv_heads = heads, .head_dim = dim}, {.capacity = 4 * image, .batch = 2 * image}}};

    // Once for each image, before its first token is decoded.
    const std::vector<float> rows(image * heads * dim, 1.0F); // from the encoder
    auto written = memory.member<Cross>().write(chat, Position{3}, image).value();
    for (int layer = 0; layer < layers; ++layer) written.put(layer, rows, rows);
    written.commit();
    // [/cross]
    CHECK(memory.next(chat) == Position{0}); // the image is no token

    // [begin]
    auto pass = memory.begin(chat, 5).value();
    for (int layer = 0; layer < layers; ++layer) {
        pass.visit(layer, [](auto& self, int i) {
            const std::vector<float> own(static_cast<std::size_t>(self.tokens()) * heads * dim, 1.0F);
            self.put(i, own, own); // then attention over self.keys(i) and self.values(i)
        });
        auto& cross = pass.of<Cross>();
        const auto [keys, values, mask] = cross.get(layer);
        CHECK(visible_cells(cross, 2) == 0); // before the image: hide everything, or leave the layer out
        CHECK(visible_cells(cross, 3) == image);
        CHECK(keys.extent(0) == image);
        CHECK(values.extent(0) == image);
        CHECK(std::isinf(mask(2, 0)));
    }
    pass.commit();
    // [/begin]
}

} // namespace test_images
