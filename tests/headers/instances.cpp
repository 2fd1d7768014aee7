// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Every kind of memory with every operation, for scripts/tidy, which checks templates only where they are instantiated.
#include <cellar/attention/attend.hpp>
#include <cellar/backend/eigen.hpp>
#include <cellar/cache/audit.hpp>
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>
#include <cellar/prefix/audit.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace {

using namespace cellar;

struct Sum : StateTensor<2, half> {};

using Sliding = Cache<PermutedV<half>, SlidingWindow<8>, RopeShift<>>;
using Chunked = Cache<StandardV<bfloat16, float>, ChunkedAttention<>, UnrotatedShift, EigenBackend>;
using Recurrent = RecurrentMemory<States<Sum>>;
using Encoder = EncoderMemory<>;
using Combined = Hybrid<Repeat<Times<2, Sliding>, NoMemory, Recurrent, Encoder>, Sliding, Recurrent, Encoder>;
using AtRunTime = Hybrid<RunTimePattern, Sliding, Recurrent>;

constexpr std::int32_t batch = 8;

Sliding sliding(int layers) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 2},
            {.sequences = 2, .capacity = 16, .batch = batch},
            SlidingWindow<8>{},
            RopeShift<>{rope_frequencies(2)}};
}
Chunked chunked() {
    return {{.layers = 2, .kv_heads = 1, .head_dim = 2},
            {.sequences = 2, .cells = 24, .batch = batch, .placement = Placement::contiguous},
            ChunkedAttention<>{4}};
}
Recurrent recurrent(int layers) {
    return {StateShape{layers, {{2, 2}}},
            {.sequences = 2, .batch = batch, .rollback = 2, .checkpoints = 2, .checkpoint_interval = 2}};
}
Encoder encoder(int layers) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .capacity = 16, .batch = batch}};
}

/// A layer's work, for any memory.
struct Work {
    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (requires { pass.micro_batches(); }) {
            for (const MicroBatch& micro_batch : pass.micro_batches()) {
                static_cast<void>(pass.template get<Sum>(layer, micro_batch));
                pass.put(layer, micro_batch);
            }
        } else if constexpr (requires { pass.cells(); }) {
            const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()) * 2);
            pass.put(layer, rows, rows);
            static_cast<void>(pass.get(layer));
            std::vector<float> results(rows.size());
            attend(pass, layer, rows, results);
        } else if constexpr (requires { pass.get(layer); }) {
            static_cast<void>(pass.get(layer));
            const std::vector<half> queries(static_cast<std::size_t>(pass.tokens()) * 2);
            std::vector<half> results(queries.size());
            attend(pass, layer, queries, results);
        }
    }
};

template <PrefixTreeMemory M>
Result<void> use_prefixes(M& memory) {
    const std::vector<std::int32_t> tokens{1};
    PrefixTree<M> tree{memory, {.usefulness = tokens_for_each_byte}};
    if (const Result<void> removed = memory.remove(Sequence{0}, Position{0}, to_end); !removed) return removed;
    if (memory.next(Sequence{0}) == Position{1})
        if (const Result<void> inserted = tree.insert(Sequence{0}, tokens); !inserted) return inserted;
    const PrefixPin pin = tree.pin(tokens);
    if (tree.match(tokens) != tree.attach(Sequence{0}, tokens).value() || !audit(tree).empty())
        return Reason::cannot_resume;
    if (const auto pass = tree.begin(BatchBuilder{Sequence{0}, memory.next(Sequence{0})}); !pass) return pass.error();
    tree.clear();
    return {};
}

/// Every operation once.
template <Memory M>
Result<std::int64_t> use(M memory) {
    memory.reserve(batch).drop();
    Result<PassOf<M>> pass = memory.begin(BatchBuilder{Sequence{0}, memory.next(Sequence{0}), 4});
    if (!pass) return pass.error();
    for (int layer = 0; layer < memory.layers(); ++layer) pass->visit(layer, Work{});
    pass->commit();
    if (const Result<void> copied = memory.copy_prefix(Sequence{0}, Sequence{1}, Position{3}); !copied)
        return copied.error();
    if (const Result<void> removed = memory.remove(Sequence{0}, Position{1}, Position{2}); !removed)
        return removed.error();
    if (memory.can_resume(Sequence{1}, memory.resumable_prefix(Sequence{1}, Position{2}))) memory.fence();
    if constexpr (requires { memory.cells(); }) {
        memory.defragment();
        static_cast<void>(describe(memory) + audit(memory));
    }
    if constexpr (PrefixTreeMemory<M>)
        if (const Result<void> used = use_prefixes(memory); !used) return used.error();
    return memory.bytes();
}

FileResult<std::uint64_t> use_files(const std::filesystem::path& path) {
    const std::vector<float> values(4);
    auto writer = FileWriter::create(path, {{{"values", dtype_of<float>, {4}}}, {{"key", "value"}}});
    if (!writer) return std::move(writer).error();
    if (auto done = writer->append_elements<float>(values); !done) return std::move(done).error();
    if (auto done = writer->finish(); !done) return std::move(done).error();
    auto reader = FileReader::open(path, {.access = FileAccess::map});
    if (!reader) return std::move(reader).error();
    if (auto whole = reader->verify(); !whole) return std::move(whole).error();
    std::vector<float> read(4);
    if (auto done = reader->read<float>(*reader->find("values"), read); !done) return std::move(done).error();
    return reader->total_bytes();
}

} // namespace

std::int64_t use_everything();

std::int64_t use_everything() {
    std::int64_t bytes = 0;
    for (const Result<std::int64_t>& used : {use(sliding(2)), use(chunked()), use(recurrent(2)), use(encoder(2)),
                                             use(Combined{10, sliding(4), recurrent(2), encoder(2)}),
                                             use(AtRunTime{{0, 1, no_memory}, sliding(1), recurrent(1)})})
        bytes += used ? used.value() : 0;
    if (const auto used = use_files("instances.safetensors")) bytes += static_cast<std::int64_t>(*used);
    return bytes;
}
