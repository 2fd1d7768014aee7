// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// Replies, without the program.
#include "chat/characters.hpp"
#include "chat/manner.hpp"
#include "chat/speaker.hpp"
#include "commands.hpp"
#include "generate/huggingface.hpp"
#include "generate/safetensors.hpp"
#include "pool/text_model.hpp"
#include "pool/text_pool.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace test_speaker {

namespace {

class Chat {
public:
    explicit Chat(int cells)
        : pool_{llama::make_pool(llama_.config(), {.texts = 2, .context = 64, .cells = cells}, "float")} {}

    std::string say(chat::Conversation& c) {
        std::string written;
        speaker_.say(c, "Hello.", {[&](const std::string& text) { written += text; }, [] { return false; }});
        return written;
    }
    void forget(const chat::Conversation& c) { pool_->clear(c.text); }
    int length(const chat::Conversation& c) const { return pool_->length(c.text); }

private:
    llama::Llama llama_{llama::read_weights(llama::Safetensors::read(plain_model)), llama::Products::row_by_row};
    std::unique_ptr<llama::TextPool> pool_;
    llama::ByteModel model_{llama_, *pool_};
    chat::Play manner_{"ROMEO", "JULIET", ""};
    chat::Speaker speaker_{model_, *pool_, manner_, {.tokens = 30, .temperature = 0}};
};

} // namespace

TEST_CASE("chat: a line that the memory has no room for leaves the conversation as it was") {
    chat::Conversation first{.name = "a", .text = 0};
    chat::Conversation second{.name = "b", .text = 1};
    Chat small{90};
    const std::string reply = small.say(first);
    CHECK(reply.size() == 30);
    small.say(second);
    const auto tokens = second.tokens;
    CHECK_THROWS_WITH_AS(small.say(second), doctest::Contains("; /close another conversation"), std::runtime_error);
    CHECK(second.tokens == tokens);
    CHECK(second.turns.size() == 1);
    CHECK(second.begin == 0);
    CHECK(small.length(second) == static_cast<int>(tokens.size()) - 1);
    small.forget(first);
    const std::string next = small.say(second);
    Chat with_room{128};
    chat::Conversation same{.name = "c", .text = 0};
    with_room.say(same);
    CHECK(with_room.say(same) == next);
}

TEST_CASE("chat: characters of several tokens are shown when they are whole") {
    chat::WholeCharacters characters;
    CHECK(characters.add("a") == "a");
    CHECK(characters.add("") == "");
    CHECK(characters.add("b\xc3") == "b"); // two bytes
    CHECK(characters.add("\xa4") == "\xc3\xa4");
    CHECK(characters.add("\xe2") == ""); // three
    CHECK(characters.add("\x82") == "");
    CHECK(characters.add("\xac!") == "\xe2\x82\xac!");
    CHECK(characters.add("\xf0\x9f\xa6") == ""); // four
    CHECK(characters.add("\x8a\xf0\x9f") == "\xf0\x9f\xa6\x8a");
    CHECK(characters.add("\xa6\x8a") == "\xf0\x9f\xa6\x8a");
    // What is no UTF-8 passes.
    CHECK(characters.add("\x80\x80\x80\x80") == "\x80\x80\x80\x80");
    CHECK(characters.add("\xff") == "");
    CHECK(characters.add("a")
          == "\xff"
             "a");
}

} // namespace test_speaker
