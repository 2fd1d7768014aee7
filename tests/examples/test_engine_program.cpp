// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program, with the real model of scripts/engine if it is there.
#include "child.hpp"
#include "commands.hpp"
#include "engine/memory.hpp"
#include "engine/model.hpp"
#include "paths.hpp"
#include "random_gguf.hpp"
#include "skip.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>

namespace test_engine_program {

namespace {

const std::string real = cellar_test::source_dir() + "/.models/SmolLM2-135M-Instruct.Q4_1.gguf";
const std::string program = std::string{CELLAR_ENGINE} + " --threads 2 --model ";

} // namespace

TEST_CASE("engine: wrong arguments, and files that are no models, end the program with a sentence") {
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    write_gguf(path, random_model("llama"));
    check_refused(run(std::string{CELLAR_ENGINE} + " complete"), 2, "--model");
    check_refused(run(program + path), 2, "subcommand");
    check_refused(run(program + path + " complete"), 2, "--prompt or --file");
    check_refused(run(program + path + " complete -p a -f b"), 2, "--prompt excludes --file");
    check_refused(run(program + path + " complete -f /no/such/text"), 1, "/no/such/text: cannot be opened");
    check_refused(run(program + path + " complete -f " + folder.path("")), 1, "cannot be");
    check_refused(run(program + "/no/such/model complete --prompt a"), 1, "/no/such/model: cannot be opened");
    check_refused(run(program + path + " --ctx-size 8 complete --prompt a"), 1, "--ctx-size is 8, expected 16 to 4096");
    check_refused(run(program + path + " --bytes 1000 complete --prompt a"), 1, "1000 bytes are too few");
    check_refused(run(program + path + " -c 5000 complete --prompt a"), 1, "--ctx-size is 5000, expected 16 to 4096");
    check_refused(run(program + path + " --cache-type-v q4_0 complete -p a"), 1,
                  "--cache-type-v is q4_0 with keys of f16");
    check_refused(run(program + path + " --cache-type-k q5_1 complete -p a"), 2, "--cache-type-k");
    check_refused(run(program + path + " -ctk q5_1 complete -p a"), 2, "--cache-type-k");
    check_refused(run(program + path + " -ctv q4_0 complete -p a"), 1, "--cache-type-v is q4_0 with keys of f16");
    check_refused(run(program + path + " --residual-length 32 complete -p a"), 1,
                  "the format of keys and values with a residual is 'half', expected one of");
    check_refused(run(program + path + " -ctk iq4_nl --residual-length 32 complete -p a"), 1,
                  "the format 'iq4_nl' takes heads of a multiple of 64 values, but they have 32");
    check_refused(run(program + path + " -c 64 -ctk iq4_nl --residual-length 17 complete -p a"), 1,
                  "--residual-length is 17, expected at most 16, a quarter of the context of 64 tokens");
    check_refused(run(program + path + " -ctk iq4_nl compare"), 1, "compare: --cache-type-k is iq4_nl");
    check_refused(run(program + path + " -ctk iq4_nl --residual-length 8 compare"), 1,
                  "compare: --residual-length is 8, expected 0");
    check_refused(run(program + path + " -md /no/such/model complete -p a"), 1, "/no/such/model: cannot be opened");
    check_refused(run(program + path + " complete -p a -ngl 99"), 2, "-ngl is read as -n gl");
    check_refused(run(program + path + " complete -p a -sys b"), 2, "--system-prompt requires --answer");
    check_refused(run(program + path + " --draft-max 3 complete -p a"), 2, "--draft-max requires --model-draft");
    check_refused(run(program + path + " chat </dev/null"), 1, "no chat template");
    check_refused(run(program + path + " --model-draft /no/such/model complete --prompt a"), 1,
                  "/no/such/model: cannot be opened");
}

TEST_CASE("engine: a model with its weights as floats is one like any other") {
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    const std::string wide = folder.path("wide.gguf");
    write_gguf(path, random_model("llama"));
    const Outcome o = run(program + path + " widen -o " + wide);
    CHECK_MESSAGE(o.code == 0, o.error);
    check_refused(run(program + wide + " -c 5000 complete --prompt a"), 1, "--ctx-size is 5000, expected 16 to 4096");
    check_refused(run(program + path + " widen -o /no/such/folder/f"), 1, "/no/such/folder/f: cannot be written");
}

TEST_CASE("engine: the real model chats, and a saved conversation goes on in a new process") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Scratch folder;
    const auto chat = [&](const std::string& lines) {
        std::ofstream{folder.path("lines")} << lines;
        const Outcome o = run(program + real + " --ctx-size 512 chat --predict 12 --conversations 2 --folder "
                              + folder.path("") + " <" + folder.path("lines"));
        CHECK_MESSAGE(o.code == 0, o.error);
        return o.out;
    };
    const std::string first = chat("What is the capital of France?\n/save paris\n");
    CHECK_MESSAGE(first.find("Paris") != std::string::npos, first);
    const std::string question = "And of Italy?\n/stats\n";
    const std::string loaded = chat("/load paris\n" + question);
    const std::string at_once = chat("What is the capital of France?\n" + question);
    const auto answer = [](const std::string& text) { return text.substr(text.find('\n') + 1, 20); };
    CHECK(answer(loaded) == answer(at_once));
    CHECK_MESSAGE(loaded.find("tree: ") != std::string::npos, loaded);
}

