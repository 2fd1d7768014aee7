// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "filled.hpp"
#include "jobs.hpp"
#include "stopwatch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// A prefix tree over a cache with 128k cells. `prefix_match` finds a prompt of 100,000 tokens that the tree has,
/// `prefix_again` inserts it once more, `prefix_insert` finds and inserts one whose second half is new (`half`), that
/// leaves an edge in its middle (`fork`), or that is all new (`new`). The counter `memcmp` is the comparison of the
/// same tokens with a copy. `prefix_attach` attaches 32k tokens to a sequence, and `copy_prefix` does so from another
/// sequence. The number is that of the nodes on the way. `prefix_chats` tells how many tokens a tree of states saves.
namespace cellar::bench {
namespace {

using Memory = Bookkeeping<FullCausal>;
using List = std::vector<std::int32_t>;

constexpr std::int32_t prompt_tokens = 100'000;
constexpr std::int32_t attached_tokens = 32 * 1024;
constexpr Cell cells = 128 * 1024;

List tokens_from(std::int32_t first, std::int32_t count) {
    List list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), first);
    return list;
}

/// A tree with a prompt of sequence 0, in so many nodes.
struct Prompt {
    Prompt(std::int32_t count, std::int32_t nodes)
        : memory{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1},
                 {.sequences = 2, .cells = cells, .batch = max_batch}},
          tree{memory},
          list{tokens_from(0, count)} {
        prefill(memory, cellar::Sequence{0}, Position{0}, count);
        for (std::int32_t i = 1; i <= nodes; ++i)
            expect(tree.insert(cellar::Sequence{0}, first(static_cast<std::int32_t>(std::int64_t{count} * i / nodes)))
                       .has_value(),
                   "prefix: insert was refused");
        expect(tree.statistics().nodes == nodes, "prefix: not as many nodes as intended");
    }

    std::span<const std::int32_t> first(std::int32_t count) const {
        return std::span{list}.first(static_cast<std::size_t>(count));
    }

    Memory memory;
    PrefixTree<Memory> tree;
    List list;
};

class Comparison {
public:
    explicit Comparison(List list) : list_{std::move(list)}, copy_{list_} {}

    void run() {
        watch_.start();
        benchmark::DoNotOptimize(std::memcmp(list_.data(), copy_.data(), list_.size() * sizeof(std::int32_t)));
        watch_.stop();
    }
    void report(benchmark::State& state) { state.counters["memcmp"] = watch_.median(); }

private:
    const List list_;
    const List copy_;
    Stopwatch watch_;
};

void measure_match(benchmark::State& state, std::int32_t nodes) {
    const Prompt prompt{prompt_tokens, nodes};
    Comparison comparison{prompt.list};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        const PrefixMatch match = prompt.tree.match(prompt.list);
        watch.stop();
        expect(match.length == prompt_tokens, "prefix_match: the prompt was not found");
        comparison.run();
    });
    comparison.report(state);
}

void measure_again(benchmark::State& state, std::int32_t nodes) {
    Prompt prompt{prompt_tokens, nodes};
    Comparison comparison{prompt.list};
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        const bool inserted = prompt.tree.insert(cellar::Sequence{0}, prompt.list).has_value();
        watch.stop();
        expect(inserted && prompt.tree.statistics().nodes == nodes, "prefix_again: insert was refused");
        comparison.run();
    });
    comparison.report(state);
}

// The sequence was computed from other tokens, which the memory does not know.
void measure_insert(benchmark::State& state, std::int32_t nodes, std::int32_t known, bool divides) {
    Prompt prompt{prompt_tokens, 1};
    prompt.tree.clear();
    for (std::int32_t i = 1; i <= nodes; ++i) {
        const auto end = static_cast<std::int32_t>(std::int64_t{known} * i / nodes);
        const bool more = divides && i == nodes;
        expect(prompt.tree.insert(cellar::Sequence{0}, prompt.first(more ? prompt_tokens : end)).has_value(),
               "prefix_insert: insert was refused");
    }
    List list = prompt.list;
    const List others = tokens_from(prompt_tokens, prompt_tokens);
    Comparison comparison{list};
    measure(state, [&](Stopwatch& watch) {
        std::copy(others.begin() + known, others.end(), list.begin() + known);
        watch.start();
        const PrefixMatch match = prompt.tree.match(list);
        const bool inserted = prompt.tree.insert(cellar::Sequence{0}, list).has_value();
        watch.stop();
        expect(inserted && match.verified == known, "prefix_insert: insert was refused");
        comparison.run();
        if (divides) {
            prompt.tree.clear();
            expect(prompt.tree.insert(cellar::Sequence{0}, prompt.list).has_value(),
                   "prefix_insert: insert was refused");
        } else {
            const auto back = prompt.tree.pin(prompt.first(known));
            expect(prompt.tree.evict(), "prefix_insert: nothing to evict");
        }
    });
    comparison.report(state);
}

