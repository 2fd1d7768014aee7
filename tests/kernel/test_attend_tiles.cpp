// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The kernels of attention for devices, with teams of threads of the host, compared with a plain computation in double.
#include <cellar/backend/kokkos/device_plan.hpp>
#include <cellar/base/attention_work.hpp>
#include <cellar/kernel/attend_tiles.hpp>
#include <cellar/kernel/join_parts.hpp>
#include <cellar/layout/layout.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace test_attend_tiles {

using namespace cellar;
using namespace cellar::detail;

namespace {

using Floats = std::vector<float>;

/// A thread of a team, as far as the kernels use it. Shared memory begins at an odd address and holds garbage.
struct Team {
    std::byte* memory;
    std::barrier<>* barrier;
    int league;
    int rank;
    int size;

    const Team& team_shmem() const { return *this; }
    void* get_shmem(const std::int64_t&) const { return memory; }
    int league_rank() const { return league; }
    int team_rank() const { return rank; }
    int team_size() const { return size; }
    void team_barrier() const { barrier->arrive_and_wait(); }
};

template <class Kernel>
void run(const Kernel& kernel, int league, std::int64_t bytes, int threads) {
    std::barrier<> barrier{threads};
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes + 4), std::byte{0xff}); // as floats, not a number
    std::vector<std::jthread> team;
    for (int rank = 0; rank < threads; ++rank)
        team.emplace_back([&, rank] {
            for (int i = 0; i < league; ++i) {
                kernel(Team{memory.data() + 4, &barrier, i, rank, threads});
                barrier.arrive_and_wait();
            }
        });
}

/// So small that nearly all work is divided.
struct Limits {
    static constexpr std::int64_t part_cells = 64;
    static constexpr std::int64_t sequence_items = 12;
};

/// A token of a sequence's history.
struct Known {
    std::int32_t position;
    Cell cell;
};

struct Options {
    float soft_cap = 0;
    Floats slopes;
    Floats sinks;
    bool merges = false; ///< with results over other cells
};

/// Several sequences in cells at random, and what attention over them must be.
template <class Mapping>
class Scene {
public:
    Scene(unsigned seed, int kv_heads, int group, int key_dim, int value_dim)
        : random_{seed},
          kv_heads_{kv_heads},
          group_{group},
          key_dim_{key_dim},
          value_dim_{value_dim},
          keys_{cells, kv_heads, key_dim},
          values_{cells, kv_heads, value_dim},
          k_(static_cast<std::size_t>(keys_.required_size()), not_a_number),
          v_(static_cast<std::size_t>(values_.required_size()), not_a_number),
          free_(cells) {
        for (int i = 0; i < cells; ++i) free_[static_cast<std::size_t>(i)] = i;
        if (draw(0, 1) == 1) std::shuffle(free_.begin(), free_.end(), random_);
        sinks_ = draw(0, 1) * 3;
    }

    /// `window`: 0 for none. `tree`: the batch's tokens are a tree.
    void add_sequence(int history, int tokens, int window, bool tree) {
        std::vector<Known> known;
        for (int i = 0; i < history; ++i) known.push_back({i, take()});
        const int first = static_cast<int>(tokens_.size());
        std::vector<int> depth;
        for (int i = 0; i < tokens; ++i) {
            const int parent = tree && i > 0 ? draw(0, i - 1) : -1;
            depth.push_back(tree ? parent < 0 ? 0 : depth[static_cast<std::size_t>(parent)] + 1 : i);
            const std::int32_t at = history + depth.back();
            tokens_.push_back({first + i, at, window == 0 ? 0 : std::max(0, at + 1 - window), at + 1});
            own_.push_back(take());
            parents_.push_back(parent < 0 ? -1 : first + parent);
            known.push_back({at, own_.back()});
        }
        std::stable_sort(known.begin(), known.end(),
                         [](const Known& a, const Known& b) { return a.position < b.position; });
        std::int32_t from = INT32_MAX;
        for (std::size_t i = static_cast<std::size_t>(first); i < tokens_.size(); ++i)
            from = std::min(from, tokens_[i].from);
        AttentionLists::Sequence listed{first, tokens, static_cast<std::int32_t>(runs_.size()), 0, 0};
        for (std::size_t i = 0; i < known.size();) {
            std::size_t end = i + 1;
            while (end < known.size() && known[end].cell == known[end - 1].cell + 1
                   && known[end].position == known[end - 1].position + 1
                   && (known[end].position >= from) == (known[i].position >= from)
                   && (known[end].position < sinks_) == (known[i].position < sinks_))
                ++end;
            if (known[i].position >= from || known[i].position < sinks_) {
                runs_.push_back({known[i].position, known[i].cell, listed.cells});
                listed.cells += static_cast<std::int32_t>(end - i);
                ++listed.runs;
            }
            i = end;
        }
        listed_.push_back(listed);
        histories_.push_back(std::move(known));
        sequences_.resize(tokens_.size(), histories_.size() - 1);
    }

