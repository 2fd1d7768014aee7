// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch.hpp>
#include <cellar/base/batch_builder.hpp>
#include <cellar/base/contract.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/result.hpp>
#include <cellar/serve/request.hpp>
#include <cellar/serve/request_memory.hpp>
#include <cellar/serve/scheduler_limits.hpp>
#include <cellar/serve/victims.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cellar::serve {

/// Decides what is computed in each step: the next token of every request that is being answered, then pieces of the
/// prompts of others (chunked prefill), up to the limit of a batch. Requests begin in the order in which they were
/// submitted, as soon as there is room. If the memory is full, `Victims` chooses one that is put back: it runs again as
/// soon as there is room, before all that were submitted later. Never the one that was submitted first: it computes
/// something in every step. So every request is finished, whatever the policy.
///
/// It runs no model, has no threads, and owns no memory but the tokens. A step:
///
///     auto pass = scheduler.begin(); // admits requests, plans, opens the pass
///     run_model(*pass);              // of scheduler.parts(), in this order
///     pass->commit();
///     for (const Part& part : scheduler.parts()) // the next token of each request whose tokens are all computed
///         if (part.at_end && scheduler.append(part.request, sample(part))) scheduler.finish(part.request);
///
/// The memory's sequences below `SchedulerLimits::sequences` belong to the scheduler. A pass that is not committed is
/// planned again. Movable, not copyable. One thread at a time may use it.
template <RequestMemory M, VictimPolicy Victims = NewestFirst>
class Scheduler {

    struct Entry {
        std::vector<std::int32_t> tokens = {};
        std::int32_t due = 0;    ///< how many of them are to be computed; fewer than all if the answer is complete
        std::int32_t answer = 0; ///< tokens of the answer that are missing at most
        std::vector<std::int32_t> keep = {};
        std::uint64_t salt = 0;
        Sequence sequence{-1};           ///< while it runs
        typename M::kept_type kept = {}; ///< while it waits after it was put back
    };
    using Entries = std::map<RequestId, Entry>; // a request goes from one to another without an allocation

public:
    /// Violations: limits out of range, more sequences or a larger batch than the memory has. The sequences must be
    /// empty.
    explicit Scheduler(M memory, const SchedulerLimits& limits, Victims victims = Victims{},
                       Where where = Where::current())
        : memory_{std::move(memory)}, limits_{limits}, victims_{std::move(victims)} {
        const detail::Caller caller{where};
        CELLAR_EXPECTS(limits.sequences > 0 && limits.batch >= 0 && limits.context > 0 && limits.spare >= 0,
                       "limits: ", limits.sequences, " sequences, a batch of ", limits.batch, ", a context of ",
                       limits.context, " and ", limits.spare,
                       " spare cells, expected 1 or more, a batch and spare cells of 0 or more");
        expect_within_memory();
        const std::int32_t at_a_time = std::min(limits_.sequences, limits_.batch); // so each computes a token in a step
        for (std::int32_t s = at_a_time; s > 0; --s) free_.emplace_back(s - 1);
        parts_.reserve(free_.size());
        candidates_.reserve(free_.size());
        batch_.add(Sequence{0}, Position{0}, limits_.batch).clear(); // has the memory that it needs from now on
    }

    Scheduler(Scheduler&&) noexcept = default;
    Scheduler& operator=(Scheduler&&) noexcept = default;

    /// The request waits until there is room. Refuses with `request_too_long` if it has more tokens than the context;
    /// one without tokens is a violation. If that happens, or `std::bad_alloc` is thrown, the request is as it was: it
    /// is moved from at the end. An answer that the context cannot hold ends there. O(log requests).
    Result<RequestId> submit(Request&& request, Where where = Where::current()) {
        const detail::Caller caller{where};
        const auto length = static_cast<std::int64_t>(request.tokens.size());
        CELLAR_EXPECTS(length > 0, "submit: a request of 0 tokens, expected at least 1");
        if (length > limits_.context)
            return Refusal{.reason = Reason::request_too_long, .needed = length, .available = limits_.context};
        const RequestId id{submitted_};
        Entry& e = waiting_.try_emplace(waiting_.end(), id)->second; // allocates, so it comes first
        e.tokens = std::move(request.tokens);
        e.due = static_cast<std::int32_t>(length);
        e.answer = std::max(request.answer, 0);
        e.keep = std::move(request.keep);
        std::sort(e.keep.begin(), e.keep.end());
        e.salt = request.salt;
        ++submitted_;
        return id;
    }

