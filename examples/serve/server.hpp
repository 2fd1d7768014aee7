// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversation.hpp"
#include "outcome.hpp"
#include "pool/text_model.hpp"
#include "pool/text_pool.hpp"
#include "pool_memory.hpp"
#include "trace.hpp"
#include <cellar/serve/scheduler.hpp>

#include <functional>
#include <list>
#include <map>
#include <vector>

namespace serve {

/// Where a run is.
struct State {
    int step = 0;
    int running = 0;
    int waiting = 0;
    int finished = 0; ///< users
    int users = 0;
};

struct ServerOptions {
    bool tree = true; ///< keep and attach prefixes
    double temperature = 0.8;
    /// How many first tokens stay when a conversation outgrows the context, and the older half of the others is
    /// removed. -1: conversations must fit.
    int sinks = -1;
    std::function<void(const State&)> watch = {}; ///< called after each step
};

/// Serves the users of a trace with continuous batching. Each step is one forward pass, which a scheduler plans. Each
/// turn of a conversation is a request of its own, which begins with what the tree has of it.
class Server {
public:
    /// Throws if a conversation does not fit.
    Server(llama::TextModel& model, llama::Texts& pool, const Trace& trace, ServerOptions options);

    Outcome run();

private:
    void skip_idle_steps();
    void receive();
    void submit(Conversation& conversation);
    const llama::Matrix& compute();
    cellar::Result<const llama::Matrix*> run_pass();
    void advance(cellar::serve::RequestId id, const llama::Matrix& logits, Eigen::Index row);
    void shift(cellar::serve::RequestId id);
    void finish_turn(cellar::serve::RequestId id);
    void measure(Latency& latency, const Conversation& conversation) const;

    llama::TextModel& model_;
    llama::Texts& pool_;
    ServerOptions options_;
    int context_; ///< tokens of a conversation at most
    cellar::serve::Scheduler<PoolMemory> scheduler_;
    std::list<Conversation> conversations_;
    std::vector<Conversation*> due_; // whose prompt has not arrived
    std::map<cellar::serve::RequestId, Conversation*> served_;
    int step_ = 0;
    int finished_ = 0;
    Outcome outcome_;
};

} // namespace serve
