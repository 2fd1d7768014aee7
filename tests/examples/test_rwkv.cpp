// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A trained recurrent model: results of other programs from the same file, and many users at once.
#include "generate/file.hpp"
#include "rwkv/checkpoint.hpp"
#include "rwkv/memory.hpp"
#include "rwkv/model.hpp"
#include "rwkv_files.hpp"
#include "skip.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_rwkv {

namespace {

using rwkv::Matrix;
using rwkv::RowVector;

const rwkv::Rwkv& model() {
    static const rwkv::Rwkv m{rwkv::read_checkpoint(llama::read_file(tiny_rwkv))};
    return m;
}

std::vector<float> floats(const std::string& name) {
    const std::vector<char> bytes = llama::read_file(rwkv_folder + name).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    llama::load(bytes.data(), std::span{values});
    return values;
}

float difference(const float* a, const float* b, std::size_t size) {
    float largest = 0;
    for (std::size_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
}

int most_likely(const RowVector& logits) {
    Eigen::Index best = 0;
    logits.maxCoeff(&best);
    return static_cast<int>(best);
}

/// The states of all layers for one sequence, in a plain array.
class PlainState {
public:
    PlainState() : values_(static_cast<std::size_t>(layer_size() * model().config().layers)) {}

    RowVector feed(int token) {
        const rwkv::Config& c = model().config();
        Matrix x = model().embed({&token, 1});
        Matrix first_values;
        for (int layer = 0; layer < c.layers; ++layer) {
            float* const p = values_.data() + layer * layer_size();
            const rwkv::LayerState state{
                cellar::contiguous_view(p, 1, c.hidden_size),
                cellar::contiguous_view(p + c.hidden_size, 1, c.hidden_size),
                cellar::contiguous_view(p + 2 * c.hidden_size, 1, c.heads, c.head_dim(), c.head_dim())};
            model().layer(layer, state, x, first_values);
        }
        return model().classify(x);
    }

    static std::ptrdiff_t layer_size() {
        const rwkv::Config& c = model().config();
        return 2 * c.hidden_size + c.hidden_size * c.head_dim();
    }

    std::vector<float>& values() { return values_; }

private:
    std::vector<float> values_;
};

rwkv::Memory make_memory(const cellar::StateLimits& limits) {
    return {rwkv::state_shape(model().config()), limits};
}

/// Feeds tokens of one sequence in one pass.
Matrix feed(rwkv::Memory& memory, cellar::Sequence s, std::span<const int> tokens) {
    std::vector<cellar::Position> positions;
    for (std::size_t i = 0; i < tokens.size(); ++i) positions.push_back(memory.next(s) + static_cast<std::int32_t>(i));
    const std::vector<cellar::Sequence> sequences(tokens.size(), s);
    auto pass = memory.begin({positions, sequences});
    REQUIRE(pass.has_value());
    Matrix logits = rwkv::forward(model(), *pass, tokens);
    pass->commit();
    return logits;
}

template <class Tag>
void append(std::vector<float>& all, const rwkv::Memory& memory, int layer, cellar::Sequence s) {
    const auto view = memory.view<Tag>(layer, memory.state(s));
    REQUIRE(view.is_contiguous());
    all.insert(all.end(), view.pointer, view.pointer + view.size());
}

/// The state of a sequence, in the order of `PlainState`.
std::vector<float> state_of(const rwkv::Memory& memory, cellar::Sequence s) {
    std::vector<float> all;
    for (int layer = 0; layer < model().config().layers; ++layer) {
        append<rwkv::ChannelToken>(all, memory, layer, s);
        append<rwkv::TimeToken>(all, memory, layer, s);
        append<rwkv::KeyValue>(all, memory, layer, s);
    }
    return all;
}

} // namespace

TEST_CASE("rwkv: logits and states equal the reference after one, two and three tokens") {
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    const std::vector<int> tokens{34, 105, 110};
    const auto logits = floats("recomputed-logits-7v0-834K.bin");
    const auto states = floats("recomputed-state-7v0-834K.bin");
    const auto expected = floats("expected-logits-7v0-834K.bin");
    const std::size_t size = states.size() / 3;
    REQUIRE(logits.size() == 3 * 256);
    REQUIRE(expected.size() == 256);
    for (const std::size_t batch : {1U, 2U, 3U}) {
        for (const int rollback : {0, 2}) {
            auto memory = make_memory({.sequences = 2, .batch = 3, .rollback = rollback});
            for (std::size_t done = 0; done < 3; done += batch) {
                const std::size_t count = std::min(batch, 3 - done);
                const Matrix got = feed(memory, cellar::Sequence{1}, std::span{tokens}.subspan(done, count));
                for (std::size_t i = 0; i < count; ++i) {
                    const float* row = got.row(static_cast<Eigen::Index>(i)).data();
                    CHECK(difference(row, logits.data() + (done + i) * 256, 256) < 1e-4F);
                    if (done + i == 2) CHECK(difference(row, expected.data(), 256) < 1e-4F);
                }
                const std::vector<float> state = state_of(memory, cellar::Sequence{1});
                REQUIRE(state.size() == size);
                CHECK(difference(state.data(), states.data() + (done + count - 1) * size, size) < 1e-4F);
            }
        }
    }
}

TEST_CASE("rwkv: the greedy text equals the reference") {
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    std::ifstream file{rwkv_folder + "recomputed-greedy-7v0-834K.json"};
    const auto json = nlohmann::json::parse(file);
    const auto prompt = json.at("prompt").get<std::vector<int>>();
    const auto expected = json.at("greedy").get<std::vector<int>>();
    auto memory = make_memory({.batch = 3});
    Matrix logits = feed(memory, cellar::Sequence{0}, prompt);
    std::vector<int> written;
    while (written.size() < expected.size()) {
        written.push_back(most_likely(logits.bottomRows(1)));
        logits = feed(memory, cellar::Sequence{0}, {&written.back(), 1});
    }
    CHECK(written == expected);
    CHECK(written.size() == 32);
}

namespace {

/// Users of one memory who act in random order. Each also has its plain states after every token.
class Users {
public:
    Users()
        : memory_{make_memory(
            {.sequences = users, .batch = 32, .rollback = rollback, .checkpoints = 5, .checkpoint_interval = 5})},
          alone_(users, Alone(1)) {}

