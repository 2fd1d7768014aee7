// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "../naive/naive_states.hpp"
#include "../property/setting.hpp"
#include "../property/trace.hpp"
#include "member.hpp"
#include <cellar/base/result.hpp>
#include <cellar/hybrid/pattern.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace property::hybrid {

using HybridAnswer = std::optional<cellar::Refusal>;

/// What the suite asks of a hybrid, whatever its members are, so that the comparison is compiled once.
class Whole {
public:
    virtual ~Whole() = default;

    virtual std::vector<std::unique_ptr<Member>> members() = 0;

    // One open pass at a time.
    virtual HybridAnswer begin(const Batch& batch) = 0;
    virtual void reserve(int tokens) = 0;
    virtual int layers() const = 0;
    virtual cellar::LayerPlace visit(int layer) = 0; ///< which member's pass, and which of its layers, came
    virtual void commit() = 0;
    virtual void drop() = 0;

    virtual HybridAnswer remove(int s, int begin, int end) = 0;
    virtual HybridAnswer copy_prefix(int from, int to, int length) = 0;
    virtual bool can_resume(int s, int p) const = 0;
    virtual int resumable_prefix(int s, int p) const = 0;
    virtual void defragment() = 0;
};

/// What is known of a member when its setting is drawn.
struct Kind {
    enum class Of { attention, inputs, states };

    Of of;
    naive::WindowKind window = naive::WindowKind::full;
    int window_size = 0; ///< where the type fixes it, else 0
    bool can_shift = false;
};

/// What is decided about it: of one with cells, or of a recurrent one.
struct MemberSetting {
    Setting cells{};
    naive::StateSetup states{};
};

struct Combination {
    std::string name;
    std::vector<Kind> kinds;
    std::function<std::unique_ptr<Whole>(const std::vector<MemberSetting>&, const Trace&)> make;
};

/// True if hybrids of these members agree with the naive models of these, all of them, after every step of random
/// series; otherwise the smallest series found goes to stderr. See `property::agrees_with_model`.
bool agrees_with_model(const Combination& combination);

} // namespace property::hybrid