    /// Checks the results of teams of so many threads; returns them.
    Floats check(int threads, int room, bool tree, const Options& options) {
        const int heads = kv_heads_ * group_;
        Floats q(tokens_.size() * static_cast<std::size_t>(heads * key_dim_));
        std::mt19937 same{1};
        for (float& x : q) x = std::uniform_real_distribution<float>{-1, 1}(same);
        Floats out(tokens_.size() * static_cast<std::size_t>(heads * value_dim_), not_a_number);
        Floats sums(tokens_.size() * static_cast<std::size_t>(heads), not_a_number);
        prior_.assign(out.size(), 0);
        prior_sums_.assign(sums.size(), -std::numeric_limits<float>::infinity()); // every third has seen nothing
        for (std::size_t row = 0; row < sums.size(); ++row)
            if (row % 3 != 0) prior_sums_[row] = std::uniform_real_distribution<float>{-2, 6}(same);
        for (std::size_t i = 0; i < out.size(); ++i)
            if (i / static_cast<std::size_t>(value_dim_) % 3 != 0)
                prior_[i] = std::uniform_real_distribution<float>{-1, 1}(same);
        attend(q, out, sums, threads, room, tree, options);
        std::size_t wrong = 0;
        for (std::size_t token = 0; token < tokens_.size(); ++token)
            for (int head = 0; head < heads; ++head) wrong += compare(token, head, q, out, sums, tree, options);
        CHECK(wrong == 0);
        return out;
    }

    int draw(int from, int to) { return std::uniform_int_distribution<int>{from, to}(random_); }

    bool is_divided() const { return plan_.joined_rows > 0; }

private:
    static constexpr int cells = 1500;
    static constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

    Cell take() {
        const Cell cell = free_.back();
        free_.pop_back();
        for (int head = 0; head < kv_heads_; ++head) {
            for (int d = 0; d < key_dim_; ++d)
                k_[static_cast<std::size_t>(keys_(cell, head, d))] =
                    std::uniform_real_distribution<float>{-1, 1}(random_);
            for (int d = 0; d < value_dim_; ++d)
                v_[static_cast<std::size_t>(values_(cell, head, d))] =
                    std::uniform_real_distribution<float>{-1, 1}(random_);
        }
        return cell;
    }

