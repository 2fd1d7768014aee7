// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "filled.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace cellar::bench {

/// Forward passes one after another on a filled cache: a decode step of all sequences, or a prompt of the first. The
/// cache stays as full as the scene says: a window forgets by itself, and a cache without one is brought back (outside
/// the measured time) after a few passes.
template <WindowPolicy Window>
class Steps {
public:
    Steps(const Scene& scene, std::int32_t prompt) : cache{filled<Window>(scene)}, scene_{scene}, prompt_{prompt} {
        const std::int32_t room = cache.cells() - scene.tokens() * scene.sequences;
        turns_ = std::min(32, room / tokens_of_pass());
        rewind();
    }

    Batch batch() const { return tokens_.batch(); }

    /// To be called after each pass that was committed; the cells of its tokens in a ScanCache.
    void advance(ScanCache<Window>* scan = nullptr) {
        if (scan != nullptr) entered_.insert(entered_.end(), scan->taken().begin(), scan->taken().end());
        tokens_.advance(prompt_ != 0 ? prompt_ : 1);
        if (++turn_ < turns_) return;
        if constexpr (std::same_as<Window, FullCausal>) {
            if (scan != nullptr) scan->take_back(entered_);
            rewind();
        }
        turn_ = 0;
        entered_.clear();
    }

    Bookkeeping<Window> cache;

private:
    std::int32_t tokens_of_pass() const { return prompt_ != 0 ? prompt_ : scene_.sequences; }

    void rewind() {
        if constexpr (std::same_as<Window, FullCausal>)
            for (std::int32_t s = 0; s < scene_.sequences; ++s)
                (void)cache.remove({s}, {scene_.tokens()}, to_end).has_value();
        tokens_ = prompt_ != 0 ? Tokens::prompt({0}, table_of(cache).record({0}).runs.last() + 1, prompt_)
                               : Tokens::step(table_of(cache), scene_.sequences);
    }

    Scene scene_;
    std::int32_t prompt_;
    std::int32_t turns_ = 0;
    std::int32_t turn_ = 0;
    Tokens tokens_;
    std::vector<Cell> entered_;
};

/// A few passes done both ways: the same cells, history, masks and tokens. Once for each job.
template <WindowPolicy Window>
void expect_same_passes(const Scene& scene, std::int32_t prompt, Search search, const std::string& job) {
    static std::set<std::string> done;
    if (!done.insert(job).second) return;
    Steps<Window> steps{scene, prompt};
    ScanCache<Window> scan{table_of(steps.cache), steps.cache.window()};
    std::vector<float> expected;
    for (int i = 0; i < 3; ++i) {
        auto pass = steps.cache.begin(steps.batch());
        expect(pass.has_value() && scan.begin(steps.batch(), search), job + ": the cache is full");
        expect(std::equal(scan.taken().begin(), scan.taken().end(), pass->cells().begin(), pass->cells().end()),
               job + ": the scan took other cells");
        expect(scan.history() == pass->history(), job + ": the scan has another history");
        expect_same_tokens(table_of(steps.cache), scan, job);
        const auto mask = pass->mask();
        expected.resize(static_cast<std::size_t>(mask.size()));
        scan.write_mask(steps.batch(), expected.data());
        expect(std::equal(expected.begin(), expected.end(), mask.data_handle()), job + ": the scan has another mask");
        pass->commit();
        steps.advance(&scan);
    }
}

} // namespace cellar::bench
