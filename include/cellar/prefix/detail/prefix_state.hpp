// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/base/batch_builder.hpp>
#include <cellar/base/ids.hpp>
#include <cellar/base/memory_bytes.hpp>
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/base/trivial_list.hpp>
#include <cellar/memory/two_phase.hpp>
#include <cellar/prefix/detail/eviction_queue.hpp>
#include <cellar/prefix/detail/prefix_nodes.hpp>
#include <cellar/prefix/prefix_limits.hpp>
#include <cellar/prefix/prefix_statistics.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace cellar::detail {

/// What a prefix tree has: its nodes, and the snapshots that they own of a memory.
template <class M>
class PrefixState {
public:
    using Snapshot = SnapshotOf<M>;
    using Nodes = PrefixNodes<Snapshot>;
    using Node = typename Nodes::Node;
    using Walk = typename Nodes::Walk;
    using Tokens = std::span<const std::int32_t>;

    /// Of all snapshots.
    struct Bytes {
        std::int64_t in_place = 0;
        std::int64_t offloaded = 0;
    };

    /// A node, and where in it a sequence could go on.
    struct Place {
        Node* node = nullptr;
        std::int32_t end = 0;
    };

    static constexpr bool offloads = holds_data<M> && requires(M & memory, Snapshot& snapshot) {
        memory.offload(snapshot, OffloadTo::host);
        memory.reload(snapshot);
    };

    PrefixState(M& memory, const PrefixLimits& limits) : memory_{memory}, limits_{limits} {}

    M& memory() const { return memory_; }
    const Nodes& nodes() const { return nodes_; }
    std::int64_t snapshots() const { return snapshots_; }
    std::int64_t offloaded() const { return offloaded_; }
    const Bytes& bytes() const { return bytes_; }
    /// See `PrefixTree::bytes_for`.
    static constexpr std::int64_t bytes_for(std::int64_t nodes, std::int64_t tokens) {
        if (nodes == 0) return bytes_of<PrefixState>(1);
        return bytes_of<PrefixState>(1) + Nodes::bytes_for(nodes, tokens)
               + 2 * bytes_of_node_list(static_cast<std::size_t>(nodes));
    }
    /// What the tree itself takes. O(nodes).
    std::int64_t own_bytes() const {
        const std::size_t lists = chain_.capacity() + candidates_.capacity();
        return bytes_of<PrefixState>(1) + nodes_.bytes() + bytes_of<Node*>(static_cast<std::int64_t>(lists));
    }
    PrefixStatistics& counters() { return counters_; }
    const PrefixStatistics& counters() const { return counters_; }
    BatchBuilder& next_tokens() { return next_tokens_; }
    Walk walk(Tokens tokens, std::uint64_t salt) const { return nodes_.walk(tokens, salt); }

    /// The deepest place whose snapshot the memory says it can restore.
    Place deepest(const Walk& walk) const {
        Place place = first_place(walk);
        while (place.node != nullptr && !can_restore(memory_, *place.node->snapshot, Position{place.end}))
            place = above(place);
        return place;
    }

    /// Restores as much as possible into s, which is empty. Returns how many tokens it has then.
    std::int32_t attach(Sequence s, const Walk& walk) {
        std::int32_t length = 0;
        for (Place place = deepest(walk); place.node != nullptr; place = above(place)) {
            if (place.end > length && !restore(s, place, length)) continue;
            if (!form_pages(s)) { // perhaps there is room for those of a shorter prefix
                memory_.remove(s, Position{0}, to_end).value();
                length = 0;
                continue;
            }
            use(*place.node);
            break;
        }
        return length;
    }

    /// Adds a node that ends where the tokens do, with a snapshot of s, which has these tokens.
    Result<void> insert(Sequence s, Tokens tokens, std::uint64_t salt) {
        Walk walk = nodes_.walk(tokens, salt);
        if (offloaded_ > 0) refresh(s, walk);
        while (true) {
            const Result<void> inserted = insert(walk, s, tokens, salt);
            if (inserted || !make_room(inserted.error())) return inserted;
            walk = nodes_.walk(tokens, salt); // other nodes may be gone
        }
    }

