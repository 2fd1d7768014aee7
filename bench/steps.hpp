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

/// Consecutive forward passes on a filled cache: decode steps of all sequences, or prompts of the first. The cache
/// stays as full as the scene says: a cache with a window forgets tokens, and one without is rewound after a few
/// passes, outside the measured time.
template <WindowPolicy Window>
class Steps {
public:
    Steps(const Scene& scene, std::int32_t prompt) : cache{filled<Window>(scene)}, scene_{scene}, prompt_{prompt} {
        const std::int32_t room = cache.cells() - scene.tokens() * scene.sequences;
        max_passes_ = std::min(32, room / tokens_of_pass());
        rewind();
    }

    Batch batch() const { return tokens_.batch(); }

    /// To be called after each committed pass. A ScanCache, if given, has taken the cells of its tokens.
    void advance(ScanCache<Window>* scan = nullptr) {
        if (scan != nullptr) entered_.insert(entered_.end(), scan->taken().begin(), scan->taken().end());
        tokens_.advance(prompt_ != 0 ? prompt_ : 1);
        if (++passes_ < max_passes_) return;
        if constexpr (std::same_as<Window, FullCausal>) {
            if (scan != nullptr) scan->take_back(entered_);
            rewind();
        }
        passes_ = 0;
        entered_.clear();
    }

    Bookkeeping<Window> cache;

private:
    std::int32_t tokens_of_pass() const { return prompt_ != 0 ? prompt_ : scene_.sequences; }

    void rewind() {
        if constexpr (std::same_as<Window, FullCausal>)
            for (std::int32_t s = 0; s < scene_.sequences; ++s)
                (void)cache.remove(cellar::Sequence{s}, cellar::Position{scene_.tokens()}, to_end).has_value();
        tokens_ = prompt_ != 0 ? TokenList::prompt(cellar::Sequence{0},
                                                   table_of(cache).record(cellar::Sequence{0}).runs.last() + 1, prompt_)
                               : TokenList::step(table_of(cache), scene_.sequences);
    }

    Scene scene_;
    std::int32_t prompt_;
    std::int32_t max_passes_ = 0;
    std::int32_t passes_ = 0;
    TokenList tokens_;
    std::vector<Cell> entered_;
};

/// Fails the run unless cellar and the scan agree in cells, history, masks and tokens over a few passes. Runs once per
/// job.
template <WindowPolicy Window>
void expect_same_passes(Scene scene, std::int32_t prompt, Search search, const std::string& job) {
    static std::set<std::string> done;
    if (!done.insert(job).second) return;
    scene.placement = Placement::scattered; // the scan chooses cells as this does
    Steps<Window> steps{scene, prompt};
    ScanCache<Window> scan{table_of(steps.cache), steps.cache.window()};
    std::vector<float> expected;
    for (int i = 0; i < 3; ++i) {
        auto pass = steps.cache.begin(steps.batch());
        expect(pass.has_value() && scan.begin(steps.batch(), search), job + ": the cache is full");
        expect(std::equal(scan.taken().begin(), scan.taken().end(), pass->cells().begin(), pass->cells().end()),
               job + ": the scan took different cells");
        expect(scan.history() == pass->history(), job + ": the scan has a different history");
        expect_same_tokens(table_of(steps.cache), scan, job);
        const auto mask = pass->mask();
        expected.resize(static_cast<std::size_t>(mask.size()));
        scan.write_mask(steps.batch(), expected.data());
        expect(std::equal(expected.begin(), expected.end(), mask.data_handle()),
               job + ": the scan has a different mask");
        mark_put(*pass, 1);
        pass->commit();
        steps.advance(&scan);
    }
}

} // namespace cellar::bench
