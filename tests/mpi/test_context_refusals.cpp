// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "context.hpp"
#include "ranks.hpp"
#include "short_memory.hpp"
#include <cellar/cache/describe.hpp>

#include <chrono>
#include <new>
#include <string>
#include <violations.hpp>

namespace test_context_refusals {

using namespace context_test;
using namespace std::chrono_literals;

namespace {

using Plain = Cache<StandardV<float>, FullCausal, DisabledShift, HostBackend>;
using Context = mpi::ContextParallel<Plain>;

Context context_of(std::int32_t cells, std::int32_t batch = 400, std::chrono::milliseconds time_limit = 60s) {
    return {mpi::Communicator{MPI_COMM_WORLD},
            Plain{Heads{}.shape(),
                  {.sequences = 2, .capacity = 4096, .cells = cells, .batch = batch, .positions = Positions::any}},
            {.time_limit = time_limit}};
}

int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}
int ranks() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

template <class Cache>
void append(mpi::ContextParallel<Cache>& context, Sequence s, std::int32_t n) {
    auto pass = context.begin(BatchBuilder{s, context.next(s), n}).value();
    const std::size_t stored = pass.stored_indices().size();
    pass.put(0, Floats(stored * Heads{}.key_row()), Floats(stored * Heads{}.value_row()));
    pass.commit();
}

/// Threads that have no memory.
struct NoMemory {
    static int count() { return 1; }
    static void run(auto&&) { throw std::bad_alloc{}; }
};

} // namespace

TEST_CASE("the ranks hold a context together that none of them could hold") {
    using Long = Cache<StandardV<float>, FullCausal, RopeShift<Neox>, HostBackend>;
    const std::int32_t whole = 128 * ranks();
    const RopeShift<Neox> rope{rope_frequencies(4, 1000.0)};
    const CacheLimits limits{.capacity = whole, .cells = whole, .batch = 64};
    Pair<Long> pair{limits, {}, rope};
    CacheLimits own = Pair<Long>::at_any(limits);
    own.cells = 128;
    pair.context =
        mpi::ContextParallel<Long>{mpi::Communicator{MPI_COMM_WORLD}, Long{pair.heads.shape(), own, {}, rope}};
    for (std::int32_t p = 0; p < whole; p += 32) REQUIRE(pair.run(BatchBuilder{Sequence{0}, Position{p}, 32}, true));
    pair.compare();
    CHECK(pair.context.cache().tokens(Sequence{0}) == 128);
    CHECK_FALSE(pair.run(BatchBuilder{Sequence{0}, Position{whole}, 1}, true)); // full
    CHECK(pair.context.begin(BatchBuilder{Sequence{0}, Position{whole}, 1}).error().rank
          == pair.context.rank_of(Position{whole}));

    // Room where positions were removed: the tokens behind them are on other ranks than their new positions say.
    REQUIRE(pair.context.remove(Sequence{0}, Position{40}, Position{72}).has_value());
    REQUIRE(pair.single.remove(Sequence{0}, Position{40}, Position{72}).has_value());
    pair.compare();
    for (std::int32_t p = whole - 32; p < whole; ++p)
        if (auto fits = pair.context.begin(BatchBuilder{Sequence{0}, Position{p}}); fits) {
            fits->drop();
            REQUIRE(pair.run(BatchBuilder{Sequence{0}, Position{p}}, true));
        } else {
            CHECK(fits.error() == Reason::full);
            break;
        }
    pair.compare();
}

TEST_CASE("what one rank refuses is refused on all, and nothing changes on any") {
    Context context = context_of(rank() == 1 ? 64 : 256);
    append(context, Sequence{0}, 100); // of which rank 1 stores 36
    const auto unchanged = [&] {
        CHECK(context.next(Sequence{0}) == Position{100});
        CHECK(context.next(Sequence{1}) == Position{0});
        CHECK(context.cache().tokens(Sequence{0}) == (rank() == 0 ? 64 : rank() == 1 ? 36 : 0));
        CHECK(context.cache().tokens(Sequence{1}) == 0);
    };
    auto refused = context.begin(BatchBuilder{Sequence{1}, Position{0}, 100}); // 36 more, of 28
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error().rank == 1);
    CHECK(refused.error().message.find("begin: rank 1 refuses: full") == 0);
    unchanged();
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{101}}).error() == Reason::not_next);
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{101}}).error().refusal.expected == Position{100});
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{99}}).error() == Reason::not_next);
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{100}, 2}.add(Sequence{0}, Position{100})).error()
          == Reason::not_next);
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{100}, 500}).error() == Reason::batch_too_long);
    CHECK(context.remove(Sequence{0}, Position{0}, Position{70}).error() == Reason::cannot_shift);
    unchanged();
    { const auto dropped = context.begin(BatchBuilder{Sequence{0}, Position{100}, 20}).value(); }
    unchanged();
    append(context, Sequence{1}, 92);
    CHECK(context.next(Sequence{1}) == Position{92});
}

