// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversation.hpp"

#include <list>
#include <string>
#include <vector>

namespace chat {

/// The conversations and their numbers in the pool. One is the current one.
class Conversations {
public:
    /// At most `count` at a time.
    explicit Conversations(int count);

    Conversation& current() { return *current_; }
    const std::list<Conversation>& all() const { return all_; }

    /// Null if there is none of that name.
    Conversation* find(const std::string& name);

    /// Adds one, which becomes the current one. Throws if the name is taken or unusable, or if there are too many.
    Conversation& add(const std::string& name);

    void go_to(Conversation& conversation) { current_ = &conversation; }

    /// The current one ends, and the first of the others becomes the current one. Throws if it is the only one.
    void remove_current();

private:
    std::list<Conversation> all_;
    Conversation* current_ = nullptr;
    std::vector<int> free_; // numbers in the pool, the next one last
};

/// Throws if it is not a name of letters, digits, '-' and '_'.
void check_name(const std::string& name);

} // namespace chat
