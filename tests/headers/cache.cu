// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memories in the host code of programs for devices. Compiled if a compiler for devices is installed, and never run.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/prefix/prefix_tree.hpp>

#include <cstdint>
#include <vector>

namespace cellar_test {

template <class Memory>
std::int32_t use_prefixes(Memory& memory) {
    cellar::PrefixTree<Memory> tree{memory, {.offloaded_bytes = 1 << 20}};
    const std::vector<std::int32_t> tokens{1, 2, 3};
    if (!tree.insert(cellar::Sequence{0}, tokens)) return 0;
    return tree.attach(cellar::Sequence{1}, tokens).value().length;
}

template <class Layout, class Window, class Shift>
int use(const Window& window, const Shift& shift) {
    cellar::Cache<Layout, Window, Shift> cache{
        cellar::CacheShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .value_dim = 8},
        {.sequences = 2, .capacity = 16, .batch = 4},
        window,
        shift};
    const std::vector<cellar::Position> positions{cellar::Position{0}, cellar::Position{1}};
    const std::vector<cellar::Sequence> sequences{cellar::Sequence{0}, cellar::Sequence{0}};
    const std::vector<float> rows(2 * 2 * 8);
    cache.reserve(2).drop();
    if (auto pass = cache.begin({positions, sequences})) {
        pass->put(0, rows, rows);
        std::vector<float> results(rows.size());
        cellar::attend(*pass, 0, rows, results);
        auto [keys, values, mask] = pass->get(0);
        if (keys.size() != values.size() || mask.size() == 0) return 1;
        pass->commit();
    }
    if (!cache.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{2})) return 1;
    if (!cache.remove(cellar::Sequence{0}, cellar::Position{0}, cellar::Position{1})) return 1;
    if (use_prefixes(cache) == 0) return 1;
    cache.defragment();
    return cache.can_resume(cellar::Sequence{1}, cellar::Position{2}) ? cache.cells() : 0;
}

int use_all() {
    const cellar::RopeShift<> rope{{1.0, 0.5}};
    return use<cellar::StandardV<float>>(cellar::FullCausal{}, cellar::DisabledShift{})
           + use<cellar::PermutedV<cellar::half>>(cellar::SlidingWindow<8>{}, rope)
           + use<cellar::StandardV<cellar::bf16, float>>(cellar::ChunkedAttention<>{4}, rope);
}

struct Conv : cellar::StateTensor<2> {};
struct Ssm : cellar::StateTensor<3, cellar::half> {};

int use_states() {
    using Memory = cellar::RecurrentMemory<cellar::States<Conv, Ssm>>;
    Memory memory{cellar::StateShape{2, {{3, 8}, {2, 4, 8}}}, {.sequences = 2, .batch = 4, .rollback = 1}};
    const std::vector<cellar::Position> positions{cellar::Position{0}, cellar::Position{1}};
    const std::vector<cellar::Sequence> sequences{cellar::Sequence{0}, cellar::Sequence{0}};
    memory.reserve(2).drop();
    if (auto pass = memory.begin({positions, sequences})) {
        for (int layer = 0; layer < 2; ++layer) {
            for (const cellar::MicroBatch& micro_batch : pass->micro_batches()) {
                pass->get<Conv>(layer, micro_batch)(0, 0, 0) += 1.0f;
                pass->put(layer, micro_batch);
            }
        }
        pass->commit();
    }
    if (use_prefixes(memory) == 0) return 1;
    const bool copied = memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, cellar::Position{2}).has_value();
    return copied ? memory.resumable_prefix(cellar::Sequence{1}, cellar::Position{2}).value : memory.slots();
}

bool use_files() {
    auto reader = cellar::FileReader::open("cache.safetensors");
    return reader && reader->verify();
}

} // namespace cellar_test