TEST_CASE("a rank that makes another call than the others is named") {
    Context context = context_of(256);
    append(context, Sequence{0}, 10);
    auto wrong = context.begin(BatchBuilder{Sequence{rank() == 1 ? 1 : 0}, Position{rank() == 1 ? 0 : 10}});
    REQUIRE_FALSE(wrong.has_value());
    CHECK(wrong.error() == mpi::MpiReason::differs);
    CHECK(wrong.error().rank == 1);
    CHECK(context.next(Sequence{0}) == Position{10});
    CHECK(context.cache().tokens(Sequence{1}) == 0);

    Context other = context_of(256, rank() == 1 ? 8 : 16);
    CHECK(other.begin(BatchBuilder{Sequence{0}, Position{0}}).error() == mpi::MpiReason::differs);
}

TEST_CASE("a rank that rotates keys by another number of positions than the others is named") {
    using Rotating = Cache<StandardV<float>, FullCausal, RopeShift<Neox>, HostBackend>;
    mpi::ContextParallel<Rotating> context{mpi::Communicator{MPI_COMM_WORLD},
                                           Rotating{Heads{}.shape(),
                                                    {.capacity = 256, .batch = 150, .positions = Positions::any},
                                                    {},
                                                    RopeShift<Neox>{rope_frequencies(4, 1000.0)}}};
    append(context, Sequence{0}, 150);
    const std::string before = ranks::contents(context.cache());
    const auto wrong = context.remove(Sequence{0}, Position{2}, Position{4}, RotateBy{rank() == 1 ? 2 : 3});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error() == mpi::MpiReason::differs);
    CHECK(wrong.error().rank == 1);
    CHECK(context.next(Sequence{0}) == Position{150});
    CHECK(ranks::contents(context.cache()) == before);
}

TEST_CASE("a rank without memory for a pass is named, and nothing changes on any") {
    using ranks::ShortMemory;
    using Short = Cache<StandardV<float>, FullCausal, DisabledShift, ShortMemory>;
    const int last = ranks() - 1;
    const std::int32_t round = 64 * ranks(); // a block of positions for each rank
    mpi::ContextParallel<Short> context{mpi::Communicator{MPI_COMM_WORLD}, Short{Heads{}.shape(),
                                                                                 {.sequences = 2,
                                                                                  .capacity = 4096,
                                                                                  .cells = 256,
                                                                                  .initial_cells = 64,
                                                                                  .batch = 400,
                                                                                  .positions = Positions::any}}};
    append(context, Sequence{0}, round);
    const std::string before = ranks::contents(context.cache());
    ShortMemory::is_short = rank() == last;
    const auto without = context.begin(BatchBuilder{Sequence{0}, Position{round}, round});
    ShortMemory::is_short = false;
    REQUIRE_FALSE(without);
    CHECK(without.error() == mpi::MpiReason::no_memory);
    CHECK(without.error().rank == last);
    CHECK(without.error().message == "begin: rank " + std::to_string(last) + " could not allocate memory");
    CHECK(context.next(Sequence{0}) == Position{round});
    CHECK(ranks::contents(context.cache()) == before);
    append(context, Sequence{0}, round);
    CHECK(context.cache().tokens(Sequence{0}) == 128);
}

TEST_CASE("a rank that attends to another layer than the others is named") {
    Context context{mpi::Communicator{MPI_COMM_WORLD},
                    Plain{{.layers = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 2},
                          {.capacity = 64, .batch = 4, .positions = Positions::any}}};
    auto pass = context.begin(BatchBuilder{Sequence{0}, Position{0}}).value();
    const Floats rows(2 * pass.stored_indices().size());
    for (const int layer : {0, 1}) pass.put(layer, rows, rows);
    Floats out(2);
    REQUIRE(mpi::attend(pass, rank() == 1 ? 1 : 0, Floats(2), out));
    pass.commit();
    const auto next = context.begin(BatchBuilder{Sequence{0}, Position{1}});
    REQUIRE_FALSE(next);
    CHECK(next.error() == mpi::MpiReason::differs);
    CHECK(next.error().rank == 1);
}

