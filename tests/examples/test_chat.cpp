// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// `chat`, driven by scripts.
#include "child.hpp"
#include "commands.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>

namespace test_chat {

namespace {

/// Runs `chat` with these lines as its input.
Outcome chat(const Scratch& folder, const std::string& lines, const std::string& flags = "") {
    std::ofstream{folder.path("lines")} << lines;
    return run(CELLAR_CHAT " --folder " + folder.path("") + " " + flags + " <" + folder.path("lines"));
}

/// The output of a run without errors.
std::string said(const Scratch& folder, const std::string& lines, const std::string& flags = "") {
    const Outcome o = chat(folder, lines, flags);
    CAPTURE(lines);
    CHECK(o.code == 0);
    CHECK(o.error.empty());
    return o.out;
}

std::string of_model(const std::string& file) {
    return "--tokens 60 --model " + file;
}

/// Without the first line.
std::string rest(const std::string& text) {
    return text.substr(text.find('\n') + 1);
}

bool has(const std::string& text, const std::string& words) {
    const bool found = text.find(words) != std::string::npos;
    if (!found) MESSAGE("expected '" << words << "' in: " << text);
    return found;
}

bool has_ended(const std::string& output) {
    return output.find("[stopped]") != std::string::npos;
}

} // namespace

TEST_CASE("chat: wrong flags and lines are refused, and the conversation goes on") {
    const Scratch scratch;
    check_refused(run(CELLAR_CHAT " --context 300"), 1, "--context is 300, expected 16 to 256");
    check_refused(run(CELLAR_CHAT " --conversations 0"), 2, "--conversations");
    check_refused(run(CELLAR_CHAT " --model /no/such/model"), 1, "/no/such/model: cannot be opened");
    const std::string lines = "/sing\n/fork\n/undo now\n/save\n/undo\n/retry\n/load a/b\n/load none\n/open main\n"
                              "/fork main\n/fork b\n/fork c\n/close\n/close\n/list\n/quit\n/not read\n";
    const Outcome o = chat(scratch, lines, "--conversations 2");
    CHECK(o.code == 0);
    CHECK(o.out == "* main: 0 turns, 0 tokens\n");
    for (const char* words :
         {"'/sing' is no command, expected one that /help lists", "/fork: no name was given, expected /fork NAME",
          "/undo: 'now' was given, expected nothing after /undo", "'main' has no turns, expected at least one",
          "the name is 'a/b', expected 1 to 60 letters, digits, '-' or '_'", "none.chat: cannot be opened",
          "'main' exists, expected another name", "there are 2 conversations, expected fewer",
          "this is the only conversation, expected another one to go to"}) {
        CHECK(has(o.error, words));
    }
    CHECK(o.error.find("not read") == std::string::npos);
}

TEST_CASE("chat: a saved conversation goes on exactly as it would have") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        const Scratch scratch;
        const std::string lines = "Good morrow.\nWhat news?\n";
        const std::string more = "And then?\nWho told you so?\n";
        const std::string first = said(scratch, lines, of_model(file));
        const std::string all = said(scratch, lines + more, of_model(file));
        REQUIRE(all.starts_with(first));
        said(scratch, lines + "/save one\n", of_model(file));
        CHECK(rest(said(scratch, "/load one\n" + more, of_model(file))) == all.substr(first.size()));
        // Nothing was computed again, and nothing was attached.
        CHECK(has(said(scratch, "/load one\n/stats\n", of_model(file)), "\ntokens: 0 computed, 0 attached\n"));
        // The replies are different ones if they are asked for.
        const std::string again = said(scratch, lines + "/retry\n/text\n", of_model(file));
        CHECK(rest(said(scratch, "/load one\n/retry\n/text\n", of_model(file))) == again.substr(first.size()));
    }
}

TEST_CASE("chat: conversations longer than the context are saved as well") {
    const Scratch scratch;
    const std::string flags = "--context 64 --tokens 50";
    const std::string all = said(scratch, "a\nb\nc\nd\ne\n/undo\ne\n", flags);
    said(scratch, "a\nb\nc\n/save s\n", flags);
    const std::string rest_of_all = rest(said(scratch, "/load s\nd\ne\n/undo\ne\n", flags));
    CHECK(all.ends_with(rest_of_all));
    CHECK(rest_of_all.size() > 100);
}