    /// After the memory refused for want of room: offloads the least useful node in place whose snapshot frees what
    /// is lacking, or gives it up if `offloaded_bytes` do not suffice. If no node does alone, the same with several. If
    /// none do, the same with one that needs a shorter prefix which would: that is free then, for another try.
    /// Returns false if nothing helps. O(log nodes + what the memory needs to offload), and O(log nodes + runs) for
    /// each less useful node that frees nothing, in every call; for several, this times log nodes for each of them.
    bool make_room(const Refusal& refusal) {
        if (refusal != Reason::full && refusal != Reason::too_many_snapshots) return false;
        candidates_.clear();
        {
            SkippedNodes skipped;
            while (Evictable* const least = nodes_.queues().least_in_place()) {
                Node& node = static_cast<Node&>(*least);
                if (has_gained(node)) continue;
                const bool helps =
                    refusal == Reason::too_many_snapshots || frees_cells(memory_, *node.snapshot, refusal);
                if (helps && move_out(node)) return true;
                if (!helps) candidates_.push_back(&node);
                skipped.add(node);
            }
        }
        return make_room_together(refusal, Sequence{-1})
               || (refusal.sequence.value >= 0 && make_room_together(refusal, refusal.sequence))
               || make_room_below(refusal);
    }

    /// How many more cells would be free if everything went that is not pinned. O(1), or O(nodes + words of 64 cells
    /// that pinned prefixes span) while there are pins.
    Cell evictable() noexcept requires(counts_evictable<M>) {
        const auto mark = [&](bool evictable) {
            if (nodes_.queues().pins == 0) return;
            nodes_.for_each([&](Node& pinned) {
                if (pinned.pins == nullptr) return;
                for (Node* node = &pinned; node != nullptr; node = node->base)
                    if (node->snapshot) set_evictable(memory_, *node->snapshot, evictable);
            });
        };
        mark(false);
        const Cell cells = memory_.evictable_cells();
        mark(true);
        return cells;
    }

    /// Evicts the least useful node. Returns false if there is none that is not held.
    bool evict() {
        Node* const offloaded = least_of(nodes_.queues().offloaded);
        Node* least = least_of(nodes_.queues().in_place);
        if (least == nullptr || (offloaded != nullptr && offloaded->usefulness <= least->usefulness)) least = offloaded;
        if (least == nullptr) return false;
        give_up(*least);
        return true;
    }

private:
    static Node* nearest_kept(Node* node) {
        while (node != nullptr && !node->snapshot) node = node->parent;
        return node;
    }
    static Place at_end(Node* node) { return {node, node == nullptr ? 0 : node->end}; }
    // The places that a walk has found, from the deepest on.
    static Place first_place(const Walk& walk) {
        if (walk.below != nullptr && walk.below->snapshot)
            return {walk.below, static_cast<std::int32_t>(walk.verified)};
        return at_end(nearest_kept(walk.last));
    }
    static Place above(const Place& place) { return at_end(nearest_kept(place.node->parent)); }

    /// Keeps nodes where they are.
    class Hold {
    public:
        /// The longest one comes first, and is noted.
        Hold(std::span<Node* const> nodes, const Node*& longest) noexcept : nodes_{nodes}, longest_{longest} {
            for (Node* node : nodes_) EvictionQueues::hold(*node);
            note_longest();
        }
        ~Hold() {
            longest_ = nullptr;
            for (Node* node : nodes_) EvictionQueues::release(*node);
        }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

        void release_first() noexcept {
            EvictionQueues::release(*nodes_.front());
            nodes_ = nodes_.subspan(1);
            note_longest();
        }

    private:
        void note_longest() noexcept { longest_ = nodes_.empty() ? nullptr : nodes_.front(); }

        std::span<Node* const> nodes_;
        const Node*& longest_;
    };