TEST_CASE("a mistake of one rank that it catches leaves the ranks together") {
    Context context = context_of(512);
    append(context, Sequence{0}, 5);
    auto pass = context.begin(BatchBuilder{Sequence{0}, Position{5}, 1}).value();
    if (rank() == 1)
        CHECK(violation_of([&] { (void)context.remove(Sequence{0}, Position{0}, Position{1}); }).find("a pass is open")
              != std::string::npos);
    pass.drop();
    append(context, Sequence{0}, 5);
}

TEST_CASE("a batch that another rank refuses moves no cells") {
    const CacheLimits limits{.sequences = 2,
                             .capacity = 4096,
                             .cells = rank() == 0 ? 100 : 16,
                             .batch = 400,
                             .placement = Placement::contiguous,
                             .positions = Positions::any};
    Context context{mpi::Communicator{MPI_COMM_WORLD}, Plain{Heads{}.shape(), limits}};
    for (int i = 0; i < 30; ++i) {
        append(context, Sequence{0}, 1);
        append(context, Sequence{1}, 1);
    }
    REQUIRE(context.remove(Sequence{0}, Position{0}, to_end));
    const auto before = describe(context.cache());
    CHECK(context.begin(BatchBuilder{Sequence{0}, Position{0}, 100}).error() == Reason::full);
    CHECK(describe(context.cache()) == before);
}

TEST_CASE("a rank that is short of memory attends once it has some, and the others wait") {
    Context context = context_of(512);
    append(context, Sequence{0}, 300);
    for (const int tokens : {1, 300}) { // all parts to all ranks, and shares of the rows
        auto pass = context.begin(BatchBuilder{Sequence{0}, context.next(Sequence{0}), tokens}).value();
        const std::size_t stored = pass.stored_indices().size();
        pass.put(0, Floats(stored * Heads{}.key_row(), 1), Floats(stored * Heads{}.value_row(), 2));
        const Floats q(static_cast<std::size_t>(tokens) * 6 * 8, 1);
        Floats out(static_cast<std::size_t>(tokens) * 6 * 4);
        if (rank() == 0) CHECK_THROWS_AS((void)mpi::attend(pass, 0, q, out, {}, NoMemory{}), std::bad_alloc);
        REQUIRE(mpi::attend(pass, 0, q, out));
        for (const float x : out) CHECK(x > 0);
        pass.commit();
    }
    append(context, Sequence{1}, 5); // all ranks have made the same calls
}

TEST_CASE("a snapshot owns the cells of each rank until it is destroyed") {
    Context context = context_of(256);
    append(context, Sequence{0}, 100);
    const std::int32_t own = context.cache().tokens(Sequence{0});
    const std::int32_t cells = context.cache().cells();
    {
        const auto first = context.snapshot(Sequence{0}).value();
        append(context, Sequence{0}, 3);
        const auto second = context.snapshot(Sequence{0}).value();
        CHECK(first.to() == Position{100});
        CHECK(first.stored_tokens() == own);
        CHECK(second.to() == Position{103});
        REQUIRE(context.remove(Sequence{0}, Position{0}, to_end));
        CHECK(context.cache().statistics().free == cells - second.stored_tokens());
        REQUIRE(context.restore(Sequence{1}, first));
        CHECK(context.next(Sequence{1}) == Position{100});
        CHECK(context.cache().tokens(Sequence{1}) == own);
        REQUIRE(context.remove(Sequence{1}, Position{0}, to_end));
        CHECK(context.restore(Sequence{1}, rank() == 1 ? second : first).error() == mpi::MpiReason::differs);
        CHECK(context.next(Sequence{1}) == Position{0});
        CHECK(context.cache().tokens(Sequence{1}) == 0);
    }
    CHECK(context.cache().statistics().free == cells);
}

