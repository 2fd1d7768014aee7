// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "server.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace serve {

Server::Server(llama::TextModel& model, llama::Texts& pool, const Trace& trace, ServerOptions options)
    : model_{model}, pool_{pool}, options_{std::move(options)} {
    const llama::PoolLimits& limits = pool.limits();
    const int longest = std::min(limits.context, pool.use().cells);
    for (const User& user : trace) {
        const auto index = static_cast<int>(requests_.size());
        const std::int64_t length = Request::length(user, model);
        if (length > longest && options_.sinks < 0) {
            throw std::runtime_error{"user " + std::to_string(index + 1) + " needs " + std::to_string(length)
                                     + " tokens, expected at most " + std::to_string(longest)
                                     + ", the context or the cells"};
        }
        due_.push_back(&requests_.emplace_back(user, index, model, options_.temperature));
    }
    for (int text = limits.texts; text > 0; --text) free_texts_.push_back(text - 1);
    outcome_.texts.resize(trace.size());
}

Outcome Server::run() {
    const auto begin = Clock::now();
    while (!due_.empty() || !queue_.empty() || !running_.empty()) {
        skip_idle_steps();
        receive();
        admit();
        std::vector<Part> batch = next_batch();
        const llama::Matrix& logits = compute(batch);
        Eigen::Index row = 0;
        for (const Part& part : batch) advance(part, logits, row++);
        outcome_.samples.push_back({step_, pool_.use()});
        outcome_.steps = ++step_;
        if (options_.watch)
            options_.watch({step_, static_cast<int>(running_.size()), static_cast<int>(queue_.size()), finished_,
                            static_cast<int>(requests_.size())});
    }
    outcome_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    outcome_.tree = pool_.prefixes();
    outcome_.audit = pool_.audit();
    return std::move(outcome_);
}

void Server::skip_idle_steps() {
    if (!queue_.empty() || !running_.empty()) return;
    int next = std::numeric_limits<int>::max();
    for (const Request* request : due_) next = std::min(next, request->arrival());
    step_ = std::max(step_, next);
}

/// Prompts that arrive at this step join the queue.
void Server::receive() {
    const auto arrived = std::stable_partition(due_.begin(), due_.end(),
                                               [&](const Request* request) { return request->arrival() > step_; });
    for (auto request = arrived; request != due_.end(); ++request) {
        (*request)->since = Clock::now();
        queue_.push_back(*request);
    }
    due_.erase(arrived, due_.end());
}

void Server::admit() {
    while (!queue_.empty() && !free_texts_.empty() && has_room_for(*queue_.front())) {
        Request& request = *queue_.front();
        queue_.pop_front();
        request.text_number = free_texts_.back();
        free_texts_.pop_back();
        running_.push_back(&request);
        if (options_.tree) pool_.attach(request.text_number, request.first(request.length() - 1));
    }
}

/// True if the request's tokens and the next ones of each request fit beside what the running ones have. So a request
/// that was just put back does not return at once.
bool Server::has_room_for(const Request& request) const {
    if (running_.empty()) return true;
    constexpr int steps_ahead = 8;
    const bool shares_prompt =
        options_.tree && std::any_of(running_.begin(), running_.end(), [&](const Request* other) {
            return other->system() == request.system() && done(*other) >= request.system_length();
        });
    const int own = request.length() - (shares_prompt ? request.system_length() : 0);
    const llama::PoolUse use = pool_.use();
    return use.live + own + steps_ahead * (static_cast<int>(running_.size()) + 1) <= use.cells;
}

/// The newest token of every request that is writing, then pieces of prompts, as far as the batch goes.
std::vector<Server::Part> Server::next_batch() const {
    std::vector<Part> batch;
    int left = pool_.limits().batch;
    for (const bool is_prompt : {false, true}) {
        for (Request* const request : running_) {
            const int before = done(*request);
            if ((request->length() - before > 1) != is_prompt || left == 0) continue;
            batch.push_back({request, request->piece(before, left)});
            left -= batch.back().count;
        }
    }
    return batch;
}

/// Puts requests back until the pool has room for the batch.
const llama::Matrix& Server::compute(std::vector<Part>& batch) {
    while (true) {
        cellar::Refusal refusal;
        if (const llama::Matrix* const logits = run_pass(batch, refusal)) {
            ++outcome_.passes;
            for (const Part& part : batch) outcome_.computed += part.count;
            return *logits;
        }
        ++outcome_.refusals;
        if (refusal != cellar::Reason::full || running_.size() < 2)
            throw std::runtime_error{"the memory refused a pass: " + to_string(refusal)};
        preempt();
        batch = next_batch();
    }
}

/// Returns null and the refusal if the pool has no room.
const llama::Matrix* Server::run_pass(const std::vector<Part>& batch, cellar::Refusal& refusal) {
    std::vector<llama::NewTokens> tokens;
    for (const Part& part : batch) {
        if (const auto shifted = shift(*part.request, part.count); !shifted) {
            refusal = shifted.error();
            return nullptr;
        }
        const auto from = static_cast<std::size_t>(done(*part.request));
        tokens.push_back(
            {part.request->text_number, part.request->tokens().subspan(from, static_cast<std::size_t>(part.count))});
    }
    return model_.run(tokens, refusal);
}

/// Makes room in the context for the next tokens, if a conversation may outgrow it.
cellar::Result<void> Server::shift(Request& request, int count) {
    const int length = done(request);
    const int over = length + count - pool_.limits().context;
    if (over <= 0 || options_.sinks < 0) return {};
    const int sinks = std::min(options_.sinks, length);
    const int end = sinks + std::min(length - sinks, std::max((length - sinks) / 2, over));
    if (auto removed = pool_.remove(request.text_number, sinks, end); !removed) return removed;
    request.forget(sinks, end);
    request.is_shifted = true;
    ++outcome_.shifts;
    return {};
}

/// The tree keeps what was computed, unless it saw tokens that the request no longer has.
void Server::keep(Request& request, int length) {
    if (options_.tree && !request.is_shifted) pool_.keep(request.text_number, request.first(length));
}

/// The request that began last goes back to the head of the queue.
void Server::preempt() {
    Request& request = *running_.back();
    keep(request, done(request));
    release(request);
    queue_.push_front(&request);
    ++outcome_.preemptions;
}

/// After a pass over tokens of a request.
void Server::advance(const Part& part, const llama::Matrix& logits, Eigen::Index row) {
    Request& request = *part.request;
    const int now = done(request);
    if (request.is_boundary(now)) keep(request, now);
    if (now < request.length()) return;
    request.draw(logits, row);
    if (request.has_one_token()) measure(outcome_.first, request);
    if (request.is_answered()) finish_turn(request);
}

void Server::finish_turn(Request& request) {
    measure(outcome_.whole, request);
    ++outcome_.replies;
    keep(request, done(request));
    release(request);
    if (request.next_turn(step_)) {
        due_.push_back(&request);
    } else {
        outcome_.texts[static_cast<std::size_t>(request.index())] = request.text();
        ++finished_;
    }
}

void Server::release(Request& request) {
    pool_.clear(request.text_number);
    request.is_shifted = false;
    free_texts_.push_back(std::exchange(request.text_number, -1));
    std::erase(running_, &request);
}

void Server::measure(Latency& latency, const Request& request) const {
    latency.steps.push_back(step_ + 1 - request.arrival());
    latency.seconds.push_back(std::chrono::duration<double>(Clock::now() - request.since).count());
}

} // namespace serve