void measure_attach(benchmark::State& state, std::int32_t nodes) {
    Prompt prompt{attached_tokens, nodes};
    Stopwatch copies;
    const auto leave = [&] {
        expect(prompt.memory.next(cellar::Sequence{1}) == Position{attached_tokens}
                   && prompt.memory.remove(cellar::Sequence{1}, Position{0}, to_end),
               "prefix_attach: the tokens are not there");
    };
    measure(state, [&](Stopwatch& watch) {
        watch.start();
        prompt.tree.attach(cellar::Sequence{1}, prompt.list).value();
        watch.stop();
        leave();
        copies.start();
        expect(
            prompt.memory.copy_prefix(cellar::Sequence{0}, cellar::Sequence{1}, Position{attached_tokens}).has_value(),
            "prefix_attach: copy was refused");
        copies.stop();
        leave();
    });
    state.counters["copy_prefix"] = copies.median();
}

struct Sum : StateTensor<1> {};
using States = RecurrentMemory<cellar::States<Sum>>;

/// Which share of the tokens of many chats a tree of 48 states saves. 64 users, who begin with one of eight prompts,
/// take turns at random; after six turns or so, a user begins anew. Always the same chats.
class Chats {
public:
    double saved(Usefulness usefulness) {
        States memory{StateShape{1, {{1}}}, {.sequences = 1, .batch = max_batch, .snapshots = 48}};
        PrefixTree<States> tree{memory, {.usefulness = usefulness}};
        std::mt19937 random{20261122};
        const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
        std::vector<List> chats(64);
        std::vector<std::size_t> prompts(64);
        std::int32_t next_token = 1'000'000;
        const auto say = [&](List& chat, std::int32_t count) {
            for (std::int32_t i = 0; i < count; ++i) chat.push_back(next_token++);
        };
        for (int turn = 0; turn < 4000; ++turn) {
            const auto user = static_cast<std::size_t>(below(64));
            List& chat = chats[user];
            if (chat.empty() || below(6) == 0) {
                const std::int32_t prompt = std::min(below(8), below(8)); // the first ones are the most common
                chat = tokens_from(100'000 * prompt, 100 + 200 * prompt);
                prompts[user] = chat.size();
            }
            say(chat, 10 + below(200));
            tree.attach(cellar::Sequence{0}, chat).value();
            compute(tree, std::span{chat}.first(prompts[user]));
            compute(tree, chat);
            say(chat, 20 + below(300)); // the answer
            compute(tree, chat);
            expect(memory.remove(cellar::Sequence{0}, Position{0}, to_end).has_value(),
                   "prefix_chats: remove was refused");
        }
        const PrefixStatistics statistics = tree.statistics();
        return 100.0 * static_cast<double>(statistics.tokens_attached) / static_cast<double>(statistics.tokens_asked);
    }

private:
    static void compute(PrefixTree<States>& tree, std::span<const std::int32_t> tokens) {
        const auto end = static_cast<std::int32_t>(tokens.size());
        for (Position at = tree.memory().next(cellar::Sequence{0}); at.value < end;
             at = tree.memory().next(cellar::Sequence{0})) {
            auto pass =
                tree.begin(TokenList::prompt(cellar::Sequence{0}, at, std::min(max_batch, end - at.value)).batch());
            for (const MicroBatch& micro_batch : pass->micro_batches()) pass->mark_written(0, micro_batch);
            pass->commit();
        }
        if (tree.memory().next(cellar::Sequence{0}) == Position{end})
            expect(tree.insert(cellar::Sequence{0}, tokens).has_value(), "prefix_chats: insert was refused");
    }
};

// The counters are percent of the tokens; the time has no meaning.
void measure_chats(benchmark::State& state) {
    Chats chats;
    for (auto _ : state) {
        state.counters["least_recently_used"] = chats.saved(least_recently_used);
        state.counters["tokens_for_each_byte"] = chats.saved(tokens_for_each_byte);
        state.SetIterationTime(1);
    }
}

} // namespace

void add_prefix() {
    const auto name = [](const char* job, const std::string& what) {
        return std::string{job} + "/" + what + "/1/128k/cellar";
    };
    for (const std::int32_t nodes : {1, 100, 1000}) {
        const std::string n = std::to_string(nodes);
        add(name("prefix_match", n), [=](benchmark::State& state) { measure_match(state, nodes); });
        add(name("prefix_again", n), [=](benchmark::State& state) { measure_again(state, nodes); });
        add(name("prefix_insert", "half_" + n),
            [=](benchmark::State& state) { measure_insert(state, nodes, prompt_tokens / 2, false); });
        if (nodes < 1000) add(name("prefix_attach", n), [=](benchmark::State& state) { measure_attach(state, nodes); });
    }
    add(name("prefix_insert", "fork_1"),
        [](benchmark::State& state) { measure_insert(state, 1, prompt_tokens / 2, true); });
    add("prefix_chats", measure_chats, 1);
    add(name("prefix_insert", "new_1"), [](benchmark::State& state) { measure_insert(state, 0, 0, false); });
}

} // namespace cellar::bench