    // Restores a chain of snapshots, from 0 on or from where s has come to. Where one finds no room, the longer ones
    // are no longer held, so that they can make room, and `place` moves up. `length` is how much s has, also if this
    // fails.
    bool restore(Sequence s, Place& place, std::int32_t& length) {
        find_chain(*place.node, length);
        Hold hold{chain_, longest_held_};
        for (std::size_t next = chain_.size() - 1; true;) {
            Node& node = *chain_[next];
            const std::int32_t to = &node == place.node ? place.end : node.end;
            if (take_up(s, node, to)) {
                length = to;
                if (&node == place.node) return true;
                --next;
            } else if (!let_go(hold, node, place)) {
                return false;
            }
        }
    }
    void find_chain(Node& last, std::int32_t from) noexcept {
        chain_.clear();
        for (Node* node = &last; node != nullptr && node->end != from; node = node->base) chain_.push_back(node);
    }
    bool take_up(Sequence s, Node& node, std::int32_t to) {
        try {
            if (node.is_offloaded && to == node.end) reload(node);
            const auto restore_it = [&] { return memory_.restore(s, *node.snapshot, Position{to}); };
            return node.is_offloaded ? with_room(restore_it) : restore_it().has_value();
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    // Moves the place up within the chain until a node is free that was not. Returns false if there is none below
    // `node`, or if there is a place in between that is not in the chain.
    static bool let_go(Hold& hold, const Node& node, Place& place) {
        while (place.node != &node && above(place).node == place.node->base) {
            const Node& longest = *place.node;
            place = above(place);
            hold.release_first();
            if (longest.is_free()) return true;
        }
        return false;
    }

    // What s shares, which it has just got. Returns false if there is no room for the copies.
    bool form_pages(Sequence s) {
        if constexpr (has_pages<M>) {
            if (limits_.page == 1) return true;
            try {
                return with_room([&] { return memory_.form_pages(s, limits_.page); });
            } catch (const std::bad_alloc&) {
                return false;
            }
        }
        return true;
    }

    // Does it as long as there is less room than it needs and room can be made.
    template <class Operation>
    bool with_room(Operation operation) {
        while (true) {
            const Result<void> done = operation();
            if (done) return true;
            if (!make_room(done.error())) return false;
        }
    }

    // With a snapshot of so many bytes.
    PrefixUse use_of(const Node& node, std::int64_t bytes) const {
        const Node* const above = nearest_kept(node.parent);
        return {node.last_used, node.end - (above == nullptr ? 0 : above->end), bytes, node.floor};
    }

    double usefulness_of(const Node& node, std::int64_t bytes) const noexcept {
        const double usefulness = limits_.usefulness(use_of(node, bytes));
        return std::isnan(usefulness) ? -std::numeric_limits<double>::infinity() : usefulness;
    }
    double usefulness_of(const Node& node) const noexcept { return usefulness_of(node, node.bytes); }

    // After it may have lost. That a node has gained is found before it is evicted.
    void weigh(Node& node) noexcept {
        node.usefulness = usefulness_of(node);
        EvictionQueues::update(node);
    }

    // The node was used, and after it those that it needs, which are of use to others, too.
    void use(Node& used) noexcept {
        for (Node* node = &used; node != nullptr; node = node->base) {
            node->last_used = ++clock_;
            node->floor = floor_;
            weigh(*node);
        }
    }
    // What lies above a node may have been evicted since the node was used.
    bool has_gained(Node& node) noexcept {
        const double now = usefulness_of(node);
        if (!(now > node.usefulness)) return false;
        node.usefulness = now;
        EvictionQueues::update(node);
        return true;
    }

    // Null if the queue is empty.
    Node* least_of(EvictionQueue& queue) {
        while (queue.least() != nullptr) {
            Node& node = static_cast<Node&>(*queue.least());
            if (!has_gained(node)) return &node;
        }
        return nullptr;
    }

    // The same by several of the candidates, none of which helps alone: cells that two prefixes own become free when
    // both are gone. With a sequence: or stay with it alone, so that `remove` need not copy them.
    bool make_room_together(const Refusal& refusal, Sequence s) {
        std::size_t chosen = 0; // at the end of the list; each is needed
        const auto helps = [&](std::size_t least_useful) {
            const auto for_each = [&](auto visit) {
                for (std::size_t i = 0; i < least_useful; ++i) visit(*candidates_[i]->snapshot);
                for (std::size_t i = candidates_.size() - chosen; i < candidates_.size(); ++i)
                    visit(*candidates_[i]->snapshot);
            };
            return frees_together(memory_, for_each, s, refusal);
        };
        std::size_t enough = candidates_.size(); // so many of the least useful ones help, with the chosen ones
        if (!helps(enough)) return false;
        while (!helps(0)) {
            std::size_t too_few = 0;
            while (enough - too_few > 1) {
                const std::size_t some = too_few + (enough - too_few) / 2;
                (helps(some) ? enough : too_few) = some;
            }
            ++chosen;
            std::swap(candidates_[candidates_.size() - chosen], candidates_[--enough]);
        }
        bool any = false;
        for (; chosen > 0 && move_out(*candidates_[candidates_.size() - chosen]); --chosen) any = true;
        return any;
    }

    // The same by a candidate whose place is in the way: it frees nothing, but a shorter prefix that it needs does.
    bool make_room_below(const Refusal& refusal) {
        const auto helps = [&](const Node& shorter) {
            return !shorter.is_offloaded && frees_cells(memory_, *shorter.snapshot, refusal) && !stays(shorter);
        };
        for (Node* const node : candidates_)
            for (const Node* shorter = node->base; shorter != nullptr; shorter = shorter->base)
                if (helps(*shorter) && move_out(*node)) return true;
        return false;
    }
    // True if the node is pinned or being restored, or one that is needs it.
    bool stays(const Node& node) const {
        const auto needs_it = [&](const Node* longer) {
            while (longer != nullptr && longer != &node) longer = longer->base;
            return longer != nullptr;
        };
        bool stays = longest_held_ != nullptr && needs_it(longest_held_);
        if (nodes_.queues().pins > 0)
            nodes_.for_each([&](const Node& other) { stays = stays || (other.pins != nullptr && needs_it(&other)); });
        return stays;
    }

    bool move_out(Node& node) { return offload(node) || give_up_with_dependents(node); }

    // Returns false if a pin keeps those that need the node.
    bool give_up_with_dependents(Node& node) {
        while (node.offloaded_dependents > 0) {
            Node* const offloaded = least_of(nodes_.queues().offloaded);
            if (offloaded == nullptr) return false;
            give_up(*offloaded);
        }
        give_up(node);
        return true;
    }

    // Returns false if `offloaded_bytes`, or the memory at `offload_to`, do not suffice. Evicts less useful nodes that
    // are offloaded.
    bool offload([[maybe_unused]] Node& node) {
        if constexpr (offloads) {
            const std::int64_t bytes = occupied_bytes(memory_, *node.snapshot, limits_.offload_to);
            if (bytes > limits_.offloaded_bytes) return false;
            const double useful = usefulness_of(node, bytes); // where it goes
            while (bytes_.offloaded > limits_.offloaded_bytes - bytes) {
                Node* const offloaded = least_of(nodes_.queues().offloaded);
                if (offloaded == nullptr || offloaded->usefulness > useful) return false;
                give_up(*offloaded);
            }
            try {
                memory_.offload(*node.snapshot, limits_.offload_to);
            } catch (const std::bad_alloc&) {
                return false;
            }
            move(node, true);
            ++counters_.offloads;
            return true;
        }
        return false;
    }

    // Does nothing if there is no room in the memory.
    void reload([[maybe_unused]] Node& node) {
        if constexpr (offloads) {
            if (!with_room([&] { return memory_.reload(*node.snapshot); })) return;
            move(node, false);
            ++counters_.reloads;
        }
    }

    // After the data of a node's snapshot moved.
    void move(Node& node, bool is_offloaded) noexcept {
        remove_bytes(node);
        if (node.base != nullptr) EvictionQueues::release_for(node, *node.base);
        place(node, is_offloaded);
        if (node.base != nullptr) EvictionQueues::hold_for(node, *node.base);
        add_bytes(node);
        weigh(node);
    }
    void place(Node& node, bool is_offloaded) noexcept {
        offloaded_ += (is_offloaded ? 1 : 0) - (node.is_offloaded ? 1 : 0);
        EvictionQueues::move(node, is_offloaded);
    }

    void add_bytes(Node& node) noexcept {
        node.bytes = occupied_bytes(memory_, *node.snapshot);
        (node.is_offloaded ? bytes_.offloaded : bytes_.in_place) += node.bytes;
    }
    void remove_bytes(Node& node) noexcept {
        (node.is_offloaded ? bytes_.offloaded : bytes_.in_place) -= std::exchange(node.bytes, 0);
    }

    void give_up(Node& node) noexcept {
        floor_ = node.usefulness;
        remove_bytes(node);
        if (node.base != nullptr) EvictionQueues::release_for(node, *std::exchange(node.base, nullptr));
        EvictionQueues::hold(node);
        place(node, false);
        node.snapshot.reset();
        --snapshots_;
        nodes_.prune(node);
        ++counters_.evictions;
    }

    // Where the next snapshot below `parent` begins.
    static Position begin_below(Node* parent) {
        const Node* const kept = nearest_kept(parent);
        return Position{kept == nullptr ? 0 : kept->end};
    }

    // After a node got a snapshot: it needs that of the node above it that ends where its own begins.
    void settle(Node& node) noexcept {
        set_evictable(memory_, *node.snapshot, true);
        remove_bytes(node);
        add_bytes(node);
        Node* const before = node.base;
        const std::int32_t from = node.snapshot->from().value;
        Node* base = from == 0 ? nullptr : node.parent;
        while (base != nullptr && base->end != from) base = base->parent;
        node.base = base;
        if (base != nullptr) EvictionQueues::hold_for(node, *base);
        if (before != nullptr) EvictionQueues::release_for(node, *before);
    }

    void keep(Node& node, Snapshot&& snapshot) noexcept {
        node.snapshot.emplace(std::move(snapshot));
        ++snapshots_;
        settle(node);
        EvictionQueues::release(node);
        use(node);
        Nodes::for_each_kept_below(node, [this](Node& longer) { weigh(longer); }); // it saves fewer tokens now
    }

    // s has the tokens of the walk. Where it remembers what the tree has offloaded, that comes back in place, without a
    // copy.
    void refresh(Sequence s, const Walk& walk) {
        for (Node* node = nearest_kept(walk.last); node != nullptr; node = node->base) {
            if (!node->is_offloaded) continue;
            auto snapshot = snapshot_keeping_schedule(memory_, s, node->snapshot->from(), Position{node->end});
            if (!snapshot || snapshot->from() != node->snapshot->from()) return;
            *node->snapshot = *std::move(snapshot);
            set_evictable(memory_, *node->snapshot, true);
            move(*node, false);
            ++counters_.reloads;
        }
    }

    // Room for `more` nodes. O(1) amortised.
    void reserve_nodes(std::size_t more) {
        nodes_.reserve(more);
        for (TrivialList<Node*>* const list : {&chain_, &candidates_}) reserve_node_list(*list, nodes_.size() + more);
    }

    Result<void> insert(const Walk& walk, Sequence s, Tokens tokens, std::uint64_t salt) {
        const bool ends_here = walk.verified == tokens.size();
        if (walk.below == nullptr && ends_here) return complete(*walk.last, s);
        if (walk.below == nullptr) return append(walk, s, tokens, salt);
        return ends_here ? cut(walk, s) : fork(walk, s, tokens);
    }

    Result<void> complete(Node& node, Sequence s) {
        if (!node.snapshot) {
            auto snapshot = memory_.snapshot(s, begin_below(node.parent), Position{node.end});
            if (!snapshot) return snapshot.error();
            keep(node, *std::move(snapshot));
        } else {
            use(node);
        }
        return {};
    }

    Result<void> append(const Walk& walk, Sequence s, Tokens tokens, std::uint64_t salt) {
        reserve_nodes(walk.last == nullptr ? 2 : 1);
        auto root = walk.last == nullptr ? nodes_.make({}) : nullptr;
        auto leaf = nodes_.make(tokens.subspan(walk.verified));
        auto snapshot = memory_.snapshot(s, begin_below(walk.last), end_of(tokens));
        if (!snapshot) return snapshot.error();
        Node& parent = root == nullptr ? *walk.last : nodes_.add_root(std::move(root), salt);
        keep(nodes_.add(std::move(leaf), parent), *std::move(snapshot));
        return {};
    }

    // The tokens end within the edge of a node.
    Result<void> cut(const Walk& walk, Sequence s) {
        reserve_nodes(1);
        auto upper = first_part(walk);
        Parts parts = parts_of(walk, s);
        if (!parts.head && !parts.tail) return parts.refusal;
        divide(*walk.below, std::move(upper), std::move(parts));
        return {};
    }

    // The tokens leave the edge of a node. If no snapshot ends there, that of s needs to begin further up.
    Result<void> fork(const Walk& walk, Sequence s, Tokens tokens) {
        reserve_nodes(2);
        auto upper = first_part(walk);
        auto leaf = nodes_.make(tokens.subspan(walk.verified));
        auto first = snapshot_keeping_schedule(memory_, s, end_of(walk), end_of(tokens));
        if (!first) return first.error();
        auto unscheduled = prepare_any(memory_, op::Unschedule{s, end_of(tokens)}); // it takes the place of a schedule
        Parts parts = parts_of(walk, s);
        const auto finish = [&](Snapshot kept) {
            Node& parent = divide(*walk.below, std::move(upper), std::move(parts));
            keep(nodes_.add(std::move(leaf), parent), std::move(kept));
            finish_any<op::Unschedule>(memory_, *std::move(unscheduled));
            return Result<void>{};
        };
        if (parts.head || parts.tail || first->from() != end_of(walk)) return finish(*std::move(first));
        { const Snapshot given_up = *std::move(first); } // its slot, before another one is taken
        auto longer = memory_.snapshot(s, begin_below(walk.last), end_of(tokens));
        if (!longer) return longer.error();
        return finish(*std::move(longer));
    }

    static Position end_of(const Walk& walk) { return Position{static_cast<std::int32_t>(walk.verified)}; }
    static Position end_of(Tokens tokens) { return Position{static_cast<std::int32_t>(tokens.size())}; }

    typename Nodes::Division first_part(const Walk& walk) {
        return nodes_.division(*walk.below, walk.verified - static_cast<std::size_t>(walk.below->begin()));
    }

    /// What the two parts of a divided edge get.
    struct Parts {
        std::optional<Snapshot> head; ///< null if it is what `tail` leaves in the snapshot of the node
        std::optional<Snapshot> tail; ///< null if the snapshot of the node stays whole
        Refusal refusal{};            ///< if there is no head
    };

    // Divides the snapshot of the node at the end of the walk, if the memory does. What s remembers of the first part
    // is needed where the memory does not, and better than what is offloaded.
    Parts parts_of(const Walk& walk, Sequence s) {
        Parts parts;
        const bool is_offloaded = walk.below->is_offloaded;
        if (!is_offloaded && split(walk, parts.tail)) return parts;
        auto head = snapshot_keeping_schedule(memory_, s, begin_below(walk.last), end_of(walk));
        if (head) {
            parts.head.emplace(*std::move(head));
        } else {
            parts.refusal = head.error();
        }
        if (is_offloaded) split(walk, parts.tail);
        return parts;
    }

    // The snapshot of the node keeps what lies before the end of the walk, if it is of use there; `tail` gets the rest.
    bool split(const Walk& walk, std::optional<Snapshot>& tail) {
        if constexpr (requires(Snapshot & snapshot) { memory_.split(snapshot, Position{}); }) {
            std::optional<Snapshot>& snapshot = walk.below->snapshot;
            if (!snapshot || !can_restore(memory_, *snapshot, end_of(walk))) return false;
            auto rest = memory_.split(*snapshot, end_of(walk));
            if (rest) tail.emplace(*std::move(rest));
        }
        return tail.has_value();
    }

    Node& divide(Node& lower, typename Nodes::Division first_part, Parts parts) noexcept {
        Node& upper = nodes_.divide(lower, std::move(first_part));
        const bool is_split = parts.tail.has_value();
        if (is_split) {
            if (!parts.head) {
                parts.head.emplace(*std::move(lower.snapshot));
                place(upper, lower.is_offloaded);
            }
            lower.snapshot.emplace(*std::move(parts.tail));
        }
        if (parts.head) keep(upper, *std::move(parts.head));
        if (is_split) {
            settle(lower);
            weigh(lower); // of fewer bytes
        }
        return upper;
    }

    M& memory_;
    PrefixLimits limits_;
    Nodes nodes_;
    PrefixStatistics counters_;
    std::int64_t snapshots_ = 0;
    std::int64_t offloaded_ = 0;
    Bytes bytes_;
    std::uint64_t clock_ = 0;
    double floor_ = 0;
    const Node* longest_held_ = nullptr; // of those that are being restored
    TrivialList<Node*> chain_;           // scratch memory of restore; has room for all nodes
    TrivialList<Node*> candidates_;      // the same of make_room, the least useful one first
    BatchBuilder next_tokens_;           // of a pass that was asked for by their number
};

} // namespace cellar::detail