    /// Keeps what requests asked for, admits those for which there is room, plans a step and opens its pass. While that
    /// is refused with `full`, puts a request back and plans again. If there is nothing to compute, the batch is empty.
    ///
    /// Refuses with `full` if the `oldest` request finds no room, though no other one runs: finish it, or make room
    /// outside of the scheduler. Returns any other refusal of the pass at once. After a refusal, or if the memory
    /// throws, no request has lost a token or its turn: `begin` can be called again. O(requests that run), and what
    /// the memory needs.
    auto begin(Where where = Where::current()) requires(requires(M& m, const Batch& batch) { m.begin(batch); }) {
        return begin([this](const Batch& batch) { return memory_.begin(batch); }, where);
    }
    /// The same for a pass that another one opens, who calls `parts`: `open(batch)` returns a `Result`.
    template <class Open>
    auto begin(Open open, Where where = Where::current()) -> std::invoke_result_t<Open&, const Batch&> {
        const detail::Caller caller{where};
        keep_computed();
        if (const Result<void> admitted = admit(); !admitted) return admitted.error();
        while (true) {
            plan();
            const Batch batch = batch_;
            auto pass = open(batch);
            if (pass || pass.error() != Reason::full || running_.size() < 2) return pass;
            put_back(pass.error());
        }
    }

    /// What the step computes, in the order of its batch. Until the next `begin`.
    std::span<const Part> parts() const { return parts_; }

    /// The next token of a request whose tokens are all computed (`Part::at_end`). Returns true if the answer is then
    /// complete: it has as many tokens as were asked for, or one more than the context holds, which cannot be computed
    /// unless others are forgotten. If none were asked for (`Request::answer` is 0), stores nothing and returns true.
    /// Violations: a request that waits, has tokens that are not computed, or whose answer is complete. Throws
    /// `std::bad_alloc`, with nothing changed. O(1) amortised.
    bool append(RequestId id, std::int32_t token, Where where = Where::current()) {
        const detail::Caller caller{where};
        Entry& e = entry(id);
        const std::int32_t computed = e.sequence.value < 0 ? 0 : memory_.next(e.sequence).value;
        CELLAR_EXPECTS(computed == size(e), "append: the request has ", size(e), " tokens, of which ", computed,
                       " are computed, and ", e.answer, " more are asked for, expected all computed");
        if (e.answer == 0) return true;
        e.tokens.push_back(token);
        --e.answer;
        if (e.answer == 0 || size(e) > limits_.context) return true;
        e.due = size(e);
        return false;
    }

    /// Ends a request, whether it runs or waits, is complete or not. Its sequence is free. What was computed is kept
    /// for others, such as its next turn. Returns all of its tokens.
    std::vector<std::int32_t> finish(RequestId id, Where where = Where::current()) {
        const detail::Caller caller{where};
        Entry& e = entry(id);
        if (e.sequence.value >= 0) {
            memory_.keep(e.sequence, computed(e), e.salt);
            memory_.clear(e.sequence);
            free_.push_back(e.sequence);
        }
        has_changed_ = true;
        std::vector<std::int32_t> tokens = std::move(e.tokens);
        (e.sequence.value >= 0 ? running_ : waiting_).erase(id);
        return tokens;
    }

