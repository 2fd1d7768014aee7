// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Violations are found before anything changes: where the handler throws, a program may go on.
#include "../cache/numbers.hpp"
#include "../prefix/reader.hpp"
#include "../violations.hpp"
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace test_violations {

using namespace cellar;
using prefix_test::List;

namespace {

constexpr Sequence alice{0}, bob{1}, nobody{9};
constexpr CacheLimits limits{.sequences = 2, .capacity = 16, .batch = 8};

struct Sum : StateTensor<1> {};

using Attention = numbers::Cache<>;
using Sliding = numbers::Cache<SlidingWindow<4>>;
using Inputs = EncoderMemory<StandardV<float>>;
using States = RecurrentMemory<cellar::States<Sum>>;
using Both = Hybrid<Repeat<Sliding, States>, Sliding, States>;

template <class M>
M made() {
    if constexpr (requires { M{numbers::small, limits}; }) {
        return M{numbers::small, limits};
    } else {
        return M{{1, {{1}}}, {.sequences = 2, .batch = 8, .rollback = 2, .checkpoints = 2, .snapshots = 6}};
    }
}
template <>
Both made<Both>() {
    return Both{2, made<Sliding>(), made<States>()};
}

/// The bookkeeping, and the numbers in all cells or states.
template <class M>
std::string picture(const M& memory) {
    std::string all = std::to_string(MemoryAccess::book_hash(memory)) + '\n';
    detail::for_each_member(memory, [&](const auto& member) {
        if constexpr (requires { member.rows(0); }) {
            all += describe(member);
            if constexpr (requires { member.promised(alice); })
                all += std::to_string(member.promised(alice)) + ' ' + std::to_string(member.promised(bob)) + '\n';
            const auto rows = member.rows(0);
            for (Cell cell = 0; cell < member.cells(); ++cell)
                all += std::to_string(rows.keys(cell, 0, 0)) + ' ' + std::to_string(rows.values(cell, 0, 0)) + ' ';
        } else {
            for (std::int32_t s = 0; s < member.sequences(); ++s)
                for (const KeptState& kept : member.kept(Sequence{s}))
                    all += std::to_string(kept.next.value) + ':'
                           + std::to_string(member.template view<Sum>(0, member.state(Sequence{s}, kept.next))(0))
                           + (kept.is_checkpoint ? "c " : " ");
        }
    });
    return all;
}

/// The work of one layer.
struct Work {
    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        const auto tokens = static_cast<std::size_t>(pass.tokens());
        if constexpr (requires { pass.micro_batches(); }) {
            for (const MicroBatch& part : pass.micro_batches()) {
                pass.template get<Sum>(layer, part)(0, 0) += 1;
                pass.put(layer, part);
            }
        } else if constexpr (requires { pass.mark_put(layer); }) {
            pass.put(layer, std::vector<float>(2 * tokens, 3), std::vector<float>(tokens, 4));
        }
    }
};

template <class M>
void feed(M& memory, Sequence s, std::int32_t tokens) {
    if constexpr (requires { memory.write(s, Position{}, tokens); }) {
        auto pass = memory.write(s, Position{0}, tokens).value();
        Work{}(pass, 0);
        pass.commit();
    } else {
        auto pass = memory.begin(s, tokens).value();
        for (int layer = 0; layer < memory.layers(); ++layer) pass.visit(layer, Work{});
        pass.commit();
    }
}

/// Checks that each call is a violation, and that nothing has changed after it.
template <class Picture>
class Attempts {
public:
    explicit Attempts(Picture picture) : picture_{std::move(picture)} {}

    template <class Call>
    void add(const char* name, Call call) {
        CAPTURE(name);
        const std::string before = picture_();
        CHECK(violation_of(call) != "none");
        CHECK(picture_() == before);
    }

private:
    Picture picture_;
};

template <class M>
M with_tokens() {
    M memory = made<M>();
    feed(memory, alice, 5);
    feed(memory, bob, 2);
    return memory;
}

/// A memory with tokens of two sequences, a snapshot in place and one that is offloaded, and a snapshot of another
/// memory.
template <class M>
struct Scene {
    Scene() { memory.offload(offloaded); }

    M memory = with_tokens<M>();
    M elsewhere = with_tokens<M>();
    SnapshotOf<M> kept = memory.snapshot(alice).value();
    SnapshotOf<M> offloaded = memory.snapshot(alice).value();
    SnapshotOf<M> other = elsewhere.snapshot(alice).value();
};

/// Those of operations that every memory has, by their arguments.
template <class M>
void try_arguments(Scene<M>& scene) {
    M& memory = scene.memory;
    SnapshotOf<M>& other = scene.other;
    Attempts attempts{[&] { return picture(memory) + picture(scene.elsewhere); }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    const std::vector<int> two{5, 6}, same{0, 0}, none;
    add("begin: sequence", [&] { (void)memory.begin(BatchBuilder{nobody, Position{0}}); });
    add("begin: position", [&] { (void)memory.begin(BatchBuilder{alice, Position{-1}}); });
    add("begin: lists", [&] { (void)memory.begin({two, none}); });
    add("begin: groups", [&] { (void)memory.begin({two, same, two}); });
    add("begin: parents", [&] { (void)memory.begin({.positions = two, .sequences = same, .parents = same}); });
    add("reserve", [&] { memory.reserve(9).drop(); });
    add("reserve: fewer than none", [&] { memory.reserve(-1).drop(); });
    add("next", [&] { (void)memory.next(nobody); });
    add("can_resume: sequence", [&] { (void)memory.can_resume(nobody, Position{0}); });
    add("can_resume: position", [&] { (void)memory.can_resume(alice, Position{-1}); });
    add("resumable_prefix: sequence", [&] { (void)memory.resumable_prefix(nobody, Position{0}); });
    add("resumable_prefix: position", [&] { (void)memory.resumable_prefix(alice, Position{-1}); });
    add("copy_prefix: from", [&] { (void)memory.copy_prefix(nobody, bob, Position{1}); });
    add("copy_prefix: to", [&] { (void)memory.copy_prefix(alice, nobody, Position{5}); });
    add("copy_prefix: end", [&] { (void)memory.copy_prefix(alice, bob, Position{-1}); });
    add("remove: sequence", [&] { (void)memory.remove(nobody, Position{0}, to_end); });
    add("remove: begin", [&] { (void)memory.remove(alice, Position{-1}, to_end); });
    add("remove: end", [&] { (void)memory.remove(alice, Position{3}, Position{2}); });
    add("rewind: sequence", [&] { (void)memory.rewind(nobody, Position{0}); });
    add("rewind: position", [&] { (void)memory.rewind(alice, Position{-1}); });
    add("snapshot: sequence", [&] { (void)memory.snapshot(nobody); });
    add("snapshot: range", [&] { (void)memory.snapshot(alice, Position{5}, Position{4}); });
    add("snapshot: from", [&] { (void)memory.snapshot(alice, Position{-1}); });
    for (SnapshotOf<M>* snapshot : {&scene.kept, &scene.offloaded}) {
        add("restore: sequence", [&] { (void)memory.restore(nobody, *snapshot); });
        add("restore: position", [&] { (void)memory.restore(bob, *snapshot, Position{-1}); });
        add("merge: one", [&] { (void)memory.merge(*snapshot, std::move(*snapshot)); });
        add("merge: parent of another memory", [&] { (void)memory.merge(other, std::move(*snapshot)); });
        add("merge: child of another memory", [&] { (void)memory.merge(*snapshot, std::move(other)); });
    }
    add("restore: another memory", [&] { (void)memory.restore(bob, other); });
    add("offload: another memory", [&] { memory.offload(other); });
    add("reload: another memory", [&] { (void)memory.reload(other); });
    CHECK(memory.restore(bob, scene.kept));
    CHECK(memory.restore(bob, scene.offloaded));
    CHECK(scene.elsewhere.restore(bob, other));
}

/// The same, while a pass is open.
template <class M>
void try_with_open_pass(Scene<M>& scene) {
    M& memory = scene.memory;
    auto pass = memory.begin(BatchBuilder{alice, memory.next(alice), 2}).value();
    Attempts attempts{[&] { return picture(memory); }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    add("begin", [&] { (void)memory.begin(BatchBuilder{bob, memory.next(bob)}); });
    add("reserve", [&] { memory.reserve(1).drop(); });
    add("copy_prefix", [&] { (void)memory.copy_prefix(alice, bob, Position{5}); });
    add("remove", [&] { (void)memory.remove(bob, Position{0}, to_end); });
    add("rewind", [&] { (void)memory.rewind(bob, Position{0}); });
    add("snapshot", [&] { (void)memory.snapshot(bob); });
    for (SnapshotOf<M>* snapshot : {&scene.kept, &scene.offloaded}) {
        add("restore", [&] { (void)memory.restore(bob, *snapshot); });
        add("offload", [&] { memory.offload(*snapshot); });
        add("reload", [&] { (void)memory.reload(*snapshot); });
    }
    add("merge", [&] { (void)memory.merge(scene.kept, std::move(scene.offloaded)); });
    if constexpr (requires { memory.split(scene.kept, Position{1}); })
        add("split", [&] { (void)memory.split(scene.kept, Position{1}); });
    if constexpr (requires { memory.schedule(bob, Position{9}); }) {
        add("schedule", [&] { (void)memory.schedule(bob, Position{9}); });
        add("unschedule", [&] { memory.unschedule(bob, Position{9}); });
    }
    if constexpr (requires { memory.promise(bob, 3); }) add("promise", [&] { (void)memory.promise(bob, 3); });
    if constexpr (requires { memory.form_pages(bob, 2); }) add("form_pages", [&] { (void)memory.form_pages(bob, 2); });
    if constexpr (requires { memory.defragment(); }) add("defragment", [&] { memory.defragment(); });
    if constexpr (requires { memory.erase_free_cells(); }) add("erase_free_cells", [&] { memory.erase_free_cells(); });
    if constexpr (requires { memory.shrink_to(8); }) add("shrink_to", [&] { (void)memory.shrink_to(8); });
    if constexpr (requires { memory.reserve_lists(4); }) add("reserve_lists", [&] { memory.reserve_lists(4); });
    if constexpr (requires { memory.checkpoint(bob); }) add("checkpoint", [&] { (void)memory.checkpoint(bob); });
    if constexpr (requires { memory.template set_initial<Sum>(0, std::vector<float>{1}); })
        add("set_initial", [&] { memory.template set_initial<Sum>(0, std::vector<float>{1}); });
    for (int layer = 0; layer < memory.layers(); ++layer) pass.visit(layer, Work{});
    pass.commit();
    CHECK(memory.rewind(bob, Position{0}));
}

template <class M>
void try_schedules(M& memory) {
    Attempts attempts{[&] { return picture(memory); }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    add("schedule: sequence", [&] { (void)memory.schedule(nobody, Position{9}); });
    add("schedule: position", [&] { (void)memory.schedule(alice, Position{-1}); });
    add("schedule: end", [&] { (void)memory.schedule(alice, to_end); });
    add("unschedule: sequence", [&] { memory.unschedule(nobody, Position{9}); });
    add("unschedule: position", [&] { memory.unschedule(alice, Position{-1}); });
    if constexpr (requires { memory.promise(bob, 3); }) {
        add("promise: sequence", [&] { (void)memory.promise(nobody, 3); });
        add("promise: tokens", [&] { (void)memory.promise(alice, -1); });
        add("form_pages: sequence", [&] { (void)memory.form_pages(nobody, 2); });
        add("form_pages: size", [&] { (void)memory.form_pages(alice, 3); });
        add("cells_freed_by", [&] { (void)memory.cells_freed_by(nobody); });
    }
}

} // namespace

TEST_CASE_TEMPLATE("violations by arguments change nothing", M, Attention, Sliding, Inputs, States, Both) {
    Scene<M> scene;
    try_arguments(scene);
}

TEST_CASE_TEMPLATE("violations while a pass is open change nothing", M, Attention, Sliding, Inputs, States, Both) {
    Scene<M> scene;
    try_with_open_pass(scene);
}

TEST_CASE_TEMPLATE("violations of schedules, promises and pages change nothing", M, Attention, Sliding, States, Both) {
    Scene<M> scene;
    REQUIRE(scene.memory.schedule(alice, Position{8}));
    if constexpr (requires { scene.memory.promise(bob, 3); }) REQUIRE(scene.memory.promise(bob, 2));
    try_schedules(scene.memory);
}

TEST_CASE_TEMPLATE("violations of what caches alone have change nothing", M, Attention, Sliding) {
    Scene<M> scene;
    M& memory = scene.memory;
    Attempts attempts{[&] { return picture(memory); }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    add("begin: number", [&] { (void)memory.begin(alice, -1); });
    add("begin: sequence", [&] { (void)memory.begin(nobody, 1); });
    const std::vector<int> two{5, 6}, same{0, 0};
    const std::vector<std::uint8_t> in_part{1, 0};
    add("begin: in part", [&] { (void)memory.begin({two, same, {}, in_part}); });
    add("remove: rotation", [&] { (void)memory.remove(alice, Position{1}, Position{2}, RotateBy{-1}); });
    add("split", [&] { (void)memory.split(scene.kept, Position{9}); });
    add("split: offloaded", [&] { (void)memory.split(scene.offloaded, Position{9}); });
    add("split: another memory", [&] { (void)memory.split(scene.other, Position{5}); });
    add("reserve_lists", [&] { memory.reserve_lists(-1); });
    add("reserve_lists: page", [&] { memory.reserve_lists(1, -1); });
    add("shrink_to", [&] { (void)memory.shrink_to(-1); });
    add("tokens", [&] { (void)memory.tokens(nobody); });
    add("range", [&] { (void)memory.range(nobody); });
    add("promised", [&] { (void)memory.promised(nobody); });
    add("altered_from", [&] { (void)memory.altered_from(nobody); });
    add("rows", [&] { (void)memory.rows(1); });
    const auto moved = std::move(scene.kept);
    add("restore: moved from", [&] { (void)memory.restore(bob, scene.kept); });
    add("merge: moved from", [&] { (void)memory.merge(scene.offloaded, std::move(scene.kept)); });
}

TEST_CASE("violations of a pass change nothing, and it can go on") {
    Attention memory = made<Attention>();
    feed(memory, alice, 3);
    auto pass = memory.begin(alice, 2).value();
    Attempts attempts{[&] { return picture(memory); }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    const std::vector<float> keys(4, 7), values(2, 8), few(1, 9);
    std::vector<std::int64_t> cells(1);
    add("put: layer", [&] { pass.put(1, keys, values); });
    add("put: keys", [&] { pass.put(0, few, values); });
    add("put: values", [&] { pass.put(0, keys, few); });
    add("mark_put", [&] { pass.mark_put(1); });
    add("in_place", [&] { (void)pass.in_place(-1); });
    add("copy_cells", [&] { pass.copy_cells(cells); });
    add("keys", [&] { (void)pass.keys(0); });
    add("values", [&] { (void)pass.values(0); });
    add("visible", [&] { (void)pass.visible(2); });
    add("pages", [&] { (void)pass.pages(0); });
    add("mask_into", [&] { pass.mask_into(StridedView<float, 2>{nullptr, {1, 1}, {1, 1}}); });
    add("commit", [&] { pass.commit(); });
    pass.put(0, keys, values);
    pass.commit();
    add("commit: over", [&] { pass.commit(); });
    add("put: over", [&] { pass.put(0, keys, values); });
    CHECK(numbers::values(memory, 0) == numbers::Values{4, 4, 4, 8, 8});

    States states = made<States>();
    feed(states, alice, 3);
    auto scan = states.begin(alice, 1).value();
    Attempts of_states{[&] { return picture(states); }};
    const MicroBatch part = scan.micro_batches()[0];
    of_states.add("get", [&] { (void)scan.get<Sum>(1, part); });
    of_states.add("put", [&] { scan.put(0, part); });
    of_states.add("slots", [&] { (void)scan.slots<Sum>(1); });
    of_states.add("mark_written", [&] { scan.mark_written(1, part); });
    of_states.add("commit of states", [&] { scan.commit(); });
    Work{}(scan, 0);
    scan.commit();
    of_states.add("checkpoint", [&] { (void)states.checkpoint(nobody); });
    of_states.add("set_initial", [&] { states.set_initial<Sum>(0, std::vector<float>(2)); });
    of_states.add("set_initial: layer", [&] { states.set_initial<Sum>(1, std::vector<float>(1)); });
    of_states.add("kept", [&] { (void)states.kept(nobody); });
    of_states.add("view", [&] { (void)states.view<Sum>(0, {}); });
    CHECK(states.next(alice) == Position{4});

    Inputs inputs = made<Inputs>();
    feed(inputs, alice, 3);
    Attempts of_inputs{[&] { return picture(inputs); }};
    of_inputs.add("write: sequence", [&] { (void)inputs.write(nobody, Position{0}, 1); });
    of_inputs.add("write: position", [&] { (void)inputs.write(alice, Position{-1}, 1); });
    of_inputs.add("write: tokens", [&] { (void)inputs.write(alice, Position{0}, -1); });
    const EncoderInput of_two[] = {{alice, Position{0}, 1}, {nobody, Position{0}, 1}};
    of_inputs.add("write: the second input", [&] { (void)inputs.write(of_two); });
}

TEST_CASE("a pass of a hybrid in which a member's is over is committed in no member") {
    Both memory = made<Both>();
    feed(memory, alice, 3);
    auto pass = memory.begin(alice, 2).value();
    for (int layer = 0; layer < 2; ++layer) pass.visit(layer, Work{});
    pass.of<States>().drop();
    Attempts attempts{[&] { return picture(memory); }};
    attempts.add("commit", [&] { pass.commit(); });
    attempts.add("commit of a member", [&] { pass.of<Sliding>().commit(); });
    pass.drop();
    // A member may have a pass of its own; the cells of the other are not erased then.
    auto own = memory.member<States>().begin(bob, 1).value();
    attempts.add("erase_free_cells", [&] { memory.erase_free_cells(); });
}

TEST_CASE("violations of a prefix tree change neither the tree nor the memory") {
    toy::Full memory = prefix_test::full(40);
    const std::int64_t bytes = 10 * memory.bytes() / memory.cells();
    PrefixTree tree{memory, {.offloaded_bytes = bytes}}; // room for one of these lists
    for (int i = 0; i < 4; ++i) {
        const List list = prefix_test::counted(100 * i, 10);
        REQUIRE(prefix_test::compute(tree, 0, list));
        REQUIRE(tree.insert(alice, list));
        REQUIRE(memory.remove(alice, Position{0}, to_end));
    }
    REQUIRE(prefix_test::compute(tree, 0, prefix_test::counted(500, 10)));
    REQUIRE(tree.statistics().offloaded == 1);
    const auto refused = memory.begin(bob, 1);
    REQUIRE(refused.error() == Reason::full);
    Attempts attempts{[&] {
        const PrefixStatistics now = tree.statistics();
        std::string all = toy::member_portrait(memory);
        for (const std::int64_t n : {now.nodes, now.snapshots, now.offloaded, now.in_place_bytes, now.offloaded_bytes,
                                     now.tokens, now.evictions, now.offloads, now.reloads, now.tokens_asked})
            all += ' ' + std::to_string(n);
        return all;
    }};
    const auto add = [&](const char* name, auto call) { attempts.add(name, call); };
    const List list = prefix_test::counted(0, 10), of_two = prefix_test::counted(300, 10);
    add("attach: sequence", [&] { (void)tree.attach(nobody, list).value(); });
    add("insert: sequence", [&] { (void)tree.insert(nobody, list); });
    add("insert: more tokens than there are", [&] { (void)tree.insert(alice, prefix_test::counted(500, 11)); });
    add("begin: sequence", [&] { (void)tree.begin(BatchBuilder{nobody, Position{0}}); });
    add("begin: number", [&] { (void)tree.begin(bob, -1); });
    add("make_room: sequence", [&] { (void)tree.make_room({.reason = Reason::full, .sequence = nobody}); });
    const auto with_pass = [&](const char* name, auto call) {
        const std::string before = std::to_string(MemoryAccess::book_hash(memory));
        {
            auto pass = memory.begin(BatchBuilder{}).value();
            CAPTURE(name);
            const std::int64_t evictions = tree.statistics().evictions;
            CHECK(violation_of(call).find("a pass is open") != std::string::npos);
            CHECK(tree.statistics().evictions == evictions);
        }
        CHECK(std::to_string(MemoryAccess::book_hash(memory)) == before);
    };
    with_pass("make_room", [&] { (void)tree.make_room(refused.error()); });
    with_pass("begin", [&] { (void)tree.begin(bob, 1); });
    with_pass("attach: offloaded", [&] { (void)tree.attach(bob, list); });
    with_pass("attach: in place", [&] { (void)tree.attach(bob, of_two); });
    with_pass("insert", [&] { (void)tree.insert(alice, prefix_test::counted(500, 10)); });
    CHECK(tree.make_room(refused.error()));
    CHECK(audit(tree) == "");
}

} // namespace test_violations
