// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "server.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace serve {

using cellar::serve::Part;
using cellar::serve::RequestId;

Server::Server(llama::TextModel& model, llama::Texts& pool, const Trace& trace, ServerOptions options)
    : model_{model},
      pool_{pool},
      options_{std::move(options)},
      context_{std::min(pool.limits().context, pool.use().cells)},
      scheduler_{PoolMemory{pool, options_.tree},
                 {.sequences = pool.limits().texts, .batch = pool.limits().batch, .context = context_}} {
    for (const User& user : trace) {
        const auto index = static_cast<int>(conversations_.size());
        const std::int64_t length = Conversation::length(user, model);
        if (length > context_ && options_.sinks < 0) {
            throw std::runtime_error{"user " + std::to_string(index + 1) + " needs " + std::to_string(length)
                                     + " tokens, expected at most " + std::to_string(context_)
                                     + ", the context or the cells"};
        }
        due_.push_back(&conversations_.emplace_back(user, index, model, options_.temperature));
    }
    outcome_.texts.resize(trace.size());
}

Outcome Server::run() {
    const auto begin = Clock::now();
    while (!due_.empty() || !scheduler_.empty()) {
        skip_idle_steps();
        receive();
        const llama::Matrix& logits = compute();
        Eigen::Index row = 0; // one for each part
        for (const Part& part : scheduler_.parts()) {
            if (part.at_end) advance(part.request, logits, row);
            ++row;
        }
        outcome_.samples.push_back({step_, pool_.use()});
        outcome_.steps = ++step_;
        if (options_.watch)
            options_.watch({step_, scheduler_.running(), static_cast<int>(scheduler_.waiting()), finished_,
                            static_cast<int>(conversations_.size())});
    }
    outcome_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    outcome_.preemptions = scheduler_.preemptions();
    outcome_.tree = pool_.prefixes();
    outcome_.audit = pool_.audit();
    return std::move(outcome_);
}

void Server::skip_idle_steps() {
    if (!scheduler_.empty()) return;
    int next = std::numeric_limits<int>::max();
    for (const Conversation* conversation : due_) next = std::min(next, conversation->arrival());
    step_ = std::max(step_, next);
}

/// Submits the prompts that arrive at this step.
void Server::receive() {
    const auto arrived = std::stable_partition(
        due_.begin(), due_.end(), [&](const Conversation* conversation) { return conversation->arrival() > step_; });
    for (auto conversation = arrived; conversation != due_.end(); ++conversation) {
        (*conversation)->since = Clock::now();
        if ((*conversation)->length() > context_) {
            (*conversation)->forget((*conversation)->older_half(options_.sinks, context_));
            ++outcome_.shifts;
        }
        submit(**conversation);
    }
    due_.erase(arrived, due_.end());
}

void Server::submit(Conversation& conversation) {
    served_[scheduler_.submit(conversation.request()).value()] = &conversation;
}

const llama::Matrix& Server::compute() {
    const auto logits = scheduler_.begin([&](const cellar::Batch&) { return run_pass(); });
    if (!logits) throw std::runtime_error{"the memory refused a pass: " + to_string(logits.error())};
    ++outcome_.passes;
    for (const Part& part : scheduler_.parts()) outcome_.computed += std::ssize(part.tokens);
    return **logits;
}

cellar::Result<const llama::Matrix*> Server::run_pass() {
    std::vector<llama::NewTokens> batch;
    for (const Part& part : scheduler_.parts()) batch.push_back({part.sequence.value, part.tokens});
    cellar::Refusal refusal;
    if (const llama::Matrix* const logits = model_.run(batch, refusal)) return logits;
    ++outcome_.refusals;
    return refusal;
}

/// After a pass that ends with the last token of a request.
void Server::advance(RequestId id, const llama::Matrix& logits, Eigen::Index row) {
    Conversation& conversation = *served_.at(id);
    const bool is_complete = scheduler_.append(id, conversation.draw(logits, row));
    if (conversation.has_one_token()) measure(outcome_.first, conversation);
    if (conversation.is_answered()) return finish_turn(id);
    if (is_complete) shift(id);
}

/// The context is full. If the memory cannot move the tokens that stay, they are computed again.
void Server::shift(RequestId id) {
    Conversation& conversation = *served_.at(id);
    const Range range = conversation.older_half(options_.sinks, context_);
    conversation.forget(range);
    ++outcome_.shifts;
    if (scheduler_.forget(id, cellar::Position{range.begin}, cellar::Position{range.end})) return;
    scheduler_.finish(id);
    served_.erase(id);
    submit(conversation);
}

void Server::finish_turn(RequestId id) {
    Conversation& conversation = *served_.at(id);
    measure(outcome_.whole, conversation);
    ++outcome_.replies;
    scheduler_.finish(id);
    served_.erase(id);
    if (conversation.next_turn(step_)) {
        due_.push_back(&conversation);
    } else {
        outcome_.texts[static_cast<std::size_t>(conversation.index())] = conversation.text();
        ++finished_;
    }
}

void Server::measure(Latency& latency, const Conversation& conversation) const {
    latency.steps.push_back(step_ + 1 - conversation.arrival());
    latency.seconds.push_back(std::chrono::duration<double>(Clock::now() - conversation.since).count());
}

} // namespace serve
