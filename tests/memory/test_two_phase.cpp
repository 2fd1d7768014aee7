// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Members of a hybrid that are not among cellar's memories: a class written here, and a hybrid.
#include "tokens.hpp"
#include <cellar/cellar.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace test_two_phase {

using namespace cellar;
using cellar_test::text;

namespace {

/// Counts the tokens of each sequence, up to `max`.
class Counter {
public:
    class Pass {
    public:
        Pass(Pass&& other) noexcept : counter_{std::exchange(other.counter_, nullptr)}, tokens_{other.tokens_} {}
        Pass& operator=(Pass&&) = delete;
        ~Pass() { drop(); }

        std::int32_t tokens() const { return tokens_; }
        template <class F>
        void visit(int layer, F&& f) {
            f(*this, layer);
        }
        void commit() {
            expect_complete();
            finish_commit();
        }
        void drop() noexcept { counter_ = nullptr; }

        void expect_complete() const {}
        void finish_commit() noexcept {
            if (counter_ != nullptr) counter_->lengths_ = counter_->next_;
            counter_ = nullptr;
        }

    private:
        friend class Counter;

        Pass(Counter* counter, std::int32_t tokens) : counter_{counter}, tokens_{tokens} {}

        Counter* counter_;
        std::int32_t tokens_;
    };

    Counter(Counter&&) = default;
    Counter& operator=(Counter&&) = default;
    Counter(std::int32_t sequences, std::int32_t max)
        : lengths_(static_cast<std::size_t>(sequences)), next_(lengths_), max_{max} {}

    Result<Pass> begin(const Batch& batch) {
        auto prepared = prepare(op::Begin{batch});
        if (!prepared) return prepared.error();
        return finish(*std::move(prepared));
    }
    Pass reserve(std::int32_t tokens) { return Pass{nullptr, tokens}; }
    Result<void> copy_prefix(Sequence from, Sequence to, Position end) {
        finish(prepare(op::CopyPrefix{from, to, end}).value());
        return {};
    }
    Position next(Sequence s) const { return Position{length(s)}; }
    bool can_resume(Sequence s, Position p) const { return resumable_prefix(s, p) == p; }
    Position resumable_prefix(Sequence s, Position p) const { return std::min(p, Position{length(s)}); }
    Result<void> remove(Sequence s, Position begin, Position end) {
        auto prepared = prepare(op::Remove{s, begin, end});
        if (!prepared) return prepared.error();
        finish(*std::move(prepared));
        return {};
    }
    void fence() {}
    std::int64_t bytes() const { return 4 * static_cast<std::int64_t>(lengths_.size()); }
    int layers() const { return 1; }
    std::int32_t sequences() const { return static_cast<std::int32_t>(lengths_.size()); }

    std::int32_t length(Sequence s) const { return lengths_[static_cast<std::size_t>(s.value)]; }

    // [phases]
    struct SetLength {
        Sequence sequence;
        std::int32_t length;
    };
    Result<op::Begin> prepare(const op::Begin& begin) {
        next_ = lengths_;
        for (const Sequence s : begin.batch.sequences)
            if (++next_[static_cast<std::size_t>(s.value)] > max_) return Reason::full;
        return begin;
    }
    Pass finish(op::Begin&& begin) { return Pass{this, begin.batch.tokens()}; }
    Result<SetLength> prepare(const op::CopyPrefix& copy) {
        return SetLength{copy.to, std::min(length(copy.from), copy.end.value)};
    }
    Result<SetLength> prepare(const op::Remove& remove) {
        if (remove.begin.value % 2 != 0) return Reason::cannot_cut; // so that there is a refusal
        const std::int32_t now = length(remove.sequence);
        const std::int32_t removed = std::max(0, std::min(now, remove.end.value) - remove.begin.value);
        return SetLength{remove.sequence, now - removed};
    }
    void finish(SetLength&& change) noexcept {
        lengths_[static_cast<std::size_t>(change.sequence.value)] = change.length;
    }
    // [/phases]

private:
    std::vector<std::int32_t> lengths_;
    std::vector<std::int32_t> next_;
    std::int32_t max_;
};
static_assert(Memory<Counter> && TwoPhaseMemory<Counter>);

using Keys = Cache<StandardV<float>, FullCausal, UnrotatedShift>;
using Together = Hybrid<Repeat<Keys, Counter>, Keys, Counter>;
static_assert(TwoPhaseMemory<Together> && !HasSnapshots<Together> && !TwoPhaseSnapshots<Together>);

Keys keys(std::int32_t cells, int layers = 1) {
    return {{.layers = layers, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .cells = cells, .batch = 16}};
}
Together together(std::int32_t cells, std::int32_t max) {
    return Together{2, keys(cells), Counter{2, max}};
}

struct Work {
    template <class Pass>
    void operator()(Pass& pass, int layer) const {
        if constexpr (requires { pass.cells(); }) {
            const std::vector<float> rows(static_cast<std::size_t>(pass.tokens()), 1.0F);
            pass.put(layer, rows, rows);
        } else if constexpr (requires { pass.layers(); }) {
            pass.visit(layer, *this); // a hybrid within a hybrid
        }
    }
};

template <class M>
Result<void> feed(M& memory, const cellar_test::Text& tokens) {
    auto pass = memory.begin(cellar_test::batch_of(tokens));
    if (!pass) return pass.error();
    for (int layer = 0; layer < memory.layers(); ++layer) pass->visit(layer, Work{});
    pass->commit();
    return {};
}

} // namespace

