// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "paths.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test_mlx_kvcache {

// The cases in mlx_kvcache.json record the behaviour of another implementation, the KV cache of a server for MLX. A
// cache there is one sequence, so it is a sequence of one cellar cache here. All 19 cases run. These terms differ:
//
// - A snapshot there is lazy as long as it refers to the memory of its sequence, and copies its tokens when they are
//   about to be overwritten. A snapshot here owns cells and never copies. So a lazy snapshot is one whose cells its
//   sequence owns, too; and one that was copied out is one that owns its cells alone.
// - `prepare` announces snapshots before a write that passes their positions, and `take` returns them. cellar needs no
//   announcement, because `snapshot` takes any range of positions after the write: `take` does that. So a position in
//   the past, which `prepare` rejects with a panic, is no mistake here (kv_prepare_past_offset_panics).
// - `hook` calls back when a snapshot is copied. There is no copy, hence no call; the case compares what the snapshot
//   owns instead.
// - `nil` is a snapshot of no tokens.
//
// The key of a token is its tag, and its value is the negative of it.

namespace {

using cellar::CellSnapshot;
using cellar::Position;
using cellar::Sequence;
using nlohmann::json;
using Tags = std::vector<int>;

enum class Offloading { in_place, offloaded };

/// Runs one case. With `Offloading::offloaded`, every snapshot is offloaded at once, and reloaded only to be divided or
/// joined; what is expected of memory then does not apply.
template <class Layout>
class MlxCase {
public:
    explicit MlxCase(Offloading offloading) : offloading_{offloading} {}

    void run(const json& steps) {
        for (const json& step : steps) {
            CAPTURE(step);
            const std::string op = step["op"];
            if (op.starts_with("expect_")) {
                expect(op, step);
            } else if (op == "restore" || op == "split" || op == "merge" || op == "prepare" || op == "take") {
                change(op, step);
            } else {
                change_cache(op, step);
            }
            CHECK(cellar::audit(cache_) == "");
        }
    }

private:
    static constexpr int heads = 4;
    static constexpr int dim = 8;
    static constexpr Sequence scratch{2}; ///< no case has more than two caches

    void change_cache(const std::string& op, const json& step) {
        if (op == "new") {
            REQUIRE(step["kind"] == "kv");
            const Sequence s{static_cast<std::int32_t>(sequences_.size())};
            REQUIRE(s.value < scratch.value);
            sequences_.emplace(step["as"], s);
        } else if (op == "update") {
            write(sequence(step), step["tokens"].get<Tags>());
        } else if (op == "update_each") {
            for (const int tag : step["tokens"]) write(sequence(step), {tag});
        } else if (op == "snapshot") {
            keep(step["as"], sequence(step), Position{step["from"]}, cache_.next(sequence(step)));
        } else if (op == "free") {
            REQUIRE(cache_.remove(sequence(step), Position{0}, cellar::to_end));
        } else if (op == "close") {
            REQUIRE(snapshots_.erase(step["snapshot"]) == 1);
        } else if (op == "mark_alloc") {
            marked_ = used();
        } else {
            REQUIRE(op == "hook");
        }
    }

    void change(const std::string& op, const json& step) {
        const Sequence s = sequence(step);
        if (op == "restore") {
            const Position target{step["target"]};
            const auto done = step["snapshot"].is_null() ? cache_.rewind(s, target)
                                                         : cache_.restore(s, snapshot(step["snapshot"]), target);
            CHECK(done.has_value() == step["expect"].get<bool>());
        } else if (op == "split") {
            CellSnapshot parent = taken_in(step["snapshot"]);
            auto child = cache_.split(parent, Position{step["at"]});
            REQUIRE(child);
            add(step["as"][0], std::move(parent));
            add(step["as"][1], *std::move(child));
        } else if (op == "merge") {
            CellSnapshot parent = taken_in(step["parent"]);
            REQUIRE(cache_.merge(parent, taken_in(step["child"])));
            add(step["as"], std::move(parent));
        } else if (op == "prepare") {
            prepare(s, step);
        } else {
            for (std::size_t i = 0; i < ends_.size(); ++i)
                keep(step["as"][i], s, i == 0 ? prepared_at_ : ends_[i - 1], ends_[i]);
        }
    }

    void prepare(Sequence s, const json& step) {
        prepared_at_ = cache_.next(s);
        ends_.clear();
        for (const int end : step["offsets"]) ends_.push_back(cellar::Position{end});
        if (!step.value("expect_panic", false)) return;
        for (const Position end : ends_) CHECK(cache_.snapshot(s, Position{0}, end).value().tokens() == end.value);
    }

