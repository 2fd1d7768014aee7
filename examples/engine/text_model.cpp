// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "text_model.hpp"

#include <stdexcept>
#include <utility>

namespace engine {

ChatTemplate::ChatTemplate(const Vocabulary& vocabulary, std::string system)
    : vocabulary_{vocabulary}, system_{std::move(system)} {
    static_cast<void>(form(std::vector<Message>{{"user", "a"}}));
}

void ChatTemplate::say(std::vector<int>& tokens, const std::string& line) const {
    if (tokens.empty()) {
        std::vector<Message> messages{{"user", line}};
        if (!system_.empty()) messages.insert(messages.begin(), {"system", system_});
        tokens = vocabulary_.tokens(form(messages), true, true);
        return;
    }
    // What follows a reply, whatever the turns before were.
    const std::vector<Message> before{{"user", "a"}};
    const std::vector<Message> messages{{"user", "a"}, {"assistant", "b"}, {"user", line}};
    const std::string rest = form(messages).substr(form(before).size() + 1);
    std::vector<int> next = vocabulary_.tokens(rest, false, true);
    const bool has_end = !next.empty() && next.front() == tokens.back() && vocabulary_.ends(tokens.back());
    tokens.insert(tokens.end(), next.begin() + (has_end ? 1 : 0), next.end());
}

std::string ChatTemplate::form(std::span<const Message> messages) const {
    const auto text = vocabulary_.chat(messages);
    if (!text) throw std::runtime_error{"the file has no chat template that libllama knows, expected one"};
    return *text;
}

} // namespace engine