TEST_CASE("chat: what was computed before is not computed again") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        const Scratch scratch;
        const auto computed = [&](const std::string& lines) {
            const std::string out = said(scratch, lines + "/stats\n", of_model(file));
            return std::stoi(out.substr(out.rfind("\ntokens: ") + 9));
        };
        const int two = computed("Hello.\nSpeak.\n");
        CHECK(computed("Hello.\nSpeak.\n/undo\n") == two);
        CHECK(computed("Hello.\nSpeak.\n/undo\n/undo\n") == two);
        CHECK(computed("Hello.\nSpeak.\n/fork b\n/open main\n/open b\n") == two);
        CHECK(computed("Hello.\nSpeak.\n/fork b\n/close\n") == two);
        // A reply that was taken back costs itself alone, even the same one again, but for its last token.
        CHECK(computed("Hello.\nSpeak.\n/undo\nSpeak.\n") <= two + 61);
        CHECK(computed("Hello.\nSpeak.\n/retry\n") <= two + 61);
    }
}

TEST_CASE("chat: an opening is computed once") {
    const Scratch scratch;
    const std::string opening = "--opening 'ESCALUS:\nRebellious subjects, enemies to peace!\n\n'";
    const std::string out = said(scratch, "/stats\n/open b\n/open c\n/stats\nHello.\n/text\n", opening);
    CHECK(has(out, "main: 0 turns, 49 tokens, the model sees 49\ntokens: 48 computed, 0 attached\n"));
    CHECK(has(out, "c: 0 turns, 49 tokens, the model sees 49\ntokens: 48 computed, 96 attached\n"));
    CHECK(has(out, "\nESCALUS:\nRebellious subjects, enemies to peace!\n\nROMEO:\nHello.\n\nJULIET:\n"));
}

TEST_CASE("chat: undo, retry and fork change the conversation as they say") {
    const Scratch scratch;
    const std::string flags = "--tokens 40";
    const std::string text = said(scratch, "Hello.\n/text\n", flags);
    const std::string two = said(scratch, "Hello.\nSpeak.\n/undo\n/text\n", flags);
    CHECK(two.ends_with(text.substr(text.find("ROMEO:"))));
    CHECK(said(scratch, "Hello.\n", flags) != said(scratch, "Hello.\n", flags + " --seed 2"));
    const std::string list = said(scratch, "Hello.\n/fork b\nSpeak.\n/open main\n/retry\n/retry\n/list\n", flags);
    CHECK(has(list, "* main: 1 turns, "));
    CHECK(has(list, "  b: 2 turns, "));
}

TEST_CASE("chat: the map has a colour for each conversation") {
    const Scratch scratch;
    const std::string lines = "Hello.\n/open b\nSpeak.\n/undo\nSpeak up.\n/map\n";
    const std::string plain = said(scratch, lines, "--tokens 20");
    CHECK(plain.find('\033') == std::string::npos);
    CHECK(has(plain, "sequence 0 is main\nsequence 1 is b\n"));
    CHECK(has(plain, "+"));
    const std::string coloured = said(scratch, lines, "--tokens 20 --color always");
    CHECK(has(coloured, "\033[31m0\033[0m"));
    CHECK(has(coloured, "\033[32m1\033[0m"));
}

TEST_CASE("chat: Ctrl-C stops the reply, not the program") {
    Child child{CELLAR_CHAT " --stop '' --tokens 10000000"};
    child.write("Tell me everything.\n");
    REQUIRE(child.read(20).size() >= 20);
    child.signal(SIGINT);
    child.write("/stats\n/undo\n/list\n/quit\n");
    const std::string out = child.read(std::numeric_limits<std::size_t>::max());
    const int status = child.finish();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(has(out, "\n[stopped]\nmain: 1 turns, "));
    CHECK(out.ends_with("* main: 0 turns, 0 tokens\n"));
}

TEST_CASE("chat: a second Ctrl-C ends the program") {
    Child child{CELLAR_CHAT " --stop '' --tokens 10000000"};
    child.write("Tell me everything.\n");
    REQUIRE(child.read(20).size() >= 20);
    child.signal(SIGINT);
    for (std::size_t size = 0; !has_ended(child.read(size)); ++size) REQUIRE(child.read(size).size() >= size);
    child.signal(SIGINT);
    const int status = child.finish();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("chat: a program that is killed while it saves leaves a file that can be loaded") {
    const Scratch scratch;
    std::string saves;
    for (int i = 0; i < 2000; ++i) saves += "/save a\n";
    for (unsigned delay = 0; delay < 30'000; delay += 3'000) {
        Child child{CELLAR_CHAT " --tokens 30 --folder " + scratch.path("")};
        child.write("Hello.\n/save a\n");
        child.read(40);
        child.write(saves);
        ::usleep(delay);
        child.signal(SIGKILL);
        CHECK(WIFSIGNALED(child.finish()));
        CHECK(has(said(scratch, "/load a\n/list\n"), "* a: 1 turns, "));
    }
}

} // namespace test_chat
