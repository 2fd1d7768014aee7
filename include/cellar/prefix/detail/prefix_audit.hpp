// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/prefix/detail/prefix_nodes.hpp>
#include <cellar/prefix/detail/prefix_state.hpp>
#include <cellar/prefix/prefix_pin.hpp>

#include <cstdint>
#include <map>
#include <string>

namespace cellar::detail {

/// Recounts a prefix tree. `first` is the first contradiction, or empty.
template <class M>
class PrefixAudit {
    using State = PrefixState<M>;
    using Node = typename State::Node;

public:
    explicit PrefixAudit(const State& state) : state_{state}, nodes_{state.nodes()} {
        nodes_.for_each([&](const Node& node) {
            if (node.base != nullptr) ++(node.is_offloaded ? offloaded_dependents_ : dependents_)[node.base];
        });
        nodes_.for_each([&](const Node& node) { check(node); });
        expect(tokens_ == nodes_.tokens(), tokens_, "tokens, counted", nodes_.tokens());
        expect(roots_ == nodes_.roots(), roots_, "roots, counted", nodes_.roots());
        expect(snapshots_ == state_.snapshots(), snapshots_, "snapshots, counted", state_.snapshots());
        expect(offloaded_ == state_.offloaded(), offloaded_, "snapshots offloaded, counted", state_.offloaded());
        expect(in_place_bytes_ == state_.bytes().in_place, in_place_bytes_, "bytes in place, counted",
               state_.bytes().in_place);
        expect(offloaded_bytes_ == state_.bytes().offloaded, offloaded_bytes_, "bytes offloaded, counted",
               state_.bytes().offloaded);
        check_queue(nodes_.queues().in_place, queued_);
        check_queue(nodes_.queues().needed, needed_queued_);
        check_queue(nodes_.queues().offloaded, offloaded_queued_);
    }

    const std::string& first() const { return first_; }

private:
    void check_queue(const EvictionQueue& queue, std::int64_t expected) {
        const auto queued = static_cast<std::int64_t>(queue.size());
        expect(expected == queued, expected, "nodes to evict, queued", queued);
        expect(queue.is_ordered(), queued, "nodes to evict, out of order from", 0);
    }

    void check(const Node& node) {
        check_place(node);
        if (node.snapshot) {
            ++snapshots_;
            check_snapshot(node);
            check_bytes(node);
        } else {
            expect(!node.is_offloaded, node.end, "is the end of a node that is offloaded, without snapshot", 0);
            expect(node.first_child != nullptr, node.end, "is the end of a node with neither snapshot nor child", 0);
            expect(node.base == nullptr, node.end, "is the end of a node without snapshot, with a base", 0);
        }
        const std::int64_t holds = PrefixPin::count(node) + dependents_[&node] + (node.snapshot ? 0 : 1);
        const std::int64_t offloaded = offloaded_dependents_[&node];
        expect(node.holds == holds, node.holds, "holds, expected", holds);
        expect(node.offloaded_dependents == offloaded, node.offloaded_dependents,
               "dependents that are offloaded, expected", offloaded);
        const bool is_free = holds == 0 && (!node.is_offloaded || offloaded == 0);
        const EvictionQueues& queues = nodes_.queues();
        const EvictionQueue& queue = node.is_offloaded ? queues.offloaded
                                     : offloaded > 0   ? queues.needed
                                                       : queues.in_place;
        expect(queue.contains(node) == is_free, holds, "holds of a node whose place in the queue is",
               static_cast<std::int64_t>(node.place));
        (node.is_offloaded ? offloaded_queued_ : offloaded > 0 ? needed_queued_ : queued_) += is_free ? 1 : 0;
    }

    void check_place(const Node& node) {
        const auto size = static_cast<std::int64_t>(node.tokens.size());
        tokens_ += size;
        if (node.parent == nullptr) {
            ++roots_;
            expect(size == 0 && node.end == 0, size, "tokens in a root that ends at", node.end);
        } else {
            expect(size > 0, size, "tokens in a node that ends at", node.end);
            expect(node.begin() == node.parent->end, node.begin(), "begins a node, whose parent ends at",
                   node.parent->end);
        }
        expect(nodes_.child(node.parent, node.key()) == &node, node.end, "is the end of a node that is not found", 0);
        std::int64_t seen = 0;
        for (const Node* child = node.parent == nullptr ? &node : node.parent->first_child; child != nullptr;
             child = child->next)
            seen += child == &node ? 1 : 0;
        expect(seen == 1, seen, "times in the list of a parent, a node that ends at", node.end);
    }

    void check_snapshot(const Node& node) {
        expect(node.snapshot->to().value == node.end, node.snapshot->to().value, "ends the snapshot of a node to",
               node.end);
        const std::int64_t from = node.snapshot->from().value;
        if (node.base == nullptr)
            return expect(from == 0, from, "begins a snapshot without base that ends at", node.end);
        const Node* above = node.parent;
        while (above != nullptr && above != node.base) above = above->parent;
        expect(above != nullptr && above->snapshot, node.end, "is the end of a node whose base is none above it", 0);
        expect(node.base->end == from, from, "begins a snapshot whose base ends at", node.base->end);
    }

    void check_bytes(const Node& node) {
        const std::int64_t bytes = occupied_bytes(state_.memory(), *node.snapshot);
        expect(node.bytes == bytes, node.bytes, "bytes of a snapshot, expected", bytes);
        if (node.is_offloaded) ++offloaded_;
        (node.is_offloaded ? offloaded_bytes_ : in_place_bytes_) += bytes;
        if constexpr (requires { node.snapshot->is_offloaded(); })
            expect(node.snapshot->is_offloaded() == node.is_offloaded, node.end,
                   "is the end of a node whose snapshot is elsewhere than it says:", node.is_offloaded);
    }

    void expect(bool holds, std::int64_t a, const char* text, std::int64_t b) {
        if (!holds && first_.empty()) first_ = std::to_string(a) + ' ' + text + ' ' + std::to_string(b);
    }

    const State& state_;
    const typename State::Nodes& nodes_;
    std::map<const Node*, std::int64_t> dependents_; ///< in place
    std::map<const Node*, std::int64_t> offloaded_dependents_;
    std::int64_t tokens_ = 0;
    std::int64_t roots_ = 0;
    std::int64_t snapshots_ = 0;
    std::int64_t offloaded_ = 0;
    std::int64_t in_place_bytes_ = 0;
    std::int64_t offloaded_bytes_ = 0;
    std::int64_t queued_ = 0;
    std::int64_t needed_queued_ = 0;
    std::int64_t offloaded_queued_ = 0;
    std::string first_;
};

} // namespace cellar::detail