TEST_CASE("ranks that restore different snapshots of the same positions differ") {
    Context context = context_of(256);
    append(context, Sequence{0}, 100);
    const auto first = context.snapshot(Sequence{0}).value();
    const auto second = context.snapshot(Sequence{0}).value();
    REQUIRE(context.restore(Sequence{1}, second));
    CHECK(context.restore(Sequence{1}, rank() == 1 ? second : first).error() == mpi::MpiReason::differs);
}

TEST_CASE("a removal after which a sequence could not go on is refused, and nothing changes") {
    using Windowed = Cache<StandardV<float>, SlidingWindow<8>, DisabledShift, HostBackend>;
    const CacheLimits limits{.capacity = 256, .batch = 100, .positions = Positions::any};
    mpi::ContextParallel<Windowed> context{mpi::Communicator{MPI_COMM_WORLD}, Windowed{Heads{}.shape(), limits}};
    append(context, Sequence{0}, 100);
    append(context, Sequence{0}, 50);
    const std::int32_t tokens = context.cache().tokens(Sequence{0});
    REQUIRE(!context.can_resume(Sequence{0}, Position{145})); // some of what a query at 145 would see was forgotten
    const auto refused = context.remove(Sequence{0}, Position{145}, to_end);
    REQUIRE(!refused);
    CHECK(refused.error() == Reason::cannot_resume);
    CHECK(refused.error().refusal.needed == 145);
    CHECK(refused.error().refusal.available == context.resumable_prefix(Sequence{0}, Position{145}).value);
    CHECK(context.next(Sequence{0}) == Position{150});
    CHECK(context.cache().tokens(Sequence{0}) == tokens);
    CHECK(context.snapshot(Sequence{0}));
}

TEST_CASE("the way back of a context is that of one cache, and refused where it is") {
    using Windowed = Cache<StandardV<float>, SlidingWindow<8>, DisabledShift, HostBackend>;
    Pair<Windowed> pair{{.capacity = 512, .batch = 100}, SlidingWindow<8>{{.retention = 50}}, {}};
    const Sequence s{0};
    REQUIRE(pair.run(BatchBuilder{s, Position{0}, 100}, true));
    REQUIRE(pair.run(BatchBuilder{s, Position{100}, 50}, true));
    for (const int to : {149, 130, 151, 20, 130, 108, 0}) {
        CAPTURE(to);
        const auto many = pair.context.rewind(s, Position{to});
        const auto one = pair.single.rewind(s, Position{to});
        REQUIRE(many.has_value() == one.has_value());
        if (!one) {
            CHECK(many.error() == one.error().reason);
            CHECK(many.error().refusal.expected == one.error().expected);
            CHECK(many.error().refusal.needed == one.error().needed);
            CHECK(many.error().refusal.available == one.error().available);
        }
        pair.compare();
    }
    REQUIRE(pair.run(BatchBuilder{s, Position{0}, 100}, true));
    pair.compare();
}

TEST_CASE("a promise of a context sets cells aside on the ranks that will need them") {
    Context context = context_of(64 + 36);
    append(context, Sequence{0}, 64 * ranks() - 10);
    REQUIRE(context.promise(Sequence{0}, 10 + 20)); // the last rank stores 10, rank 0 stores 20
    const bool is_last = rank() == ranks() - 1;
    CHECK(context.cache().promised(Sequence{0}) == (is_last ? 10 : 0) + (rank() == 0 ? 20 : 0));
    const auto refused = context.begin(BatchBuilder{Sequence{1}, Position{0}, 17}); // 16 are left on rank 0
    REQUIRE(!refused);
    CHECK(refused.error() == Reason::full);
    CHECK(refused.error().rank == 0);
    const auto too_much = context.promise(Sequence{1}, 64);
    REQUIRE(!too_much);
    CHECK(too_much.error() == Reason::full);
    CHECK(context.cache().promised(Sequence{1}) == 0);
    append(context, Sequence{1}, 16);
    append(context, Sequence{0}, 30); // as promised
    CHECK(context.cache().promised(Sequence{0}) == 0);
    REQUIRE(context.rewind(Sequence{0}, Position{64 * ranks()})); // rank 0 keeps its first 64
    CHECK(context.cache().promised(Sequence{0}) == (rank() == 0 ? 20 : 0));
    REQUIRE(context.rewind(Sequence{0}, Position{30})); // other ranks have none of its tokens left
    CHECK(context.cache().promised(Sequence{0}) == (is_last ? 10 : 0) + (rank() == 0 ? 20 : 0));
    REQUIRE(context.rewind(Sequence{0}, Position{0}));
    CHECK(context.cache().promised(Sequence{0}) == 0);
}