TEST_CASE("engine: a text from a file goes on until a word that ends it") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Scratch folder;
    std::ofstream{folder.path("text")} << "One, two, three, four,\n";
    const auto complete = [&](const std::string& flags) {
        const Outcome o = run(program + real + " complete -n 20 " + flags);
        CHECK_MESSAGE(o.code == 0, o.error);
        return o.out;
    };
    const std::string whole = complete("-p 'One, two, three, four,'");
    CHECK(complete("-f " + folder.path("text")) == whole);
    const std::string stopped = complete("-f " + folder.path("text") + " -r nowhere -r ' six'");
    const std::size_t end = whole.find(" six");
    REQUIRE_MESSAGE(end != std::string::npos, whole);
    CHECK(stopped.substr(0, end + 4) == whole.substr(0, end + 4));
    CHECK(stopped.size() < whole.size());
}

TEST_CASE("engine: Ctrl-C ends a text, and the report follows") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Scratch folder;
    Child child{program + real + " complete -n 10000000 -p 'Once upon a time' 2>" + folder.path("error")};
    REQUIRE(child.read(30).size() >= 30); // beyond the prompt
    child.signal(SIGINT);
    const int status = child.finish();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 130);
    CHECK(content(folder.path("error")).find("\nprompt: ") != std::string::npos);
}

TEST_CASE("engine: a text ends with a whole character") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    for (const int tokens : {1, 2, 3}) { // a fox has three
        const Outcome o =
            run(program + real + " complete -p '🦊🦊🦊🦊🦊🦊🦊🦊' -n " + std::to_string(tokens));
        CHECK_MESSAGE(o.code == 0, o.error);
        CHECK_NOTHROW(static_cast<void>(nlohmann::json(o.out).dump())); // throws if it is no UTF-8
    }
}

TEST_CASE("engine: a text that fills a small memory loses its older half, and goes on") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Outcome o = run(program + real + " --bytes 3000000 -b 32 complete -n 150 -p 'Once upon a time'");
    CHECK_MESSAGE(o.code == 0, o.error);
    CHECK_MESSAGE(o.error.find(" 0 shifts") == std::string::npos, o.error);
    CHECK_MESSAGE(o.error.find(" shifts") != std::string::npos, o.error);
}

TEST_CASE("engine: a context that a small memory shortens has to have room for the residual") {
    const Scratch folder;
    const std::string path = folder.path("model.gguf");
    RandomModel random = random_model("llama");
    random.head_dim = 64;
    write_gguf(path, random);
    const engine::Model model{path, 1};
    const auto bytes_for = [&](int cells) {
        return std::to_string(engine::memory_bytes(
            model.shape(), {.limits = {.texts = 1, .context = 4096, .cells = cells, .batch = 32, .snapshots = 16},
                            .format = "iq4_nl",
                            .residual = 90}));
    };
    check_refused(run(program + path + " -ctk iq4_nl --residual-length 90 -c 4096 -b 32 --bytes " + bytes_for(200)
                      + " complete -p a"),
                  1, "--residual-length is 90, expected at most ");
}

TEST_CASE("engine: a conversation that fills a small memory goes on with its newest half") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Scratch folder;
    std::string line; // 256 cells are fewer than three have tokens
    for (int i = 0; i < 9; ++i) line += "one two three four five six seven eight nine ten ";
    std::ofstream{folder.path("lines")} << line << '\n' << line << '\n' << line << "\n/list\n";
    const Outcome o = run(program + real + " --attention flash --bytes 6000000 -b 16 chat -n 2 --conversations 1 <"
                          + folder.path("lines"));
    CHECK(o.code == 0);
    CHECK_MESSAGE(o.error.empty(), o.error);
    CHECK_MESSAGE(o.out.find("* main: 3 turns, ") != std::string::npos, o.out);
}