    void attend(const Floats& q, Floats& out, Floats& sums, int threads, int room, bool tree, const Options& options) {
        const int heads = kv_heads_ * group_;
        const std::int64_t n = std::ssize(tokens_);
        kernel::AttentionTileShape shape{key_dim_, value_dim_, 1};
        plan_.make<Limits>({listed_, tokens_, runs_, sinks_}, kv_heads_, group_, room);
        shape.rows = plan_.max_rows;
        std::vector<CellToken> in_cells;
        for (const Cell cell : own_) in_cells.push_back({cell, static_cast<std::int32_t>(in_cells.size())});
        std::sort(in_cells.begin(), in_cells.end(),
                  [](const CellToken& a, const CellToken& b) { return a.cell < b.cell; });
        const auto rows = static_cast<std::size_t>(plan_.partial_rows);
        Floats partial(rows * static_cast<std::size_t>(value_dim_), not_a_number);
        std::vector<SoftmaxSum> partial_sums(rows, {not_a_number, not_a_number});
        using Stored = StoredRows<Mapping, float>;
        using Rows = kernel::PackedRows<Stored>;
        const Rows keys = kernel::packed_rows(Stored{keys_, k_.data(), key_dim_});
        const Rows values = kernel::packed_rows(Stored{values_, v_.data(), value_dim_});
        const auto list = [](const Floats& floats) { return floats.empty() ? nullptr : floats.data(); };
        const kernel::AttentionCall<float> call{contiguous_view(out.data(), n, heads, value_dim_),
                                                contiguous_view(sums.data(), n, heads),
                                                {partial.data(), partial_sums.data()},
                                                {0.5F, options.soft_cap, list(options.slopes), list(options.sinks)},
                                                tokens_.data(),
                                                plan_.blocks.data(),
                                                static_cast<std::int32_t>(plan_.blocks.size()),
                                                value_dim_,
                                                kernel::Divisor{kv_heads_},
                                                kernel::Divisor{group_},
                                                options.merges ? PriorResults{prior_.data(), prior_sums_.data()}
                                                               : PriorResults{}};
        const kernel::AttendTiles<Rows, Rows, float, float, Team> attend{
            keys,
            values,
            contiguous_view(q.data(), n, heads, key_dim_),
            call,
            runs_.data(),
            {tree ? parents_.data() : nullptr, in_cells.data(), static_cast<std::int32_t>(in_cells.size())},
            sinks_,
            shape,
            {}};
        run(attend, plan_.items * kv_heads_, shape.bytes(), threads);
        const kernel::JoinParts<float, Team> join{call, plan_.max_parts};
        run(join, plan_.joined_rows, join.bytes(), threads);
    }

    bool sees(std::size_t token, const Known& other, bool tree) const {
        const VisibleRange& own = tokens_[token];
        if (other.position >= own.to || (other.position < own.from && other.position >= sinks_)) return false;
        const auto found = std::find(own_.begin(), own_.end(), other.cell);
        if (!tree || found == own_.end()) return true;
        const auto ancestor = static_cast<std::int32_t>(found - own_.begin());
        for (auto t = static_cast<std::int32_t>(token); t >= 0; t = parents_[static_cast<std::size_t>(t)])
            if (t == ancestor) return true;
        return false;
    }

    // Returns how many numbers are wrong.
    std::size_t compare(std::size_t token, int head, const Floats& q, const Floats& out, const Floats& sums, bool tree,
                        const Options& options) const {
        const auto index = static_cast<std::size_t>(head);
        const std::size_t row = token * static_cast<std::size_t>(kv_heads_ * group_) + index;
        double sum = options.sinks.empty() ? 0 : std::exp(double{options.sinks[index]});
        std::vector<double> expected(static_cast<std::size_t>(value_dim_));
        for (const Known& other : histories_[sequences_[token]]) {
            if (!sees(token, other, tree)) continue;
            double score = 0;
            for (int d = 0; d < key_dim_; ++d)
                score += 0.5 * double{q[row * static_cast<std::size_t>(key_dim_) + static_cast<std::size_t>(d)]}
                         * double{k_[static_cast<std::size_t>(keys_(other.cell, head / group_, d))]};
            if (options.soft_cap != 0) score = options.soft_cap * std::tanh(score / options.soft_cap);
            if (!options.slopes.empty())
                score -= double{options.slopes[index]} * (tokens_[token].position - other.position);
            sum += std::exp(score);
            for (int d = 0; d < value_dim_; ++d)
                expected[static_cast<std::size_t>(d)] +=
                    std::exp(score) * double{v_[static_cast<std::size_t>(values_(other.cell, head / group_, d))]};
        }
        const double prior = options.merges ? std::exp(double{prior_sums_[row]}) : 0;
        sum += prior;
        for (std::size_t d = 0; d < expected.size(); ++d) expected[d] += prior * prior_[row * expected.size() + d];
        std::size_t wrong = std::abs(std::log(sum) - double{sums[row]}) <= 1e-4 ? 0 : 1;
        for (std::size_t d = 0; d < expected.size(); ++d)
            wrong += std::abs(expected[d] / sum - double{out[row * expected.size() + d]}) <= 1e-5 ? 0U : 1U;
        return wrong;
    }