    void expect(const std::string& op, const json& step) {
        if (op == "expect_offset") {
            CHECK(cache_.next(sequence(step)) == Position{step["offset"]});
        } else if (op == "expect_len") {
            CHECK(cache_.tokens(sequence(step)) == step["tokens"].get<int>());
        } else if (op == "expect_state") {
            REQUIRE(step["order"] == "logical");
            CHECK(tags(sequence(step)) == step["tokens"].get<Tags>());
        } else if (op == "expect_snapshot") {
            expect_snapshot(step);
        } else if (op == "expect_hook") {
            if (offloading_ == Offloading::in_place) CHECK(owned_by_snapshots() == step["tokens"].get<int>());
        } else {
            REQUIRE(op == "expect_alloc");
            if (offloading_ == Offloading::in_place) CHECK(used() - marked_ <= step["max_tokens"].get<int>());
        }
    }

    void expect_snapshot(const json& step) {
        const CellSnapshot& found = snapshot(step["snapshot"]);
        if (step.value("nil", false)) CHECK(found.tokens() == 0);
        if (step.contains("range")) {
            CHECK(found.from() == Position{step["range"][0]});
            CHECK(found.to() == Position{step["range"][1]});
            CHECK(found.tokens() == found.to().value - found.from().value);
        }
        if (offloading_ == Offloading::in_place) {
            CHECK(found.bytes() == 0);
            if (step.contains("lazy")) CHECK(owned_by_snapshots() == (step["lazy"].get<bool>() ? 0 : found.tokens()));
            if (step.contains("owned_tokens")) CHECK(owned_by_snapshots() == step["owned_tokens"].get<int>());
        }
        if (step.contains("tokens")) CHECK(tags(found) == step["tokens"].get<Tags>());
        if (step.contains("first")) CHECK(tags(found).front() == step["first"].get<int>());
    }

    void write(Sequence s, const Tags& tags) {
        const cellar::BatchBuilder tokens{s, cache_.next(s), static_cast<std::int32_t>(tags.size())};
        std::vector<float> keys;
        std::vector<float> values;
        for (const int tag : tags) {
            keys.insert(keys.end(), std::size_t{heads} * dim, static_cast<float>(tag));
            values.insert(values.end(), std::size_t{heads} * dim, static_cast<float>(-tag));
        }
        auto pass = cache_.begin(tokens);
        REQUIRE(pass);
        pass->put(0, keys, values);
        pass->commit();
    }

    void keep(const std::string& name, Sequence s, Position from, Position to) {
        auto kept = cache_.snapshot(s, from, to);
        REQUIRE(kept);
        add(name, *std::move(kept));
    }
    void add(const std::string& name, CellSnapshot snapshot) {
        if (offloading_ == Offloading::offloaded) cache_.offload(snapshot);
        REQUIRE(snapshots_.emplace(name, std::move(snapshot)).second);
    }
    /// Takes a snapshot out of the list, in place.
    CellSnapshot taken_in(const std::string& name) {
        auto node = snapshots_.extract(name);
        REQUIRE_FALSE(node.empty());
        REQUIRE(cache_.reload(node.mapped()));
        return std::move(node.mapped());
    }

    Sequence sequence(const json& step) const { return sequences_.at(step["cache"]); }
    const CellSnapshot& snapshot(const std::string& name) const { return snapshots_.at(name); }

    int used() const { return cache_.statistics().cells - cache_.statistics().free; }

    /// Cells that no sequence owns.
    int owned_by_snapshots() const {
        std::set<cellar::Cell> of_sequences;
        for (const auto& [name, s] : sequences_)
            cache_.visit_cells(s, [&](Position, cellar::Cell cell, std::int32_t n) {
                for (int i = 0; i < n; ++i) of_sequences.insert(cell + i);
            });
        return used() - static_cast<int>(of_sequences.size());
    }

    /// The tags of a sequence from `from` on, in the order of positions.
    Tags tags(Sequence s, Position from = Position{0}) {
        const auto all = cache_.reserve(1);
        Tags found;
        cache_.visit_cells(s, [&](Position p, cellar::Cell first, std::int32_t n) {
            for (int i = 0; i < n; ++i)
                if (p + i >= from) found.push_back(tag_in(first + i, all.keys(0), all.values(0)));
        });
        return found;
    }

