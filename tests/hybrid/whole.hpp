// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_states.hpp"
#include "../property/setting.hpp"
#include "../property/trace.hpp"
#include "member.hpp"
#include <cellar/base/offload_to.hpp>
#include <cellar/base/result.hpp>
#include <cellar/hybrid/pattern.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace property::hybrid {

using HybridAnswer = std::optional<cellar::Refusal>;

/// The suite's interface to a hybrid with any members. The comparison is compiled once.
class Whole {
public:
    virtual ~Whole() = default;

    virtual std::vector<std::unique_ptr<Member>> members() = 0;

    // One open pass at a time.
    virtual HybridAnswer begin(const Batch& batch) = 0;
    virtual void reserve(int tokens) = 0;
    virtual int layers() const = 0;
    virtual cellar::LayerPlace visit(int layer) = 0; ///< the member whose pass was visited, and the layer there
    virtual void commit() = 0;
    virtual void drop() = 0;

    virtual HybridAnswer remove(int s, int begin, int end) = 0;
    virtual HybridAnswer copy_prefix(int from, int to, int length) = 0;
    virtual HybridAnswer snapshot(int s, int from, int to) = 0; ///< adds one, if not refused
    virtual HybridAnswer restore(int s, std::size_t snapshot, int to) = 0;
    virtual HybridAnswer rewind(int s, int to) = 0;
    virtual HybridAnswer reload(std::size_t snapshot) = 0;
    virtual HybridAnswer schedule(int s, int p) = 0;
    virtual void unschedule(int s, int p) = 0;
    virtual HybridAnswer merge(std::size_t parent, std::size_t child) = 0; ///< the child goes, if not refused
    virtual HybridAnswer split(std::size_t snapshot, int at) = 0;          ///< adds one, if not refused
    virtual void offload(std::size_t snapshot, cellar::OffloadTo to) = 0;
    virtual void release(std::size_t snapshot) = 0;
    virtual bool can_resume(int s, int p) const = 0;
    virtual int next(int s) const = 0;
    virtual int resumable_prefix(int s, int p) const = 0;
    virtual void defragment() = 0;
};

/// A kind of member, as far as its setting depends on it.
struct Kind {
    enum class Of { attention, inputs, states };

    Of of;
    naive::WindowKind window = naive::WindowKind::full;
    int window_size = 0; ///< if the type fixes it, else 0
    bool can_shift = false;
};

/// The parameters of a member: `cells` for one with cells, `states` for a recurrent one.
struct MemberSetting {
    Setting cells{};
    naive::StateSetup states{};
};

struct Combination {
    std::string name;
    std::vector<Kind> kinds;
    std::function<std::unique_ptr<Whole>(const std::vector<MemberSetting>&, const Trace&)> make;
};

/// True if hybrids of these members agree with the members' naive models after every step of random series. If not,
/// prints the smallest failing series found to stderr. See `property::agrees_with_model`.
bool agrees_with_model(const Combination& combination);

} // namespace property::hybrid