    std::mt19937 random_;
    int kv_heads_;
    int group_;
    int key_dim_;
    int value_dim_;
    Mapping keys_;
    Mapping values_;
    Floats k_;
    Floats v_;
    std::vector<Cell> free_;
    std::int32_t sinks_;
    DevicePlan plan_;
    std::vector<AttentionLists::Sequence> listed_;
    std::vector<VisibleRange> tokens_;
    std::vector<VisibleRun> runs_;
    std::vector<Cell> own_; ///< of the batch's tokens
    std::vector<std::int32_t> parents_;
    std::vector<std::vector<Known>> histories_;
    std::vector<std::size_t> sequences_; ///< of each token
    Floats prior_;
    Floats prior_sums_;
};

template <class Mapping>
void check_scenes(unsigned seeds) {
    int divided = 0;
    for (unsigned seed = 0; seed < seeds; ++seed) {
        CAPTURE(seed);
        std::mt19937 random{seed};
        const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>{from, to}(random); };
        const bool tree = seed % 3 == 0;
        const int kv_heads = draw(1, 3);
        const int group = draw(1, 7);
        Scene<Mapping> scene{seed, kv_heads, group, draw(1, 2) * draw(1, 40), draw(1, 2) * draw(1, 40)};
        for (int s = draw(1, 3); s > 0; --s)
            scene.add_sequence(draw(0, 2) * draw(0, 200), draw(1, 12), draw(0, 1) * draw(1, 180), tree);
        Options options;
        if (seed % 4 == 0) options.soft_cap = 2;
        if (seed % 4 == 1) options.slopes.resize(static_cast<std::size_t>(kv_heads * group), 0.01F);
        options.merges = seed % 4 > 1;
        if (seed % 2 == 1) options.sinks.resize(static_cast<std::size_t>(kv_heads * group), 0.7F);
        const int room = draw(0, 1) == 0 ? draw(1, 5) : 4 * draw(4, 8);
        const Floats found = scene.check(3, room, tree, options);
        CHECK(scene.check(1, room, tree, options) == found);
        divided += scene.is_divided() ? 1 : 0;
    }
    CHECK(divided > 0);
}

} // namespace

TEST_CASE("attention by teams equals the definition: contiguous rows") {
    check_scenes<CellsHeadsDims>(24);
}

TEST_CASE("attention by teams equals the definition: contiguous cells") {
    check_scenes<HeadsDimsCells>(12);
}

TEST_CASE("attention by teams equals the definition: blocks of cells") {
    check_scenes<BlocksHeadsCellsDims<16>>(12);
}

TEST_CASE("attention by teams: tokens whose windows begin within the same tile") {
    for (const unsigned seed : {1U, 2U, 3U, 4U}) {
        CAPTURE(seed);
        Scene<CellsHeadsDims> scene{seed, 2, 2, 8, 8};
        scene.add_sequence(300, 12, 150, false);
        scene.add_sequence(20, 12, 90, false);
        scene.check(3, 32, false, {});
    }
}

TEST_CASE("attention by teams: cells that are seen and whose scores are infinite have no weight") {
    Scene<CellsHeadsDims> scene{1, 2, 2, 8, 8};
    scene.add_sequence(300, 1, 0, false); // so that all rows see whole tiles
    Options options;
    options.slopes.resize(4, 3e38F); // twice that is infinite
    scene.check(3, 32, false, options);
}

} // namespace test_attend_tiles
