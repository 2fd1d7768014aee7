// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "text_pool.hpp"
#include <cellar/cache/audit.hpp>
#include <cellar/cache/describe.hpp>
#include <cellar/cellar.hpp>
#include <cellar/files/snapshot_file.hpp>
#include <cellar/prefix/audit.hpp>
#include <cellar/serve/tree_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace llama {

/// `Texts` in a `cellar::Hybrid`, with a `cellar::PrefixTree` over it. `Interface` is derived from `Texts`; classes
/// derived from this one compute the layers of its pass.
template <class Memory, class Interface>
class TextsInMemory : public Interface {
public:
    TextsInMemory(Memory memory, const PoolLimits& limits)
        : limits_{limits}, memory_{std::move(memory)}, tree_{memory_, limits.prefixes} {}

    // [pass]
    cellar::Result<void> begin(std::span<const NewTokens> batch) override {
        parts_.clear();
        batch_.clear();
        for (const NewTokens& part : batch) {
            const auto count = static_cast<int>(part.tokens.size());
            parts_.push_back({cellar::Sequence{part.text}, length(part.text), batch_.size(), count});
            batch_.add(cellar::Sequence{part.text}, cellar::Position{length(part.text)}, count);
        }
        auto pass = tree_.begin(batch_);
        if (!pass) return pass.error();
        static_cast<void>(pass_.emplace(*std::move(pass)));
        return {};
    }

    void commit() override {
        pass_->commit();
        pass_.reset();
    }
    void drop() override { pass_.reset(); }
    // [/pass]

    int length(int text) const override { return memory_.next(cellar::Sequence{text}).value; }
    void clear(int text) override {
        expect(memory_.remove(cellar::Sequence{text}, cellar::Position{0}, cellar::to_end), "forget a text");
    }
    cellar::Result<void> remove(int text, int begin, int end) override {
        while (true) { // keys that the tree has are copied before they move, unless it gives them up
            const cellar::Result<void> removed =
                memory_.remove(cellar::Sequence{text}, cellar::Position{begin}, cellar::Position{end});
            if (removed || removed.error() != cellar::Reason::full) return removed;
            if (!tree_.make_room(removed.error()) && !tree_.evict()) return removed;
        }
    }

    int match(std::span<const int> tokens) const override { return tree_.match(tokens).length; }
    int attach(int text, std::span<const int> tokens) override {
        return tree_.attach(cellar::Sequence{text}, tokens).value().length;
    }
    cellar::Result<void> enter(const cellar::serve::Admission& admission) override {
        typename cellar::serve::TreeMemory<Memory>::kept_type kept;
        return cellar::serve::TreeMemory{tree_}.enter(admission, kept);
    }
    void keep(int text, std::span<const int> tokens) override {
        const cellar::Result<void> kept = tree_.insert(cellar::Sequence{text}, tokens);
        if (!kept && kept.error() == cellar::Reason::altered) return; // after a shift, it is for nobody else
        expect(kept, "keep a text");
    }

    void save(const std::string& path, int text, const cellar::SaveOptions& options) override {
        with_room(cellar::Reason::too_many_snapshots,
                  [&] { return cellar::save(path, memory_, cellar::Sequence{text}, options); });
    }

    void load(const std::string& path, int text, const cellar::LoadOptions& options) override {
        with_room(cellar::Reason::full, [&] { return cellar::load(path, memory_, cellar::Sequence{text}, options); });
    }

    const PoolLimits& limits() const override { return limits_; }

    PoolUse use() const override {
        PoolUse use; // of the last member with cells
        for_each_cache([&](const auto& cache, const char* name) {
            if (name != newest) use = use_of(cache);
        });
        return use;
    }
    std::int64_t bytes() const override { return memory_.bytes(); }
    cellar::PrefixStatistics prefixes() const override { return tree_.statistics(); }

    std::string map(bool colour) const override {
        std::string drawn;
        for_each_cache([&](const auto& cache, const char* name) {
            drawn = std::string{name} + " layers: " + describe(cache, colour) + drawn; // full layers first
        });
        return drawn;
    }

    std::string audit() const override {
        std::string found = cellar::audit(tree_);
        for_each_cache([&](const auto& cache, const char*) {
            if (found.empty()) found = cellar::audit(cache);
        });
        return found;
    }

protected:
    /// The tokens of one text in the batch.
    struct Part {
        cellar::Sequence sequence;
        int position; // of the first one
        int row;      // of the first one
        int count;
    };

    const Memory& memory() const { return memory_; }
    Memory& memory() { return memory_; }
    /// The open pass.
    cellar::PassOf<Memory>& pass() { return *pass_; }
    const cellar::PassOf<Memory>& pass() const { return *pass_; }
    /// Of the open pass.
    const std::vector<Part>& parts() const { return parts_; }

private:
    static constexpr const char* newest = "residual of these";

    /// Calls f(cache, name) for the members with cells, those of the full layers last.
    template <class F>
    void for_each_cache(F f) const {
        memory_.for_each_member([&](const auto& member) {
            const auto call = [&](const auto& cache, const char* name) {
                if constexpr (requires { cache.window(); }) f(cache, name);
            };
            if constexpr (requires { member.for_each_member([](const auto&) {}); }) { // with residual
                call(member.template member<1>(), newest);
                call(member.template member<0>(), name_of(member.template member<0>()));
            } else {
                call(member, name_of(member));
            }
        });
    }

    template <class Cache>
    static const char* name_of(const Cache& cache) {
        if constexpr (requires { cache.window(); }) {
            using Window = std::remove_cvref_t<decltype(cache.window())>;
            return std::is_same_v<Window, cellar::FullCausal> ? "full" : "sliding";
        } else {
            return "";
        }
    }

    template <class Cache>
    static PoolUse use_of(const Cache& cache) {
        const int kept = cache.evictable_cells();
        return {.cells = cache.cells(), .live = cache.cells() - cache.free_cells() - kept, .kept = kept};
    }

    /// Repeats an operation with a file as long as the tree can make room for it.
    template <class Operation>
    void with_room(cellar::Reason refusal, Operation operation) {
        cellar::FileResult<void> done = operation();
        while (!done && done.error() == refusal && tree_.evict()) done = operation();
        if (!done) throw std::runtime_error{to_string(done.error())};
    }

    static void expect(const cellar::Result<void>& result, const std::string& what) {
        if (!result) throw std::runtime_error{"the memory refused to " + what + ": " + to_string(result.error())};
    }

    PoolLimits limits_;
    Memory memory_;
    cellar::PrefixTree<Memory> tree_;
    std::optional<cellar::PassOf<Memory>> pass_; // after memory_, because it must not outlive it
    cellar::BatchBuilder batch_;
    std::vector<Part> parts_;
};

} // namespace llama