TEST_CASE("a silent rank is named, and what the others store stays as it is") {
    const int silent = ranks() - 1;
    const auto query_row = static_cast<std::size_t>(Heads{}.kv * Heads{}.group * Heads{}.key_dim);
    const auto result_row = static_cast<std::size_t>(Heads{}.kv * Heads{}.group * Heads{}.value_dim);
    Floats out(400 * result_row);
    const auto attend_to = [&](Context& context, std::int32_t tokens) {
        auto pass = context.begin(BatchBuilder{Sequence{0}, Position{10}, tokens}).value();
        if (rank() == silent) return MPI_Barrier(MPI_COMM_WORLD), mpi::MpiResult<void>{};
        const std::size_t stored = pass.stored_indices().size();
        pass.put(0, Floats(stored * Heads{}.key_row()), Floats(stored * Heads{}.value_row()));
        const Floats q(static_cast<std::size_t>(tokens) * query_row);
        const auto results = std::span{out}.first(static_cast<std::size_t>(tokens) * result_row);
        auto done = mpi::attend(pass, 0, q, results);
        CHECK(mpi::attend(pass, 0, q, results).error() == mpi::MpiReason::timed_out);
        return MPI_Barrier(MPI_COMM_WORLD), done;
    };
    const auto unless_silent = [&](const auto& operation) {
        return [&](Context& context) {
            mpi::MpiResult<void> done{};
            if (rank() != silent) done = operation(context);
            MPI_Barrier(MPI_COMM_WORLD);
            return done;
        };
    };
    const auto begin = [](Context& context) -> mpi::MpiResult<void> {
        auto pass = context.begin(BatchBuilder{Sequence{0}, Position{10}, 2});
        if (!pass) return pass.error();
        return {};
    };
    const auto check = [&](const char* operation, const auto& call) {
        CAPTURE(operation);
        Context context = context_of(256 * 4, 400, 200ms);
        append(context, Sequence{0}, 10);
        const std::int32_t tokens = context.cache().tokens(Sequence{0});
        const auto done = call(context);
        if (rank() == silent) return;
        REQUIRE_FALSE(done);
        CHECK(done.error() == mpi::MpiReason::timed_out);
        CHECK(done.error().rank == silent);
        CHECK(done.error().message.find(std::string{operation} + ": rank " + std::to_string(silent)) == 0);
        CHECK(context.copy_prefix(Sequence{0}, Sequence{1}, Position{3}).error().message
              == done.error().message); // at once
        CHECK(context.next(Sequence{0}) == Position{10});
        CHECK(context.cache().tokens(Sequence{0}) == tokens);
        CHECK(context.cache().tokens(Sequence{1}) == 0);
    };
    check("begin", unless_silent(begin));
    check("copy_prefix",
          unless_silent([](Context& context) { return context.copy_prefix(Sequence{0}, Sequence{1}, Position{5}); }));
    check("remove", unless_silent([](Context& context) { return context.remove(Sequence{0}, Position{5}, to_end); }));
    check("attend", [&](Context& context) { return attend_to(context, 1); });
    check("attend", [&](Context& context) { return attend_to(context, 400); }); // in shares
}

TEST_CASE("a pass is dropped, moved, and committed once") {
    Context context = context_of(256);
    const auto snapshot = context.snapshot(Sequence{0}).value();
    auto pass = context.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    auto moved = std::move(pass);
    CHECK(violation_of([&] { pass.commit(); }).find("the pass is over") != std::string::npos);
    CHECK(violation_of([&] {
              (void)context.begin(BatchBuilder{Sequence{0}, Position{0}});
          }).find("a pass is open")
          != std::string::npos);
    CHECK(violation_of([&] { (void)context.remove(Sequence{0}, Position{0}, to_end); }).find("a pass is open")
          != std::string::npos);
    CHECK(violation_of([&] { (void)context.snapshot(Sequence{0}); }).find("a pass is open") != std::string::npos);
    const std::string is_open = ": a pass is open, expected it to be committed or dropped first";
    CHECK(violation_of([&] { (void)context.copy_prefix(Sequence{0}, Sequence{1}, Position{1}); })
          == "copy_prefix" + is_open);
    CHECK(violation_of([&] { (void)context.restore(Sequence{1}, snapshot); }) == "restore" + is_open);
    if (rank() == 0) CHECK(violation_of([&] { moved.commit(); }).find("was not put") != std::string::npos);
    moved.drop();
    CHECK(context.next(Sequence{0}) == Position{0});
    append(context, Sequence{0}, 3);
    CHECK(context.next(Sequence{0}) == Position{3});
}

