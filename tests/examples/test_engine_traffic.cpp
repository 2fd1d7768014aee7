// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random traffic through the engine: 64 texts, the tree, shifts, sessions, a budget. CELLAR_ENGINE_TOKENS is how many
// tokens are computed for each architecture.
#include "commands.hpp"
#include "engine/engine.hpp"
#include "engine/vocabulary.hpp"
#include "random_gguf.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace test_engine_traffic {

namespace {

constexpr int texts = 64;
constexpr int context = 96;

struct User {
    std::vector<int> tokens = {};
    int kind = 0;         ///< of its prompt
    bool shifted = false; ///< its keys saw tokens that it no longer has
};

constexpr int prompt = 24; // tokens

int prompt_token(int kind, int at) {
    return (kind * 31 + at * 7) % 160;
}

/// A model with few weights: the memory is what is tested.
RandomModel tiny_model(const std::string& architecture) {
    RandomModel model = random_model(architecture);
    model.width = 32;
    model.heads = 2;
    model.kv_heads = 1;
    model.head_dim = 16;
    model.feed_forward = 32;
    model.layers = architecture == "gemma3" ? 6 : 3; // the last one sees everything
    return model;
}

/// As many cells as fit into a budget, which is far less than 64 whole texts take.
engine::MemoryOptions options_for(const engine::Model& model, std::int64_t bytes) {
    engine::MemoryOptions options{.limits = {.texts = texts,
                                             .context = context,
                                             .batch = 32,
                                             .snapshots = 16,
                                             .prefixes = {.offloaded_bytes = 200'000}}};
    options.limits.cells = texts * context;
    CHECK(engine::memory_bytes(model.shape(), options) > bytes);
    options.limits.cells = engine::cells_for_bytes(model.shape(), options, bytes);
    return options;
}

class Traffic {
public:
    Traffic(const std::string& path, std::uint64_t seed, std::int64_t bytes)
        : model_{path, 1},
          engine_{model_, options_for(model_, bytes)},
          alone_{model_, {.limits = {.texts = 1, .context = context, .batch = 32}}},
          users_(texts),
          random_{seed} {
        CHECK(engine_.memory().bytes() <= bytes);
    }

    void run(int tokens) {
        for (int step = 0; computed_ < tokens; ++step) {
            switch (below(10)) {
            case 0:
                begin_again(below(texts));
                break;
            case 1:
                keep(below(texts));
                break;
            case 2:
                shift(below(texts));
                break;
            case 3:
                save_and_load(below(texts), below(texts));
                break;
            default:
                feed();
            }
            const std::string found = engine_.memory().audit();
            CHECK_MESSAGE(found.empty(), found);
            for (int i = 0; i < texts; ++i)
                CHECK(engine_.memory().length(i)
                      == static_cast<int>(users_[static_cast<std::size_t>(i)].tokens.size()));
            if (step % 4 == 0) compare_with_alone(below(texts));
        }
        CHECK(attached_ > 0);
        CHECK((shifts_ > 0) == can_shift_);
        CHECK(compared_ > 0);
        CHECK(refused_ > 0);
        MESSAGE(computed_, " tokens computed, ", attached_, " attached, ", shifts_, " shifts, ", loads_, " loads, ",
                refused_, " refusals, ", compared_, " texts compared, difference ", difference_);
    }

private:
    engine::Memory& memory() { return engine_.memory(); }
    User& user(int i) { return users_[static_cast<std::size_t>(i)]; }
    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

    /// A new text in this place, which begins like others do.
    void begin_again(int i) {
        memory().clear(i);
        const int kind = below(3);
        std::vector<int> tokens;
        for (int at = 0; at < prompt; ++at) tokens.push_back(prompt_token(kind, at));
        const int length = memory().attach(i, tokens);
        attached_ += length;
        tokens.resize(static_cast<std::size_t>(length));
        user(i) = {tokens, kind, false};
    }

    void keep(int i) {
        if (!user(i).shifted && !user(i).tokens.empty()) memory().keep(i, user(i).tokens);
    }

    void shift(int i) {
        User& u = user(i);
        const auto length = static_cast<int>(u.tokens.size());
        if (length < 12) return;
        const int begin = below(length / 2);
        const int end = begin + 1 + below(length / 2 - 1);
        if (const auto removed = memory().remove(i, begin, end); !removed) {
            if (removed.error() == cellar::Reason::full) { // keys that others share are copied before they move
                ++refused_;
                return;
            }
            CHECK(removed.error() == cellar::Reason::cannot_cut); // a state cannot lose tokens from its middle
            can_shift_ = false;
            return;
        }
        u.tokens.erase(u.tokens.begin() + begin, u.tokens.begin() + end);
        u.shifted = true;
        ++shifts_;
    }

    void save_and_load(int from, int to) {
        if (from == to || user(from).tokens.empty()) return;
        try {
            memory().save(folder_.path("text"), from, {});
        } catch (const std::runtime_error& error) { // a window that lost tokens by a shift has a gap for a while
            CHECK(user(from).shifted);
            CHECK_MESSAGE(std::string{error.what()}.find("cannot resume") != std::string::npos, error.what());
            ++refused_;
            return;
        }
        try {
            memory().load(folder_.path("text"), to, {});
            user(to) = user(from);
            ++loads_;
        } catch (const std::runtime_error&) {
            ++refused_; // full; the text is as it was
        }
    }

    /// A pass over the next tokens of some texts.
    void feed() {
        std::vector<std::vector<int>> next(texts);
        std::vector<llama::NewTokens> batch;
        int left = 32;
        for (int i = below(3); i < texts && left > 0; i += 1 + below(3)) {
            auto& tokens = next[static_cast<std::size_t>(i)];
            const auto length = static_cast<int>(user(i).tokens.size());
            const int count = std::min({1 + below(below(4) == 0 ? 12 : 2), context - length, left});
            for (int n = 0; n < count; ++n) tokens.push_back(token_of(i, length + n));
            if (count <= 0) continue;
            left -= count;
            batch.push_back({i, tokens});
        }
        if (batch.empty()) return begin_again(below(texts));
        cellar::Refusal refusal;
        if (engine_.run(batch, refusal) == nullptr) {
            CHECK(refusal == cellar::Reason::full);
            ++refused_;
            return begin_again(below(texts));
        }
        for (const llama::NewTokens& part : batch) {
            computed_ += static_cast<int>(part.tokens.size());
            user(part.text).tokens.insert(user(part.text).tokens.end(), part.tokens.begin(), part.tokens.end());
        }
    }

    int token_of(int i, int at) {
        return at < prompt && !user(i).shifted ? prompt_token(user(i).kind, at) : below(160);
    }

    /// The next logits are those of a memory that has this text alone, but for rounding.
    void compare_with_alone(int i) {
        User& u = user(i);
        if (u.shifted || u.tokens.empty() || static_cast<int>(u.tokens.size()) >= context) return;
        const std::vector<int> next{token_of(i, static_cast<int>(u.tokens.size()))};
        const llama::NewTokens batch{i, next};
        cellar::Refusal refusal;
        const llama::Matrix* const found = engine_.run({&batch, 1}, refusal);
        if (found == nullptr) return;
        const llama::Matrix own = *found;
        u.tokens.push_back(next.front());
        alone_.memory().clear(0);
        const llama::Matrix* expected = nullptr;
        for (std::size_t at = 0; at < u.tokens.size(); at += 32) {
            const llama::NewTokens piece{
                0, std::span{u.tokens}.subspan(at, std::min<std::size_t>(32, u.tokens.size() - at))};
            expected = alone_.run({&piece, 1}, refusal);
            REQUIRE(expected != nullptr);
        }
        const float difference = (own - *expected).cwiseAbs().maxCoeff();
        CHECK(difference < 0.02F);
        difference_ = std::max(difference_, difference);
        ++compared_;
    }

    Scratch folder_;
    engine::Model model_;
    engine::Engine engine_;
    engine::Engine alone_;
    std::vector<User> users_;
    std::mt19937_64 random_;
    int computed_ = 0;
    int attached_ = 0;
    int shifts_ = 0;
    bool can_shift_ = true;
    int loads_ = 0;
    int refused_ = 0;
    float difference_ = 0;
    int compared_ = 0;
};

} // namespace

TEST_CASE("engine: random traffic leaves every text what it would be alone, and the books in order") {
    engine::print_errors_only();
    const Scratch folder;
    const char* const wanted = std::getenv("CELLAR_ENGINE_TOKENS");
    const int tokens = wanted == nullptr ? 10'000 : std::max(1000, std::atoi(wanted));
    std::uint64_t seed = 1;
    struct Case {
        std::string architecture;
        std::int64_t bytes; // for some 1500 cells
    };
    for (const auto& [architecture, bytes] :
         {Case{"llama", 560'000}, Case{"gemma3", 1'000'000}, Case{"lfm2", 510'000}}) {
        CAPTURE(architecture);
        const std::string path = folder.path(architecture);
        write_gguf(path, tiny_model(architecture));
        Traffic traffic{path, seed++, bytes};
        traffic.run(tokens);
    }
}

} // namespace test_engine_traffic