TEST_CASE("a user's memory can be a member of a hybrid: all or none") {
    Together memory = together(10, 6);
    const auto lengths = [&](int s) {
        return std::pair{memory.member<Keys>().tokens(Sequence{s}), memory.member<Counter>().length(Sequence{s})};
    };
    REQUIRE(feed(memory, text(0, 0, 5)));
    CHECK(lengths(0) == std::pair{5, 5});

    // The counter refuses, and the cache has changed nothing.
    CHECK(feed(memory, text(0, 5, 2)).error() == Refusal{Reason::full, 1});
    CHECK(lengths(0) == std::pair{5, 5});
    CHECK(memory.member<Keys>().statistics().free == 5);
    CHECK(memory.remove(Sequence{0}, Position{1}, Position{2}).error() == Refusal{Reason::cannot_cut, 1});
    CHECK(lengths(0) == std::pair{5, 5});

    // The cache refuses, and the counter has changed nothing.
    CHECK(feed(memory, text(1, 0, 6)).error() == Refusal{Reason::full, 0});
    CHECK(lengths(1) == std::pair{0, 0});

    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{3}));
    CHECK(lengths(1) == std::pair{3, 3});
    REQUIRE(memory.remove(Sequence{0}, Position{2}, Position{4}));
    CHECK(lengths(0) == std::pair{3, 3});
    CHECK(memory.resumable_prefix(Sequence{0}, Position{100}) == Position{3});
    {
        auto dropped = memory.begin(cellar_test::batch_of(text(0, 3, 1)));
        REQUIRE(dropped);
    }
    CHECK(lengths(0) == std::pair{3, 3});
    CHECK(memory.bytes() == 10 * 2 * 4 + 8);
}

TEST_CASE("the hash of a user's memory depends on the next positions of all its sequences") {
    const auto hash = [](const auto& memory) { return MemoryAccess::book_hash(memory); };
    Counter one{2, 10};
    Counter other{2, 10};
    for (const int s : {0, 1}) {
        CHECK(hash(one) == hash(other));
        REQUIRE(feed(one, text(s, 0, 5)));
        CHECK(hash(one) != hash(other));
        REQUIRE(feed(other, text(s, 0, 3)));
        CHECK(hash(one) != hash(other));
        REQUIRE(feed(other, text(s, 3, 2)));
    }
    CHECK(hash(one) == hash(other));
}

TEST_CASE("a hybrid can be a member of another hybrid: all or none, and refusals name both members") {
    struct Draft : Keys {
        using Keys::Keys;
    };
    using Outer = Hybrid<LayerList<Draft, Times<2, Together>>, Draft, Together>;
    Outer memory{
        3, Draft{CacheShape{.layers = 1, .kv_heads = 1, .head_dim = 1}, {.sequences = 2, .cells = 20, .batch = 16}},
        together(10, 6)};
    REQUIRE(feed(memory, text(0, 0, 5)));
    CHECK(memory.member<Draft>().tokens(Sequence{0}) == 5);
    CHECK(memory.member<Together>().member<Counter>().length(Sequence{0}) == 5);

    CHECK(feed(memory, text(0, 5, 2)).error() == Refusal{.reason = Reason::full, .member = 1, .inner = 1});
    CHECK(memory.member<Draft>().tokens(Sequence{0}) == 5);
    CHECK(memory.member<Together>().member<Keys>().tokens(Sequence{0}) == 5);

    REQUIRE(memory.copy_prefix(Sequence{0}, Sequence{1}, Position{4}));
    REQUIRE(memory.remove(Sequence{1}, Position{2}, to_end));
    CHECK(memory.member<Draft>().tokens(Sequence{1}) == 2);
    CHECK(memory.member<Together>().member<Counter>().length(Sequence{1}) == 2);
}

} // namespace test_two_phase