TEST_CASE("mistakes are violations") {
    const auto make = [](Positions positions, std::int32_t block) {
        (void)Context{mpi::Communicator{MPI_COMM_WORLD},
                      Plain{Heads{}.shape(), {.cells = 64, .positions = positions}},
                      {.block = block}};
    };
    CHECK(violation_of([&] { make(Positions::consecutive, 64); }).find("expected Positions::any") != std::string::npos);
    CHECK(violation_of([&] { make(Positions::any, 100); }).find("expected a multiple of 64") != std::string::npos);
    CHECK(violation_of([&] { (void)context_of(64, 8, -1ms); }).find("a time limit of -1 ms, expected 0 or more")
          != std::string::npos);
    CHECK(violation_of([] {
              Plain cache{Heads{}.shape(), {.cells = 64, .batch = 8, .positions = Positions::any}};
              auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
              pass.put(0, Floats(3 * Heads{}.key_row()), Floats(3 * Heads{}.value_row()));
              pass.commit();
              (void)Context{mpi::Communicator{MPI_COMM_WORLD}, std::move(cache)};
          })
          == "ContextParallel: a cache with 3 tokens, expected an empty one");
    Context context = context_of(256);
    const std::vector<Position> positions{Position{0}};
    const std::vector<Sequence> sequences{Sequence{0}};
    const std::vector<std::uint8_t> stored{1};
    CHECK(violation_of([&] {
              (void)context.begin(Batch{positions, sequences, {}, stored});
          }).find("the positions decide")
          != std::string::npos);
    CHECK(violation_of([&] { (void)context.next(Sequence{2}); }).find("expected 0 to 1") != std::string::npos);
    CHECK(violation_of([&] { (void)context.can_resume(Sequence{0}, Position{-1}); }).find("expected 0 or more")
          != std::string::npos);
    CHECK(violation_of([&] { (void)context.resumable_prefix(Sequence{0}, Position{-1}); })
          == "resumable_prefix: position -1, expected 0 or more");
    CHECK(violation_of([&] { (void)context.rank_of(Position{-1}); }) == "rank_of: position -1, expected 0 or more");
    auto pass = context.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    std::vector<float> out(7);
    CHECK(violation_of([&] { (void)mpi::attend(pass, 0, Floats(96), out); }).find("results") != std::string::npos);
    CHECK(violation_of([&] { (void)mpi::attend(pass, 1, Floats(96), out); }).find("layer 1") != std::string::npos);
    const Heads heads;
    const int query_heads = heads.kv * heads.group;
    const Floats q(static_cast<std::size_t>(2 * query_heads * heads.key_dim));
    Floats results(static_cast<std::size_t>(2 * query_heads * heads.value_dim));
    Floats sums(results.size());
    const auto violation = [&](StridedView<float, 3> into, StridedView<float, 2> log_sum_exp) {
        return violation_of([&] { (void)mpi::attend(pass, 0, q, into, {.log_sum_exp = log_sum_exp}); });
    };
    const auto view = contiguous_view(results.data(), 2, query_heads, heads.value_dim);
    const auto has = [](const std::string& message, const char* words) {
        return message.find(words) != std::string::npos;
    };
    CHECK(has(violation(view, contiguous_view(sums.data(), 1, 1)), "attend: the log_sum_exp is [1, 1]"));
    CHECK(has(violation(view, contiguous_view(results.data(), 2, query_heads)), "the log_sum_exp overlaps"));
    auto same_place = view;
    same_place.strides[0] = 0;
    CHECK(has(violation(same_place, {}), "a place for each element"));
    auto null = view;
    null.pointer = nullptr;
    CHECK(has(violation(null, {}), "the results are a null pointer"));
    pass.drop();
    const Context moved = std::move(context);
    CHECK(violation_of([&] { (void)context.next(Sequence{0}); })
          == "the memory was moved from, expected one that was not");
}

} // namespace test_context_refusals
