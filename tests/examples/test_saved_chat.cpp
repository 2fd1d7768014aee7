// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The files of `chat`.
#include "chat/saved.hpp"
#include "commands.hpp"
#include "generate/huggingface.hpp"
#include "generate/safetensors.hpp"
#include <cellar/files/file_writer.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace test_saved_chat {

namespace {

/// A conversation whose memory a pool has.
struct Fixture {
    llama::Llama llama{llama::read_weights(llama::Safetensors::read(hybrid_model)), llama::Products::row_by_row};
    std::unique_ptr<llama::TextPool> pool =
        llama::make_pool(llama.config(), {.texts = 2, .context = 64, .snapshots = 4}, "float");
    chat::Conversation conversation{.name = "a"};

    Fixture() { grow(20); }

    void grow(int tokens) {
        const auto before = static_cast<std::size_t>(pool->length(0));
        const auto first = static_cast<int>(conversation.tokens.size());
        for (int i = 0; i < tokens; ++i) conversation.tokens.push_back('a' + i);
        conversation.turns.push_back({.first = first, .prompt_end = first + tokens});
        const llama::NewTokens batch{0, conversation.remembered().subspan(before)};
        cellar::Refusal refusal;
        REQUIRE(run(llama, *pool, {&batch, 1}, refusal) != nullptr);
    }
};

std::string refusal_of(const std::string& path, const std::string& label, Fixture& f) {
    chat::Conversation into{.name = "b", .text = 1};
    try {
        chat::load(path, label, into, *f.pool);
    } catch (const std::runtime_error& error) {
        CHECK(into.tokens.empty());
        CHECK(f.pool->length(1) == 0);
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("saved chat: a crash in the middle leaves the old file whole, its tokens and its memory") {
    const Scratch scratch;
    const std::string path = scratch.path("a.chat");
    Fixture f;
    chat::save(path, "m", f.conversation, *f.pool);
    const std::string old = content(path);
    f.grow(30);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        chat::save(path, "m", f.conversation, *f.pool, [](auto, auto) { ::raise(SIGKILL); });
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    CHECK(std::distance(std::filesystem::directory_iterator{scratch.path("")}, {}) == 2); // the new one, unfinished
    CHECK(content(path) == old);
    chat::Conversation loaded{.text = 1};
    chat::load(path, "m", loaded, *f.pool);
    CHECK(loaded.tokens.size() == 20);
    CHECK(f.pool->length(1) == 19);
    chat::save(path, "m", f.conversation, *f.pool);
    chat::load(path, "m", loaded, *f.pool);
    CHECK(loaded.tokens == f.conversation.tokens);
    CHECK(loaded.turns.size() == 2);
    CHECK(f.pool->length(1) == 49);
    CHECK(f.pool->audit().empty());
}

TEST_CASE("saved chat: a file that does not suit is refused") {
    const Scratch scratch;
    Fixture f;
    const std::string path = scratch.path("a.chat");
    chat::save(path, "m", f.conversation, *f.pool);
    CHECK(refusal_of(path, "n", f) == path + ": its model is 'm', expected 'n'");
    std::string altered = content(path);
    altered[altered.size() - 9] ^= 1;
    const std::string damaged = scratch.path("damaged.chat");
    std::ofstream{damaged, std::ios::binary} << altered;
    CHECK(refusal_of(damaged, "m", f).find("damaged.chat: the data was altered") != std::string::npos);
    const std::string other = scratch.path("other.chat");
    f.pool->save(other, 0, {.model = "m"});
    CHECK(refusal_of(other, "m", f) == other + ": a file of something else, expected a conversation");
    for (const char* const note : {"words", "7", R"({"begin": 0, "turns": [[1, 2]], "tokens": []})",
                                   R"({"begin": 0, "turns": [], "tokens": [1, 2, 3]})"}) {
        f.pool->save(other, 0, {.model = "m", .notes = {{"chat", note}}});
        CHECK(refusal_of(other, "m", f) == other + ": a conversation that contradicts itself");
    }
    chat::Conversation empty{.name = "e", .text = 1};
    CHECK_THROWS_WITH(chat::save(path, "m", empty, *f.pool), "'e' has no turns, expected at least one");
}

} // namespace test_saved_chat
