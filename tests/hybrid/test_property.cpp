// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Random operations on a hybrid, compared after each with a naive model of every member.
#include "naive_hybrid.hpp"
#include "toy.hpp"

#include <climits>
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace cellar;
using namespace toy;

namespace {

// The same steps in every run; ask for others with RC_PARAMS="seed=...".
[[maybe_unused]] const int settled = setenv("RC_PARAMS", "seed=20261121 max_success=50", 0);

/// The choices of one step, made smaller by making the numbers smaller.
using Step = std::vector<int>;

struct Setting {
    int sequences;
    int retention;
    int full_capacity;
    int rollback;
};

class Trial {
public:
    explicit Trial(const Setting& s)
        : sequences_{s.sequences},
          memory_{toy::memory({.sequences = s.sequences,
                               .batch = batch,
                               .sliding_retention = s.retention,
                               .full_capacity = s.full_capacity,
                               .rollback = s.rollback})},
          sliding_{{.window = {naive::Sees::width, 4, s.retention, 0},
                    .sequences = s.sequences,
                    .capacity = 1000,
                    .batch = batch}},
          full_{{.sequences = s.sequences, .capacity = s.full_capacity, .batch = batch}},
          states_{s.sequences, s.rollback} {
        log_ << "sequences " << s.sequences << ", retention " << s.retention << ", capacity " << s.full_capacity
             << ", rollback " << s.rollback << '\n';
    }

    void run(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            take(step);
            compare();
        }
    }

private:
    static constexpr int batch = 7;

    void expect(bool holds, const std::string& what) {
        if (!holds) RC_FAIL(log_.str() + what);
    }

    void take(const Step& step) {
        const int s = step[1] % sequences_;
        const int back = step[2] % 9;
        const int begin = std::max(0, states_.next(s) - back);
        switch (step[0] % 8) {
        case 0:
            return remove(s, begin, INT_MAX);
        case 1:
            return remove(s, begin, begin + step[3] % 4);
        case 2:
            return copy(s, step[3] % sequences_, begin + (step[4] % 4 == 0 ? 3 : 0));
        default:
            return pass(step);
        }
    }

    /// Up to three sequences, now and then with a gap, a repeated position, or a token too many.
    void pass(const Step& step) {
        Tokens tokens;
        std::vector<naive::NewToken> expected;
        for (int i = 0; i < 1 + step[1] % 3; ++i) {
            const int s = (step[2] + i) % sequences_;
            const int gap = step[3] == 0 && i == 0 ? 1 : 0;
            const bool seen =
                std::any_of(tokens.begin(), tokens.end(), [&](const toy::Token& t) { return t.sequence == s; });
            for (int n = 0; n <= step[4] % 3 && !seen; ++n)
                tokens.push_back({s, states_.next(s) + gap + n, 1 + words_++ % 1000});
        }
        for (const toy::Token& t : tokens) expected.push_back({t.sequence, t.position, false, t.word});
        log_ << "pass";
        for (const toy::Token& t : tokens) log_ << " {" << t.sequence << ", " << t.position << "}";
        const auto refused = refusal(expected);
        auto begun = memory_.begin(toy::Batch{tokens});
        expect_answer(begun.has_value() ? std::nullopt : std::optional{begun.error()}, refused);
        if (refused) return;
        const int filled = step[5] % 4 == 0 ? step[4] % (layers + 1) : layers;
        log_ << ", " << filled << " layers filled\n";
        fill(*begun, tokens, filled);
        if (filled != layers) return; // dropped
        begun->commit();
        sliding_ = sliding_.with(expected).committed(expected);
        full_ = full_.with(expected).committed(expected);
        states_.commit(expected);
    }

    std::optional<Refused> refusal(const std::vector<naive::NewToken>& tokens) const {
        if (const auto no = sliding_.refuses(tokens)) return Refused{reason(*no), 0};
        if (const auto no = full_.refuses(tokens)) return Refused{reason(*no), 1};
        if (!states_.follows(tokens)) return Refused{Refusal::not_next, 2};
        return std::nullopt;
    }

    void remove(int s, int begin, int end) {
        log_ << "remove " << s << " [" << begin << ", " << end << ")\n";
        naive::Model sliding = sliding_;
        naive::Model full = full_;
        std::optional<Refused> refused;
        if (const auto no = sliding.remove(s, begin, end)) refused = {reason(*no), 0};
        if (const auto no = full.remove(s, begin, end); no && !refused) refused = {reason(*no), 1};
        const auto answer = states_.admits_remove(s, begin, end);
        if (answer != naive::States::Answer::yes && !refused)
            refused = {answer == naive::States::Answer::cannot_cut ? Refusal::cannot_cut : Refusal::cannot_rewind, 2};
        const auto removed = memory_.remove({s}, {begin}, {end});
        expect_answer(removed.has_value() ? std::nullopt : std::optional{removed.error()}, refused);
        if (refused) return;
        sliding_ = std::move(sliding);
        full_ = std::move(full);
        states_.remove(s, begin, end);
    }