    /// Of a cell, all of whose elements must have it.
    template <class Keys, class Values>
    static int tag_in(cellar::Cell cell, const Keys& keys, const Values& values) {
        const auto tag = static_cast<float>(keys(cell, 0, 0));
        for (int h = 0; h < heads; ++h)
            for (int d = 0; d < dim; ++d) {
                CHECK(static_cast<float>(keys(cell, h, d)) == tag);
                CHECK(static_cast<float>(values(cell, h, d)) == -tag);
            }
        return static_cast<int>(tag);
    }

    /// The tags of a snapshot: of a sequence that is restored from it, above any tokens.
    Tags tags(const CellSnapshot& snapshot) {
        if (snapshot.from() != Position{0}) write(scratch, Tags(static_cast<std::size_t>(snapshot.from().value), 7));
        REQUIRE(cache_.restore(scratch, snapshot));
        Tags found = tags(scratch, snapshot.from());
        REQUIRE(cache_.remove(scratch, Position{0}, cellar::to_end));
        return found;
    }

    Offloading offloading_;
    cellar::Cache<Layout> cache_{cellar::CacheShape{.layers = 1, .kv_heads = heads, .head_dim = dim},
                                 {.sequences = 3, .capacity = 32, .batch = 32}};
    std::map<std::string, Sequence> sequences_;
    std::map<std::string, CellSnapshot> snapshots_;
    std::vector<Position> ends_; ///< of prepared snapshots
    Position prepared_at_{};
    int marked_ = 0; ///< used cells
};

void run_mlx_case(const std::string& name) {
    std::ifstream file{cellar_test::source_dir() + "/tests/conformance/mlx_kvcache.json"};
    REQUIRE(file);
    const json all = json::parse(file);
    CHECK(all["vectors"].size() == 19);
    for (const json& test : all["vectors"]) {
        if (test["name"] != name) continue;
        for (const Offloading offloading : {Offloading::in_place, Offloading::offloaded}) {
            MlxCase<cellar::StandardV<cellar::half>>{offloading}.run(test["steps"]);
            MlxCase<cellar::PermutedV<float>>{offloading}.run(test["steps"]);
            MlxCase<cellar::Blocked<float, 4>>{offloading}.run(test["steps"]);
        }
        return;
    }
    FAIL("mlx_kvcache.json has no case of that name");
}

} // namespace

TEST_CASE("MLX: a snapshot is not restored without the tokens below it") {
    run_mlx_case("kv_restore_needs_base");
}

TEST_CASE("MLX: a snapshot is restored to another sequence") {
    run_mlx_case("kv_data_survives_snapshot_restore");
}

TEST_CASE("MLX: both parts of a divided snapshot are restored, one after the other") {
    run_mlx_case("kv_split_preserves_data");
}

TEST_CASE("MLX: a snapshot that is divided and joined again is whole") {
    run_mlx_case("kv_split_merge_round_trip");
}

TEST_CASE("MLX: snapshots of speculated tokens cost no memory") {
    run_mlx_case("kv_speculation_capture_allocates_nothing");
}

TEST_CASE("MLX: a snapshot owns memory once its sequence has given up the tokens") {
    run_mlx_case("kv_lazy_size_zero_until_materialized");
}

TEST_CASE("MLX: a snapshot has its tokens after the sequence wrote others at their positions") {
    run_mlx_case("kv_lazy_copied_out_on_overwrite");
    run_mlx_case("kv_lazy_survives_path_switch");
}

TEST_CASE("MLX: a snapshot has its tokens after the sequence gave up all of its own") {
    run_mlx_case("kv_lazy_copied_out_on_free");
}

TEST_CASE("MLX: dividing and joining snapshots costs no memory") {
    run_mlx_case("kv_lazy_split_merge_no_copy");
}

TEST_CASE("MLX: restoring a snapshot to its sequence copies nothing") {
    run_mlx_case("kv_restore_live_lazy_is_offset_move");
}

TEST_CASE("MLX: a sequence returns to any token of a draft") {
    for (const char accepted : {'0', '1', '2', '3', '4'})
        run_mlx_case(std::string{"kv_per_token_capture_accept_"} + accepted);
}

TEST_CASE("MLX: snapshots of single tokens are joined and divided") {
    run_mlx_case("kv_capture_merge_split");
}

TEST_CASE("MLX: a snapshot may reach across several writes") {
    run_mlx_case("kv_schedule_persists_across_writes");
}

TEST_CASE("MLX: a snapshot of the past needs no announcement") {
    run_mlx_case("kv_prepare_past_offset_panics");
}

} // namespace test_mlx_kvcache
