// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "outcome.hpp"
#include "pool/text_model.hpp"
#include "pool/text_pool.hpp"
#include "request.hpp"
#include "trace.hpp"

#include <deque>
#include <functional>
#include <list>
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

/// Serves the users of a trace with continuous batching. Each step is one forward pass over the next token of every
/// request that is writing and over pieces of the prompts of others. A request that has a text of the pool is running.
/// If the pool is full, the request that began last is put back to the queue, and goes on later from what the tree has
/// of it.
class Server {
public:
    /// Throws if a conversation does not fit.
    Server(llama::TextModel& model, llama::Texts& pool, const Trace& trace, ServerOptions options);

    Outcome run();

private:
    struct Part {
        Request* request;
        int count;
    };

    void receive();
    void admit();
    bool has_room_for(const Request& request) const;
    std::vector<Part> next_batch() const;
    const llama::Matrix& compute(std::vector<Part>& batch);
    const llama::Matrix* run_pass(const std::vector<Part>& batch, cellar::Refusal& refusal);
    cellar::Result<void> shift(Request& request, int count);
    void keep(Request& request, int length);
    void preempt();
    void advance(const Part& part, const llama::Matrix& logits, Eigen::Index row);
    void finish_turn(Request& request);
    void release(Request& request);
    int done(const Request& request) const { return pool_.length(request.text_number); }
    void measure(Latency& latency, const Request& request) const;
    void skip_idle_steps();

    llama::TextModel& model_;
    llama::Texts& pool_;
    ServerOptions options_;
    std::list<Request> requests_;
    std::vector<Request*> due_;     // whose prompt has not arrived
    std::deque<Request*> queue_;    // whose prompt waits
    std::vector<Request*> running_; // in the order of admission
    std::vector<int> free_texts_;
    int step_ = 0;
    int finished_ = 0;
    Outcome outcome_;
};

} // namespace serve
