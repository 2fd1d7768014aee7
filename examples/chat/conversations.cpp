// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "conversations.hpp"

#include "generate/file.hpp"

#include <algorithm>
#include <stdexcept>

namespace chat {

Conversations::Conversations(int count) {
    for (int text = count; text > 0; --text) free_.push_back(text - 1);
}

Conversation* Conversations::find(const std::string& name) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const Conversation& c) { return c.name == name; });
    return found == all_.end() ? nullptr : &*found;
}

Conversation& Conversations::add(const std::string& name) {
    check_name(name);
    if (find(name) != nullptr) throw std::runtime_error{"'" + name + "' exists, expected another name"};
    if (free_.empty()) {
        throw std::runtime_error{"there are " + std::to_string(all_.size())
                                 + " conversations, expected fewer: /close one, or set --conversations"};
    }
    current_ = &all_.emplace_back(Conversation{.name = name, .text = free_.back()});
    free_.pop_back();
    return *current_;
}

void Conversations::remove_current() {
    if (all_.size() == 1) throw std::runtime_error{"this is the only conversation, expected another one to go to"};
    free_.push_back(current_->text);
    all_.remove_if([&](const Conversation& c) { return &c == current_; });
    current_ = &all_.front();
}

void check_name(const std::string& name) {
    constexpr std::size_t longest = 60;
    const auto usable = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    };
    if (name.empty() || name.size() > longest || !std::all_of(name.begin(), name.end(), usable)) {
        throw std::runtime_error{"the name is " + llama::in_quotes(name)
                                 + ", expected 1 to 60 letters, digits, '-' or '_'"};
    }
}

} // namespace chat