    /// Some users feed some tokens each, in one mixed batch. One batch in four is dropped.
    void feed() {
        std::vector<int> tokens;
        std::vector<cellar::Position> positions;
        std::vector<cellar::Sequence> sequences;
        std::vector<int> order; // the user of each token
        for (int user = 0; user < users; ++user) order.insert(order.end(), static_cast<std::size_t>(below(6)), user);
        std::shuffle(order.begin(), order.end(), random_);
        std::vector<Alone> after = alone_;
        std::vector<RowVector> expected;
        for (const int user : order) {
            Alone& alone = after[static_cast<std::size_t>(user)];
            tokens.push_back(below(256));
            positions.push_back(cellar::Position{static_cast<std::int32_t>(alone.size()) - 1});
            sequences.push_back(cellar::Sequence{user});
            alone.push_back(alone.back());
            expected.push_back(alone.back().feed(tokens.back()));
        }
        auto pass = memory_.begin({positions, sequences});
        REQUIRE(pass.has_value());
        max_micro_batches_ = std::max(max_micro_batches_, pass->micro_batches().size());
        const Matrix logits = rwkv::forward(model(), *pass, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const RowVector row = logits.row(static_cast<Eigen::Index>(i));
            CHECK(difference(row.data(), expected[i].data(), 256) < 1e-5F);
            ++compared_;
        }
        if (below(4) == 0) return; // the pass is dropped
        pass->commit();
        alone_ = std::move(after);
    }

    /// One user continues from another one's text, up to some position.
    void fork() {
        const int from = below(users);
        const int to = below(users);
        const auto length = memory_.resumable_prefix(
            cellar::Sequence{from}, cellar::Position{below(memory_.next(cellar::Sequence{from}).value + 1)});
        REQUIRE(memory_.copy_prefix(cellar::Sequence{from}, cellar::Sequence{to}, length).has_value());
        Alone copy = alone_[static_cast<std::size_t>(from)];
        if (from != to) copy.resize(static_cast<std::size_t>(length.value) + 1);
        alone_[static_cast<std::size_t>(to)] = std::move(copy);
        ++forks_;
    }

    /// One user removes some of its newest tokens, within the rollback or to an older state that is kept.
    void go_back() {
        const int user = below(users);
        Alone& alone = alone_[static_cast<std::size_t>(user)];
        const int next = memory_.next(cellar::Sequence{user}).value;
        REQUIRE(next == static_cast<int>(alone.size()) - 1);
        int to = next - std::min(next, 1 + below(rollback));
        if (!memory_.can_resume(cellar::Sequence{user},
                                cellar::Position{to})) { // a second removal may exceed the rollback
            to = memory_.resumable_prefix(cellar::Sequence{user}, cellar::Position{to}).value;
        }
        REQUIRE(memory_.remove(cellar::Sequence{user}, cellar::Position{to}, cellar::to_end).has_value());
        alone.resize(static_cast<std::size_t>(to) + 1);
        rolled_back_ += next - to;
    }

    void check_states() {
        for (int user = 0; user < users; ++user) {
            Alone& alone = alone_[static_cast<std::size_t>(user)];
            if (alone.size() == 1) continue; // no token, no state
            const std::vector<float> state = state_of(memory_, cellar::Sequence{user});
            CHECK(difference(state.data(), alone.back().values().data(), state.size()) < 1e-5F);
        }
    }

    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

    int compared() const { return compared_; }
    int forks() const { return forks_; }
    int rolled_back() const { return rolled_back_; }
    std::size_t max_micro_batches() const { return max_micro_batches_; }

private:
    static constexpr int users = 5;
    static constexpr int rollback = 3;
    using Alone = std::vector<PlainState>; // after 0, 1, ... tokens

    static cellar::StateShape shape() { return rwkv::state_shape(model().config()); }

    std::mt19937 random_{3};
    rwkv::Memory memory_;
    std::vector<Alone> alone_;
    int compared_ = 0;
    int forks_ = 0;
    int rolled_back_ = 0;
    std::size_t max_micro_batches_ = 0;
};

} // namespace

TEST_CASE("rwkv: users who share a memory get the logits that each would get alone") {
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    Users users;
    for (int step = 0; step < 80; ++step) {
        switch (users.below(6)) {
        case 0:
            users.fork();
            break;
        case 1:
        case 2:
            users.go_back();
            break;
        default:
            users.feed();
        }
        users.check_states();
    }
    CHECK(users.compared() > 100);
    CHECK(users.forks() > 5);
    CHECK(users.rolled_back() > 20);
    CHECK(users.max_micro_batches() > 3);
}

} // namespace test_rwkv
