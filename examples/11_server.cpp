// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program of docs/how-to/write-a-server.md: many users, one memory, and no `full` that reaches them. Its output
// stands on the page.
#include "expect.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/models/models.hpp>
#include <cellar/prefix/audit.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace {

using cellar::Position;
using cellar::Sequence;

// [types]
constexpr int layers = 2, heads = 4, kv_heads = 2, dim = 32; // of the model
using Memory = cellar::Cache<cellar::Blocked<cellar::half>>;

struct Request {
    std::vector<std::int32_t> tokens; // the prompt, and then the answer
    std::size_t prompt;               // tokens of the prompt
    std::size_t end;                  // with the longest answer
    Sequence sequence{-1};            // while it runs
};
// [/types]

/// Stands for your model: computes the batch, layer by layer.
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
std::int32_t next_token(const Request& request) {
    return (31 * request.tokens.back() + 7) % 1000;
}

enum class Policy {
    promise, ///< admit a request only if its longest answer fits: nobody is ever put back
    preempt, ///< admit what fits now, and put the newest request back when the cells run out
};

struct Counts {
    int answers = 0;
    int passes = 0;
    int computed = 0; ///< tokens
    int preempted = 0;
};

class Server {
public:
    Server(Memory& memory, Policy policy)
        : memory_{memory}, tree_{memory, {.offloaded_bytes = std::int64_t{1} << 20}}, policy_{policy} {
        for (std::int32_t s = memory.sequences(); s > 0; --s) free_.push_back(Sequence{s - 1});
    }

    Counts serve(std::vector<Request>& requests);

private:
    void admit();
    bool enter(Request& request);
    cellar::PassOf<Memory> begin();
    cellar::BatchBuilder next_batch();
    void preempt_newest();
    void advance();
    void release(Request& request);

    // [room]
    int done(const Request& request) const { return memory_.next(request.sequence).value; }
    /// Tokens that are not computed yet.
    int ahead(const Request& request) const { return static_cast<int>(request.tokens.size()) - done(request); }

    /// Cells that are free, or that the tree can free, beyond what the running requests need next.
    int room() {
        int cells = memory_.free_cells() + tree_.evictable();
        for (const Request* request : running_) cells -= ahead(*request);
        return cells;
    }

    /// Repeats an operation as long as the tree can give up prefixes for it.
    template <class Operation>
    bool with_room(Operation operation) {
        cellar::Result<void> result = operation();
        while (!result && tree_.make_room(result.error())) result = operation();
        return result.has_value();
    }
    // [/room]

    Memory& memory_;
    cellar::PrefixTree<Memory> tree_;
    Policy policy_;
    std::deque<Request*> waiting_;
    std::vector<Request*> running_; // in the order in which they were admitted
    std::vector<Sequence> free_;
    Counts counts_;
};

// [loop]
Counts Server::serve(std::vector<Request>& requests) {
    for (Request& request : requests) // one that is longer than the pool never fits: refuse it when it arrives
        if (std::cmp_less_equal(request.end, memory_.cells())) waiting_.push_back(&request);
    while (!waiting_.empty() || !running_.empty()) {
        admit();
        cellar::PassOf<Memory> pass = begin();
        run_model(pass);
        counts_.computed += pass.tokens();
        ++counts_.passes;
        pass.commit();
        advance();
    }
    return counts_;
}

cellar::PassOf<Memory> Server::begin() {
    while (true) {
        auto pass = tree_.begin(next_batch()); // gives up prefixes that nobody uses, if it has to
        if (pass) return *std::move(pass);
        expect(pass.error() == cellar::Reason::full && running_.size() > 1);
        preempt_newest(); // no sequence has changed, so the others go on
    }
}
// [/loop]

// [admit]
void Server::admit() {
    while (!waiting_.empty() && !free_.empty()) {
        Request& request = *waiting_.front();
        request.sequence = free_.back();
        if (!enter(request)) return; // wait until another one leaves
        waiting_.pop_front();
        free_.pop_back();
        running_.push_back(&request);
    }
}