    /// A context shift: the request loses its tokens [begin, end), but not its last one, and goes on with the others,
    /// which move down. Refuses as `remove` of the memory does, with nothing changed: a state cannot lose tokens, for
    /// example. A promise of room (`Admit::with_promise`) is not renewed: the request may then be put back.
    Result<void> forget(RequestId id, Position begin, Position end, Where where = Where::current()) {
        const detail::Caller caller{where};
        Entry& e = entry(id);
        CELLAR_EXPECTS(begin.value >= 0 && begin <= end && end.value < size(e), "forget: tokens [", begin, ", ", end,
                       "), expected a range within the ", size(e), " of the request that leaves its last one");
        if (e.sequence.value >= 0) {
            const Position to = std::min(end, memory_.next(e.sequence));
            if (begin < to)
                if (const Result<void> removed = memory_.remove(e.sequence, begin, to); !removed) return removed;
        } else {
            e.kept = {};
        }
        has_changed_ = true;
        e.tokens.erase(e.tokens.begin() + begin.value, e.tokens.begin() + end.value);
        std::erase_if(e.keep, [&](std::int32_t length) { return length > begin.value; });
        e.due = e.answer > 0 ? std::min(size(e), limits_.context) : e.due - (end - begin);
        return {};
    }

    /// All tokens of a request, those of its answer included. Until it gets another one, or ends.
    std::span<const std::int32_t> tokens(RequestId id, Where where = Where::current()) const {
        const detail::Caller caller{where};
        return entry(id).tokens;
    }

    /// Whether a request runs or waits.
    bool contains(RequestId id) const { return running_.contains(id) || waiting_.contains(id); }
    /// The first of those that run; if none runs, of those that wait.
    std::optional<RequestId> oldest() const {
        if (empty()) return std::nullopt;
        return (running_.empty() ? waiting_ : running_).begin()->first;
    }
    /// Whether no request runs or waits.
    bool empty() const { return running_.empty() && waiting_.empty(); }
    /// How many requests have a sequence.
    std::int32_t running() const { return static_cast<std::int32_t>(running_.size()); }
    /// How many requests have none: they are new, or were put back.
    std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
    /// How often a request was put back.
    std::int64_t preemptions() const { return preemptions_; }

private:
    /// No more sequences and tokens of a batch than the memory has, if it says that. Takes its batch if none is given.
    void expect_within_memory() {
        std::int32_t sequences = INT32_MAX;
        std::int32_t batch = INT32_MAX;
        if constexpr (requires { memory_.sequences(); }) sequences = memory_.sequences();
        if constexpr (requires { memory_.batch(); }) batch = memory_.batch();
        CELLAR_EXPECTS(limits_.sequences <= sequences, "limits: ", limits_.sequences,
                       " sequences, expected at most the ", sequences, " of the memory");
        CELLAR_EXPECTS(limits_.batch <= batch, "limits: a batch of ", limits_.batch, ", expected at most the ", batch,
                       " tokens of the memory's");
        if (limits_.batch == 0) limits_.batch = batch == INT32_MAX ? 512 : batch;
    }

    static std::int32_t size(const Entry& e) { return static_cast<std::int32_t>(e.tokens.size()); }

    Entry& entry(RequestId id) { return const_cast<Entry&>(std::as_const(*this).entry(id)); }
    const Entry& entry(RequestId id) const {
        const auto running = running_.find(id);
        if (running != running_.end()) return running->second;
        const auto waiting = waiting_.find(id);
        CELLAR_EXPECTS(waiting != waiting_.end(), "request ", id.value,
                       " neither runs nor waits, expected one that does");
        return waiting->second;
    }

    std::span<const std::int32_t> computed(const Entry& e) const {
        return std::span{e.tokens}.first(static_cast<std::size_t>(memory_.next(e.sequence).value));
    }
    /// Tokens that are to be computed.
    std::int32_t ahead(const Entry& e) const { return e.due - memory_.next(e.sequence).value; }

    /// After a step: where others may go on, and sequences have come to.
    void keep_computed() {
        for (const Part& part : parts_) {
            const auto found = running_.find(part.request);
            if (found == running_.end()) continue;
            const Entry& e = found->second;
            if (!std::binary_search(e.keep.begin(), e.keep.end(), memory_.next(e.sequence).value)) continue;
            memory_.keep(e.sequence, computed(e), e.salt);
            has_changed_ = true;
        }
        parts_.clear();
    }