    void copy(int from, int to, int length) {
        log_ << "copy " << from << " to " << to << ", length " << length << '\n';
        const auto copied = memory_.copy_prefix({from}, {to}, length);
        const auto refused =
            states_.admits_copy(from, to, length) ? std::nullopt : std::optional{Refused{Refusal::cannot_rewind, 2}};
        expect_answer(copied.has_value() ? std::nullopt : std::optional{copied.error()}, refused);
        if (refused) return;
        sliding_.copy_prefix(from, to, length);
        full_.copy_prefix(from, to, length);
        states_.copy_prefix(from, to, length);
    }

    static Refusal reason(naive::No no) {
        if (no == naive::No::full) return Refusal::full;
        return no == naive::No::cannot_shift ? Refusal::cannot_shift : Refusal::batch_too_long;
    }

    void expect_answer(const std::optional<Refused>& answer, const std::optional<Refused>& expected) {
        const auto text = [](const auto& r) { return r ? to_string(*r) : std::string{"yes"}; };
        expect(answer == expected, "the answer is " + text(answer) + ", expected " + text(expected));
    }

    void compare() {
        compare_cache(memory_.member<Sliding>(), sliding_, "sliding");
        compare_cache(memory_.member<Full>(), full_, "full");
        const Recurrent& recurrent = memory_.member<Recurrent>();
        expect(recurrent.statistics().used == states_.used(), "slots in use");
        for (int s = 0; s < sequences_; ++s) {
            std::map<int, int> found;
            for (const KeptState& state : recurrent.kept({s})) {
                const auto generation = recurrent.ledger().slots().generation(state.slot);
                found[state.next.value] = static_cast<int>(recurrent.view<Hash>(0, {state.slot, generation})(0));
            }
            std::map<int, int> expected;
            for (const auto& [position, words] : states_.kept(s)) expected[position] = folded(*words);
            expect(found == expected, "the states of sequence " + std::to_string(s));
            compare_resuming(s);
        }
    }

    void compare_resuming(int s) {
        int last = 0;
        for (int p = 0; p < 40; ++p) {
            const bool all = sliding_.can_resume(s, p) && full_.can_resume(s, p) && states_.can_resume(s, p);
            expect(memory_.can_resume({s}, {p}) == all, "resuming at " + std::to_string(p));
            if (all) last = p;
            expect(memory_.resumable_prefix({s}, {p}) == Position{last}, "the prefix up to " + std::to_string(p));
        }
    }

    template <class C>
    void compare_cache(C& cache, const naive::Model& model, const std::string& name) {
        expect(audit(cache.ledger()).empty(), name + ": " + audit(cache.ledger()));
        expect(cache.statistics().free == model.cells() - model.used(), name + ": free cells");
        auto pass = cache.reserve(1);
        for (int s = 0; s < sequences_; ++s) {
            std::map<int, int> found;
            cache.ledger().record({s}).runs.for_each({0}, end_of_time, [&](Position p, Cell c, int n) {
                for (int i = 0; i < n; ++i) found[p.value + i] = static_cast<int>(pass.keys(0)(c + i, 0, 0));
            });
            std::map<int, int> expected;
            for (const auto& [position, token] : model.tokens(s)) expected[position] = token->value;
            expect(found == expected, name + ": the tokens of sequence " + std::to_string(s));
        }
    }

    int sequences_;
    toy::Memory memory_;
    naive::Model sliding_;
    naive::Model full_;
    naive::States states_;
    std::ostringstream log_;
    int words_ = 0;
};

} // namespace

TEST_CASE("property: a hybrid agrees with a naive model of each member") {
    const bool agrees = rc::check("hybrid", [] {
        const Setting setting{*rc::gen::inRange(1, 5), *rc::gen::inRange(4, 9), *rc::gen::inRange(6, 25),
                              *rc::gen::inRange(0, 5)};
        const auto step = rc::gen::container<Step>(6, rc::gen::inRange(0, 60));
        Trial{setting}.run(*rc::gen::container<std::vector<Step>>(60, step));
    });
    CHECK(agrees);
}