TEST_CASE("engine: with drafts of the real model, it writes what it writes without, and says how many were right") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const auto complete = [&](const std::string& flags) {
        const Outcome o =
            run(program + real + flags + " --ctx-size 64 complete --predict 60 --prompt \"Once upon a time\"");
        CHECK_MESSAGE(o.code == 0, o.error);
        return o;
    };
    const Outcome with_drafts = complete(" --model-draft " + real + " --draft-max 3");
    CHECK(with_drafts.out == complete("").out);
    CHECK_MESSAGE(with_drafts.error.find(" guessed tokens were accepted") != std::string::npos, with_drafts.error);
    CHECK_MESSAGE(with_drafts.error.find("drafts: 0 ") == std::string::npos, with_drafts.error);
    const Scratch folder;
    const std::string other = folder.path("model.gguf");
    write_gguf(other, random_model("llama"));
    check_refused(run(program + real + " --model-draft " + other + " complete --prompt a"), 1,
                  "has another vocabulary");
}

TEST_CASE("engine: perplexity of the real model, with formats beside half") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Scratch folder;
    std::ofstream text{folder.path("text")};
    for (int i = 0; i < 3; ++i)
        text << "The quick brown fox jumps over the lazy dog, and then it runs away. "
                "Nobody knows where it went, but the dog did not care, and slept on. "
                "In the morning, the fox came back and told a long story about a hen. ";
    text.close();
    const auto measure = [&](const std::string& flags) {
        return run(program + real + " perplexity --window 32 -f " + folder.path("text") + " --windows " + flags);
    };
    const Outcome o = measure("1 --samples 2 --formats 'float;q8_0,hadamard64.q4_0;exact1.scaled0.5.queries0.5.q4_0;"
                              "residual32.q4_0;residual4.sinks2.q4_0' --memories q8_0 --libllama q8_0");
    CHECK_MESSAGE(o.code == 0, o.error);
    CHECK_MESSAGE(o.error.find("8 of 8 runs") != std::string::npos, o.error);
    for (const char* row :
         {"| half, stored |", "| float | 32 | 0 | 0 |", "| q8_0,hadamard64.q4_0 | 6.5 | ",
          "| exact1.scaled0.5.queries0.5.q4_0 | 4.88 | ", "| residual32.q4_0 | 20.5 | ",
          "| residual4.sinks2.q4_0 | 7.5 | ", "| q8_0, stored |", "| q8_0, libllama |", "16 tokens were guessed"})
        CHECK_MESSAGE(o.out.find(row) != std::string::npos, o.out);
    const auto divergence_of = [&](const std::string& name) { // the column before the last one
        const std::size_t row = o.out.find("| " + name + " |");
        const std::size_t end = o.out.rfind('|', o.out.find('\n', row) - 2);
        return row == std::string::npos ? -1 : std::stod(o.out.substr(o.out.rfind('|', end - 1) + 1));
    };
    CHECK(std::abs(divergence_of("residual32.q4_0")) < 1e-2); // all tokens of a window are in half
    CHECK(divergence_of("residual4.sinks2.q4_0") > 1e-2);
    const Outcome stored = measure("1 --memories iq4_nl --residual-length 8");
    CHECK_MESSAGE(stored.code == 0, stored.error);
    CHECK_MESSAGE(stored.out.find("| iq4_nl, residual 8, stored |") != std::string::npos, stored.out);
    check_refused(measure("1 --formats q9"), 1, "the format is 'q9', expected one of 'float', 'half', 'q8_0'");
    check_refused(measure("1 --formats hadamard128.q4_0"), 1,
                  "takes heads of a multiple of 128 values, but they have 64");
    check_refused(measure("9"), 1, "tokens, expected at least 289");
}

TEST_CASE("engine: the real model serves users, whose memory has a budget, and the books are in order") {
    if (!std::filesystem::exists(real)) CELLAR_SKIP("there is no ", real, ", which scripts/engine gets");
    const Outcome o = run(program + real
                          + " --bytes 12000000 --batch-size 128 --ctx-size 256 serve --users 4 --turns 1 --predict 4"
                            " --parallel 2");
    CHECK_MESSAGE(o.code == 0, o.error);
    CHECK_MESSAGE(o.out.find("tokens attached") != std::string::npos, o.out);
}

} // namespace test_engine_program