    /// The oldest first, and none that is younger than one that has to wait. Refuses if none can run.
    Result<void> admit() {
        if (!running_.empty() && !has_changed_ && room() <= room_) return {};
        std::int64_t ahead_of_all = 0;
        for (const auto& [id, e] : running_) ahead_of_all += ahead(e);
        while (!waiting_.empty() && !free_.empty()) {
            Entry& e = waiting_.begin()->second;
            const Result<void> entered = memory_.enter(admission_of(e, ahead_of_all), e.kept);
            has_changed_ = entered.has_value();
            if (!entered) {
                room_ = room();
                return running_.empty() ? entered : Result<void>{};
            }
            e.sequence = free_.back();
            free_.pop_back();
            e.kept = {};
            ahead_of_all += ahead(e);
            running_.insert(waiting_.extract(waiting_.begin()));
        }
        return {};
    }
    std::int64_t room() const {
        if constexpr (requires { memory_.room(); }) return memory_.room();
        return 0;
    }
    Admission admission_of(const Entry& e, std::int64_t ahead_of_all) const {
        const bool promised = limits_.admit == Admit::with_promise;
        // The last token of an answer is not computed.
        const std::int64_t longest = std::min<std::int64_t>(std::int64_t{size(e)} + e.answer - 1, limits_.context);
        const std::int32_t room = promised ? std::max(e.due, static_cast<std::int32_t>(longest)) : e.due;
        const std::int64_t spare =
            promised || running_.empty() ? 0 : ahead_of_all + std::int64_t{limits_.spare} * (running() + 1);
        return {.sequence = free_.back(),
                .known = std::span{e.tokens}.first(static_cast<std::size_t>(std::max(e.due, 1) - 1)),
                .salt = e.salt,
                .room = room,
                .spare = static_cast<std::int32_t>(std::min<std::int64_t>(spare, INT32_MAX - room)),
                .promised = promised};
    }

    void plan() {
        batch_.clear();
        parts_.clear();
        for (const bool is_prompt : {false, true})
            for (const auto& [id, e] : running_) {
                const Position next = memory_.next(e.sequence);
                const std::int32_t left = limits_.batch - batch_.size();
                if (next.value == e.due || (e.due - next.value > 1) != is_prompt || left == 0) continue;
                const auto boundary = std::upper_bound(e.keep.begin(), e.keep.end(), next.value);
                const std::int32_t end = boundary == e.keep.end() ? e.due : std::min(e.due, *boundary);
                const std::int32_t count = std::min(left, end - next.value);
                parts_.push_back(
                    {id, e.sequence, batch_.size(),
                     std::span{e.tokens}.subspan(static_cast<std::size_t>(next.value), static_cast<std::size_t>(count)),
                     next.value + count == size(e)});
                batch_.add(e.sequence, next, count);
            }
    }

    void put_back(const Refusal& refusal) {
        candidates_.clear();
        for (auto other = std::next(running_.begin()); other != running_.end(); ++other)
            candidates_.push_back({other->first, other->second.sequence, memory_.next(other->second.sequence).value});
        const std::size_t victim = victims_(std::span<const Candidate>{candidates_}, refusal);
        CELLAR_EXPECTS(victim < candidates_.size(), "victims: index ", victim, ", expected 0 to ",
                       candidates_.size() - 1);
        const auto found = running_.find(candidates_[victim].request);
        Entry& e = found->second;
        e.kept = memory_.put_back(e.sequence, computed(e), e.salt);
        free_.push_back(std::exchange(e.sequence, Sequence{-1}));
        waiting_.insert(running_.extract(found));
        has_changed_ = true;
        ++preemptions_;
    }

    M memory_;
    SchedulerLimits limits_;
    Victims victims_;
    Entries waiting_;
    Entries running_;
    std::vector<Sequence> free_;
    std::vector<Part> parts_;
    std::vector<Candidate> candidates_;
    BatchBuilder batch_;
    bool has_changed_ = true; // the oldest that waits may find room, which it did not find before; so it may
    std::int64_t room_ = 0;   // if there is more than then
    std::int64_t submitted_ = 0;
    std::int64_t preemptions_ = 0;
};

} // namespace cellar::serve
