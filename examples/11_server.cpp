// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program of docs/how-to/write-a-server.md: many users, one memory, and no `full` that reaches them. Its output
// stands on the page.
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/models.hpp>
#include <cellar/serve/scheduler.hpp>
#include <cellar/serve/tree_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

namespace {

namespace serve = cellar::serve;

// [types]
constexpr int layers = 2, heads = 4, kv_heads = 2, dim = 32; // of the model
using Memory = cellar::Cache<cellar::Blocked<cellar::half>>;
// [/types]

/// Stands for your model: computes the batch, layer by layer. It takes the tokens of `scheduler.parts()`.
void run_model(cellar::PassOf<Memory>& pass) {
    const auto tokens = static_cast<std::size_t>(pass.tokens());
    const std::vector<float> q(tokens * heads * dim, 1.0F);
    const std::vector<float> rows(tokens * kv_heads * dim, 1.0F);
    std::vector<float> out(q.size());
    for (int layer = 0; layer < layers; ++layer) {
        pass.put(layer, rows, rows);
        cellar::attend(pass, layer, q, out);
    }
}

/// Stands for your sampler.
std::int32_t next_token(std::span<const std::int32_t> tokens) {
    return (31 * tokens.back() + 7) % 1000;
}

struct Counts {
    int answers = 0;
    int refused = 0;
    int passes = 0;
    int computed = 0; ///< tokens
    int preempted = 0;
};

/// Answers all requests.
Counts answer(Memory& memory, serve::Admit admit, std::vector<serve::Request> requests) {
    // [make]
    cellar::PrefixTree tree{memory, {.offloaded_bytes = std::int64_t{1} << 20}};
    serve::Scheduler scheduler{
        serve::TreeMemory{tree},
        {.sequences = memory.sequences(), .batch = 64, .context = memory.cells(), .admit = admit}};
    // [/make]
    Counts counts;
    // [submit]
    for (serve::Request& request : requests)
        if (!scheduler.submit(std::move(request))) ++counts.refused; // too long, and as it was: tell the user
    // [/submit]
    // [loop]
    while (!scheduler.empty()) {
        auto pass = scheduler.begin(); // admits, plans, opens; evicts prefixes and preempts requests if it must
        if (!pass) {
            std::printf("%s\n", to_string(pass.error()).c_str());
            if (pass.error() != cellar::Reason::full) break; // a mistake of the program
            scheduler.finish(*scheduler.oldest());           // it finds no room, though it is alone
            ++counts.refused;
            continue;
        }
        run_model(*pass);
        counts.computed += pass->tokens();
        ++counts.passes;
        pass->commit();
        for (const serve::Part& part : scheduler.parts()) {
            if (!part.at_end) continue; // a piece of a prompt, and not the last one
            if (!scheduler.append(part.request, next_token(scheduler.tokens(part.request)))) continue;
            scheduler.finish(part.request); // complete: returns all tokens
            ++counts.answers;
        }
    }
    // [/loop]
    counts.preempted = static_cast<int>(scheduler.preemptions());
    return counts;
}

/// 40 requests: one of four system prompts, a question of its own, and an answer.
std::vector<serve::Request> requests() {
    // [requests]
    std::vector<serve::Request> list;
    for (std::int32_t user = 0; user < 40; ++user) {
        serve::Request request{.answer = 20 + user * 37 % 60};
        for (std::int32_t i = 0; i < 100; ++i) request.tokens.push_back(user % 4 * 100 + i);
        for (std::int32_t i = 0; i < 10 + user % 7; ++i) request.tokens.push_back(500 + user * 10 + i % 10);
        request.keep = {100}; // the end of the system prompt, from which others go on
        list.push_back(std::move(request));
    }
    // [/requests]
    return list;
}

void compare(serve::Admit admit, const char* name) {
    // [limits]
    Memory memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                  {.sequences = 16, .cells = 1024, .batch = 64}};
    // [/limits]
    std::size_t tokens = 0;
    for (const serve::Request& request : requests()) // the last token of an answer is not computed
        tokens += request.tokens.size() + static_cast<std::size_t>(request.answer) - 1;
    const Counts c = answer(memory, admit, requests());
    std::printf("%-9s%d answers in %d passes, %d of %d tokens computed, %d preempted, %d refused\n", name, c.answers,
                c.passes, c.computed, static_cast<int>(tokens), c.preempted, c.refused);
}

} // namespace

int main() {
    // [budget]
    namespace models = cellar::models;
    const models::MemoryLimits wanted{.attention = {.sequences = 200, .batch = 512}};
    const std::int64_t budget = std::int64_t{24} << 30;
    const auto limits = models::largest_limits(models::llama31_8b, wanted, budget).value();
    std::printf("Llama 3.1 8B in 24 GiB: %d cells, %d for each of 200 users\n", limits.attention.cells,
                limits.attention.cells / 200);
    const auto make_memory = [&] { return models::Llama31_8B::make(limits); }; // the memory of all layers
    // [/budget]
    static_cast<void>(make_memory); // compiled only
    compare(serve::Admit::with_promise, "promise:");
    compare(serve::Admit::when_it_fits, "fits:");
}
