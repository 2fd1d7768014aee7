// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace cellar::bench {

/// Threads that wait for work without sleeping, so that handing it to them takes less than a microsecond.
class Team {
public:
    explicit Team(int count) : count_{count} {
        for (int i = 1; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    ~Team() {
        ends_ = true;
        ++round_;
        for (std::thread& thread : threads_) thread.join();
    }

    int count() const { return count_; }

    /// Calls f(0) to f(count() - 1), the first one on the calling thread.
    template <class F>
    void run(F&& f) const {
        work_ = std::ref(f);
        working_ = count_ - 1;
        ++round_;
        f(0);
        while (working_ != 0) {}
    }

private:
    void serve(int index) {
        for (int seen = 0; !ends_;) {
            while (round_ == seen) {}
            ++seen;
            if (ends_) return;
            work_(index);
            --working_;
        }
    }

    int count_;
    mutable std::function<void(int)> work_;
    mutable std::atomic<int> round_ = 0;
    mutable std::atomic<int> working_ = 0;
    std::atomic<bool> ends_ = false;
    std::vector<std::thread> threads_;
};

} // namespace cellar::bench
