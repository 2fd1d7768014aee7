// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/contract.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <type_traits>
#include <utility>

namespace cellar {

/// The threads of an engine that calls an operation on all its threads at once (a tensor library's threads, a parallel
/// region of OpenMP), for an `attend` within that operation: thread 0 leads, the others help.
///
/// Each thread that works on the operation calls `op`. Helpers may come late, or not at all: nothing waits for one that
/// has not come. A helper stays in `op` until the leader's work is done. It yields its core a few times while there is
/// nothing to do, and then sleeps: if there are more threads than free cores, one that spins takes the core of one that
/// works.
///
/// One object serves one operation. `reset` makes it ready for the next one.
class OpThreads {
public:
    OpThreads() = default;
    OpThreads(const OpThreads&) = delete;
    OpThreads& operator=(const OpThreads&) = delete;

    /// Thread `ith` of `nth` works on the operation. Thread 0 calls lead(*this), which may call `attend` any number of
    /// times, and returns when `lead` has. The others help, and return when it has; at once, if they are that late. The
    /// numbers of threads that are here at the same time are different. What `lead` throws leaves `op` on thread 0,
    /// after the helpers were released. With over 4096 threads, the rest of them do not help.
    template <class Lead>
    void op(int ith, int nth, Lead&& lead) {
        CELLAR_EXPECTS(ith >= 0 && ith < nth, "op: thread ", ith, " of ", nth, ", expected 0 to ", nth - 1);
        if (ith != 0) return help(ith);
        count_ = nth < most_threads ? nth : most_threads;
        const End end{*this};
        std::forward<Lead>(lead)(std::as_const(*this));
    }

    /// Makes the object ready for another operation. No thread is in `op`, and none of the last operation will still
    /// come: the engine has a barrier here, or joins its threads.
    void reset() { state_.store(0, std::memory_order_relaxed); }

    /// For `attend`, within `lead`: how many threads may work at once.
    int count() const { return count_; }

    /// For `attend`, within `lead`: calls f(0) here, and f(i) on each helper i that comes before f(0) has returned.
    /// Returns when all these calls have. If one of them throws, so does `run`, then.
    template <class F>
    void run(F&& f) const {
        using Function = std::remove_reference_t<F>;
        const Job job{const_cast<void*>(static_cast<const void*>(&f)),
                      [](void* function, int thread) { (*static_cast<Function*>(function))(thread); }};
        job_ = &job;
        {
            const Opening opening{*this};
            f(0);
        }
        if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    }

private:
    // What the helpers are to call.
    struct Job {
        void* function;
        void (*call)(void* function, int thread);
    };

    // The state: how many helpers are in the job, whether they may enter it, whether the operation is over, and the
    // number of the job. By the number, a helper knows that it has done this one. 32 bits, which a thread can sleep on.
    // A change before a notify is sequentially consistent, so that it does not miss a thread that is about to sleep.
    static constexpr std::uint32_t helpers = (1U << 13) - 1;
    static constexpr std::uint32_t open = 1U << 13;
    static constexpr std::uint32_t over = 1U << 14;
    static constexpr std::uint32_t next_job = 1U << 15;
    static constexpr int most_threads = 1 << 12;
    static constexpr int yields_before_sleep = 64; // some 20 us if the core is free: waking takes longer

    /// Lets helpers enter the job as long as it lives. Its end waits for those that have.
    class Opening {
    public:
        explicit Opening(const OpThreads& threads) : threads_{threads} {
            threads_.thrown_ = nullptr;
            threads_.has_thrown_.store(false, std::memory_order_relaxed);
            // Between two jobs, only the leader changes the state.
            const std::uint32_t job = threads_.state_.load(std::memory_order_relaxed) / next_job;
            threads_.state_.exchange((job + 1) * next_job + open);
            threads_.state_.notify_all();
        }
        ~Opening() {
            std::uint32_t state = threads_.state_.fetch_and(~open, std::memory_order_acquire) & ~open;
            while ((state & helpers) != 0) state = threads_.wait(state);
        }
        Opening(const Opening&) = delete;
        Opening& operator=(const Opening&) = delete;

    private:
        const OpThreads& threads_;
    };

    /// Releases the helpers.
    struct End {
        OpThreads& threads;
        explicit End(OpThreads& all) : threads{all} {}
        ~End() {
            threads.state_.fetch_or(over);
            threads.state_.notify_all();
        }
        End(const End&) = delete;
        End& operator=(const End&) = delete;
    };

    void help(int thread) {
        std::uint32_t state = state_.load(std::memory_order_acquire);
        std::uint32_t done = 0; // the job that this thread has helped with; the first one is 1
        while ((state & over) == 0) {
            if ((state & open) == 0 || state / next_job == done) {
                state = wait(state);
            } else if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
                done = state / next_job;
                work(thread);
                state = state_.fetch_sub(1) - 1;
                if ((state & (helpers | open)) == 0) state_.notify_all(); // the leader waits for the last one
            }
        }
    }

    void work(int thread) const {
        if (thread >= count_) return;
        try {
            job_->call(job_->function, thread);
        } catch (...) {
            if (!has_thrown_.exchange(true, std::memory_order_relaxed)) thrown_ = std::current_exception();
        }
    }

    // Until the state is no longer that one; returns it.
    std::uint32_t wait(std::uint32_t state) const {
        std::uint32_t now = state_.load(std::memory_order_acquire);
        for (int i = 0; now == state && i < yields_before_sleep; ++i) {
            std::this_thread::yield();
            now = state_.load(std::memory_order_acquire);
        }
        while (now == state) {
            state_.wait(state, std::memory_order_acquire);
            now = state_.load(std::memory_order_acquire);
        }
        return now;
    }

    mutable std::atomic<std::uint32_t> state_{0};
    // Written by the leader before it opens a job, and read by helpers in it.
    int count_ = 1;
    mutable const Job* job_ = nullptr;
    // Written by the helper that is the first to throw, and read by the leader when all have left.
    mutable std::atomic<bool> has_thrown_{false};
    mutable std::exception_ptr thrown_;
};

} // namespace cellar