/// Gives the request what was computed before, and room. False if there is no room: nothing has changed.
bool Server::enter(Request& request) {
    const Sequence s = request.sequence;
    const auto all_but_last = std::span{request.tokens}.first(request.tokens.size() - 1);
    tree_.attach(s, all_but_last).value(); // the longest prefix that any request has computed; no data moves
    const std::int32_t missing = static_cast<std::int32_t>(request.end) - done(request);
    const bool has_room =
        policy_ == Policy::promise ? with_room([&] { return memory_.promise(s, missing); }) : room() >= ahead(request);
    if (!has_room) memory_.remove(s, Position{0}, cellar::to_end).value();
    return has_room;
}
// [/admit]

// [batch]
/// The next token of every request that is being answered, then pieces of prompts (chunked prefill).
cellar::BatchBuilder Server::next_batch() {
    cellar::BatchBuilder batch;
    for (const bool of_prompt : {false, true})
        for (Request* const request : running_) {
            const int left = memory_.limits().batch - batch.size();
            if ((ahead(*request) > 1) != of_prompt || left == 0) continue;
            batch.add(request->sequence, memory_.next(request->sequence), std::min(left, ahead(*request)));
        }
    return batch;
}

/// After a pass: draws tokens, and ends answers.
void Server::advance() {
    for (Request* const request : std::vector<Request*>{running_}) {
        if (ahead(*request) > 0) continue; // its prompt is not finished, or was not in the batch
        if (request->tokens.size() == request->prompt) tree_.insert(request->sequence, request->tokens).value();
        request->tokens.push_back(next_token(*request));
        if (request->tokens.size() < request->end) continue;
        release(*request);
        ++counts_.answers;
    }
}
// [/batch]

// [release]
/// The cells run out: the request that came last goes back to the head of the queue. The tree keeps what it has, on the
/// host if it must, so that little is computed twice.
void Server::preempt_newest() {
    Request& request = *running_.back();
    release(request);
    waiting_.push_front(&request);
    ++counts_.preempted;
}

/// The tree keeps what was computed, for the user's next turn. The sequence is free.
void Server::release(Request& request) {
    const auto computed = std::span{request.tokens}.first(static_cast<std::size_t>(done(request)));
    tree_.insert(request.sequence, computed).value();
    memory_.remove(request.sequence, Position{0}, cellar::to_end).value();
    free_.push_back(request.sequence);
    std::erase(running_, &request);
}
// [/release]

/// 40 requests: one of four system prompts, a question of its own, and an answer.
std::vector<Request> requests() {
    std::vector<Request> list;
    for (std::int32_t user = 0; user < 40; ++user) {
        Request request;
        for (std::int32_t i = 0; i < 100; ++i) request.tokens.push_back(user % 4 * 100 + i);
        for (std::int32_t i = 0; i < 10 + user % 7; ++i) request.tokens.push_back(500 + user * 10 + i % 10);
        request.prompt = request.tokens.size();
        request.end = request.prompt + 20 + static_cast<std::size_t>(user * 37 % 60);
        list.push_back(std::move(request));
    }
    return list;
}

void compare(Policy policy, const char* name) {
    // [limits]
    Memory memory{{.layers = layers, .kv_heads = kv_heads, .head_dim = dim},
                  {.sequences = 16, .cells = 1024, .batch = 64}};
    // [/limits]
    Server server{memory, policy};
    std::vector<Request> list = requests();
    std::size_t tokens = 0;
    for (const Request& request : list) tokens += request.end - 1; // the last token of an answer is not computed
    const Counts c = server.serve(list);
    std::printf("%-9s%d answers in %d passes, %d of %d tokens computed, %d preempted\n", name, c.answers, c.passes,
                c.computed, static_cast<int>(tokens), c.preempted);
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
    // [/budget]
    compare(Policy::promise, "promise:");
    compare(Policy::preempt, "preempt:");
}
