// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The programs, run as commands.
#include "commands.hpp"
#include "generate_command.hpp"
#include "rwkv_files.hpp"
#include "skip.hpp"
#include "tiny_model.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace test_generate {

TEST_CASE("generate: wrong flags are refused") {
    check_refused(generate("--tokes 5"), 2, "--tokes");
    check_refused(generate("--tokens many"), 2, "many");
    check_refused(generate("--tokens 0"), 2, "--tokens");
    check_refused(generate("--seed -1"), 2, "--seed");
    check_refused(generate("--seed 18446744073709551616"), 2,
                  "--seed: '18446744073709551616', expected a number from 0");
    check_refused(generate("--seed 1x"), 2, "--seed");
    check_refused(generate("--backend abacus"), 2, "abacus");
    check_refused(generate("--layout diagonal"), 2, "diagonal");
    check_refused(generate("--cache-type int8"), 2, "int8");
    check_refused(generate("--draft 33"), 2, "--draft");
    check_refused(generate("--temperature -1"), 2, "--temperature");
    check_refused(generate("--temperature nan"), 1, "--temperature is not a number");
    check_refused(generate("--prompt ''"), 1, "--prompt is empty");
    check_refused(generate("--context 8"), 1, "--context is 8, expected 16 to 256");
    check_refused(generate("--context 257"), 1, "--context is 257, expected 16 to 256");
    check_refused(generate("--history -1"), 2, "--history");
    check_refused(generate("--history 300 --tokens 10 --context 400"), 1,
                  "--context is 400, expected 16 to 317, the bytes of the whole text");
    check_refused(generate("--json /no/such/folder/r.json --tokens 1"), 1, "/no/such/folder/r.json: cannot be written");
}

TEST_CASE("generate: a file that is not a model is refused") {
    const Scratch scratch;
    const std::string whole = content(plain_model);
    std::ofstream{scratch.path("cut"), std::ios::binary} << whole.substr(0, whole.size() / 2);
    std::ofstream{scratch.path("empty")};
    std::ofstream{scratch.path("text")} << "These are not the weights you are looking for.\n";
    check_refused(generate("--model /no/such/model"), 1, "/no/such/model: cannot be opened: No such file");
    check_refused(generate("--model " + scratch.path("")), 1, "Is a directory");
    check_refused(generate("--model " + scratch.path("cut")), 1, "of the data, which has only");
    check_refused(generate("--model " + scratch.path("empty")), 1, "not a safetensors file: it has 0 bytes");
    check_refused(generate("--model " + scratch.path("text")), 1, "not a safetensors file, or cut off");
}

TEST_CASE("generate: --help lists the flags") {
    const Outcome o = generate("--help");
    CHECK(o.code == 0);
    CHECK(o.error.empty());
    for (const char* flag : {"--prompt", "--tokens", "--seed", "--temperature", "--model", "--backend", "--layout",
                             "--context", "--json"}) {
        CHECK(o.out.find(flag) != std::string::npos);
    }
}

TEST_CASE("generate: the report of a long text is consistent") {
    const Scratch scratch;
    const std::string json = scratch.path("report.json");
    const Outcome o = generate("--prompt ROMEO: --tokens 2000 --context 256 --seed 3 --json " + json);
    CAPTURE(o.error);
    REQUIRE(o.code == 0);
    const auto r = nlohmann::json::parse(content(json));
    const auto text = r.at("text").get<std::string>();
    CHECK(o.out.find("ROMEO:" + text) == 0);
    CHECK(text.size() >= 2000); // a byte that is not UTF-8 becomes three in JSON
    CHECK(r.at("prompt") == "ROMEO:");
    CHECK(r.at("context") == 256);
    CHECK(r.at("seed") == 3);
    CHECK(r.at("layout") == "standard");
    CHECK(r.at("prefill").at("tokens") == 6);
    CHECK(r.at("decode").at("tokens") == 1999);
    CHECK(r.at("decode").at("tokens_per_second") > 0);
    CHECK(r.at("cache").at("full").at("cells") == 256);
    CHECK(r.at("cache").at("sliding").at("cells_used") == 32);
    CHECK(r.at("cache").at("bytes").get<int>() == (96 * 5 + 256) * 2 * 2 * 40 * 4);
    // Of 2005 tokens, each shift removed 126, as soon as the context of 256 was full.
    CHECK(r.at("shifts") == (2005 - 256 + 125) / 126);
    CHECK(r.at("cache").at("full").at("cells_used") == 2005 - 126 * r.at("shifts").get<int>());
    CHECK(r.at("evicted") == 2005 - 32);
    CHECK(r.at("check").at("passed") == true);
    CHECK(r.at("check").at("after_shift") > 20);
    CHECK(r.at("check").at("difference") <= r.at("check").at("bound"));
    for (const char* word : {"prefill", "decode", "cells", "memory", "evicted", "check"}) {
        CHECK(o.out.find(std::string{"\n"} + word + " ") != std::string::npos);
    }
}

TEST_CASE("generate: the text depends on the seed, not on the layout") {
    const Scratch scratch;
    const auto text = [&](const std::string& flags) {
        const std::string json = scratch.path("report.json");
        REQUIRE(generate("--tokens 300 --context 64 --json " + json + " " + flags).code == 0);
        return nlohmann::json::parse(content(json)).at("text").get<std::string>();
    };
    const std::string first = text("--seed 1");
    CHECK(first == text("--seed 1"));
    CHECK(first == text("--seed 1 --layout permuted"));
    CHECK(first != text("--seed 2"));
    CHECK(text("--temperature 0 --seed 1") == text("--temperature 0 --seed 2 --layout permuted"));
}

TEST_CASE("generate: drafts do not change the text") {
    const Scratch scratch;
    const auto report = [&](const std::string& flags) {
        const std::string json = scratch.path("report.json");
        const Outcome o = generate("--tokens 600 --json " + json + " " + flags);
        CAPTURE(o.error);
        REQUIRE(o.code == 0);
        return nlohmann::json::parse(content(json));
    };
    for (const std::string& file : {plain_model, hybrid_model}) {
        for (const std::string temperature : {"0", "0.5"}) {
            const std::string flags = "--model " + file + " --temperature " + temperature;
            const auto plain = report(flags);
            CHECK(plain.at("draft").at("drafted") == 0);
            CHECK(plain.at("shifts") > 0);
            for (const int count : {1, 4, 15}) {
                const auto drafted = report(flags + " --draft " + std::to_string(count));
                const auto& draft = drafted.at("draft");
                CAPTURE(draft.dump());
                CHECK(drafted.at("text") == plain.at("text"));
                CHECK(drafted.at("decode").at("tokens") == 599);
                CHECK(drafted.at("check").at("passed") == true);
                CHECK(draft.at("accepted") > 0);
                CHECK(draft.at("accepted") <= draft.at("drafted"));
            }
        }
    }
}

TEST_CASE("generate: a model with recurrent layers runs beyond its context") {
    const Scratch scratch;
    const std::string json = scratch.path("report.json");
    const Outcome o = generate("--model " + hybrid_model + " --tokens 700 --seed 3 --draft 3 --json " + json);
    CAPTURE(o.error);
    REQUIRE(o.code == 0);
    const auto r = nlohmann::json::parse(content(json));
    const auto& states = r.at("states");
    CHECK(states.at("layers") == 4);
    CHECK(states.at("slots") == 2 * 4); // 4: the newest state and the rollback; twice, because a pass writes new ones
    CHECK(states.at("slots_used") >= 1);
    CHECK(states.at("bytes") >= 4 * 8 * (3 + 1) * 160 * 4);
    CHECK(r.at("cache").at("sliding").at("layers") == 2);
    CHECK(r.at("cache").at("full").at("layers") == 1);
    CHECK(r.at("check").at("after_shift") > 0);
    CHECK(r.at("check").at("passed") == true);
    CHECK(o.out.find("\nslots ") != std::string::npos);
    CHECK(o.out.find("\ndraft ") != std::string::npos);
}

TEST_CASE("generate: a prompt may be longer than the context, with every element type") {
    std::string prompt;
    while (prompt.size() < 400) prompt += "What light through yonder window breaks? ";
    for (const char* type : {"float", "half", "bf16"}) {
        const Outcome o = generate("--prompt '" + prompt + "' --tokens 50 --context 100 --cache-type " + type);
        CAPTURE(o.error);
        CHECK(o.code == 0);
    }
}

TEST_CASE("generate: a cache of fewer bits, by llama.cpp's names") {
    const Scratch scratch;
    const std::string json = scratch.path("report.json");
    const auto report = [&](const std::string& flags) {
        const Outcome o = generate("--tokens 60 --json " + json + " " + flags);
        CAPTURE(flags);
        CAPTURE(o.error);
        REQUIRE(o.code == 0);
        const auto r = nlohmann::json::parse(content(json));
        CHECK(r.at("check").at("passed") == true);
        return r;
    };
    const auto bytes = [&](const nlohmann::json& r) {
        return r.at("cache").at("full").at("bytes").get<int>() + r.at("cache").at("sliding").at("bytes").get<int>();
    };
    const std::string model = "--model " + hybrid_model + " ";
    const auto half = report(model + "--cache-type-k f16 --cache-type-v f16");
    const auto q8 = report(model + "--cache-type-k q8_0 --cache-type-v q8_0");
    const auto mixed = report(model + "--cache-type-k q8_0 --cache-type-v q4_0");
    const auto q4 = report(model + "--cache-type-k q4_0 --cache-type-v q4_0");
    CHECK(half.at("cache_type") == "half");
    CHECK(mixed.at("cache_type") == "q8_0,q4_0");
    CHECK(bytes(q8) * 64 == bytes(half) * 34);
    CHECK(bytes(mixed) * 128 == bytes(half) * (34 + 18));
    CHECK(bytes(q4) * 64 == bytes(half) * 18);
    CHECK(q8.at("check").at("difference") > half.at("check").at("difference"));
    CHECK(q4.at("check").at("difference") > q8.at("check").at("difference"));
    const auto int8 = report("--cache-type int8_per_head"); // heads of 40
    CHECK(int8.at("cache_type") == "int8_per_head");
    check_refused(generate("--cache-type-k q8_0 --cache-type-v q8_0"), 1,
                  "the heads have 40 elements, but a cache in 'q8_0' takes a multiple of 32");
    check_refused(generate(model + "--cache-type-k q4_0 --cache-type-v q8_0"), 1, "q4_0,q8_0");
    check_refused(generate(model + "--cache-type q8_0 --layout permuted"), 1, "expected 'standard' for 'q8_0'");
}

TEST_CASE("generate: attention over views gives the same logits, also after a history longer than in training") {
    const Scratch scratch;
    const std::string json = scratch.path("report.json");
    const auto report = [&](const std::string& flags) {
        const Outcome o = generate("--history 600 --tokens 40 --json " + json + " " + flags);
        CAPTURE(flags);
        CAPTURE(o.error);
        REQUIRE(o.code == 0);
        CHECK((o.out.find(" tokens/s over views; attend is ") != std::string::npos)
              == (flags.find("--compare") != std::string::npos));
        return nlohmann::json::parse(content(json));
    };
    for (const std::string& flags :
         std::vector<std::string>{"", "--model " + hybrid_model, "--layout permuted --cache-type half --draft 3"}) {
        const auto alone = report(flags);
        CHECK(alone.at("over_views").is_null());
        const auto r = report("--compare " + flags);
        CHECK(r.at("context") == 600 + 7 + 40);
        CHECK(r.at("text") == alone.at("text"));
        CHECK(r.at("check").at("passed") == true);
        const auto& views = r.at("over_views");
        CHECK(views.at("passed") == true);
        CHECK(views.at("difference") > 0); // two ways to compute
        CHECK(views.at("decode_ratio") > 0);
        for (const char* phase : {"prefill", "decode"}) {
            CHECK(views.at(phase).at("tokens") == r.at(phase).at("tokens"));
            CHECK(views.at(phase).at("seconds") > 0);
        }
        CHECK(r.at("prefill").at("tokens") == 607);
    }
}

TEST_CASE("llama2c: wrong flags and files are refused") {
    check_refused(run(CELLAR_LLAMA2C), 2, "checkpoint is required");
    check_refused(run(CELLAR_LLAMA2C " --layout x y"), 2, "--layout");
    check_refused(run(CELLAR_LLAMA2C " /no/such/model"), 1, "cannot be opened");
    check_refused(run(CELLAR_LLAMA2C " " + plain_model), 1, "not a llama2.c checkpoint");
}

TEST_CASE("rwkv: texts that run together equal those that run alone") {
    check_refused(run(CELLAR_RWKV), 2, "checkpoint is required");
    check_refused(run(CELLAR_RWKV " /no/such/model"), 1, "cannot be opened");
    check_refused(run(CELLAR_RWKV " " + plain_model), 1, "not a file of rwkv.cpp");
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    check_refused(run(CELLAR_RWKV " " + tiny_rwkv + " --prompt ''"), 1, "--prompt is empty");
    const auto text = [](const std::string& flags) {
        const Outcome o = run(CELLAR_RWKV " " + tiny_rwkv + " --tokens 20 " + flags);
        CAPTURE(o.error);
        CHECK(o.code == 0);
        return o.out;
    };
    CHECK(text("") == "\"in the the the the the\n");
    const std::string alone = text("--prompt 'A long prompt, of a king'") + text("--prompt b") + text("--prompt and");
    CHECK(text("--prompt 'A long prompt, of a king' b and") == alone);
}

TEST_CASE("a program whose output cannot be written ends with an error") {
    if (!std::filesystem::exists("/dev/full")) CELLAR_SKIP("no /dev/full, where every write fails");
    const auto check_fails = [](const std::string& command) {
        CAPTURE(command);
        check_refused(run("(" + command + " >/dev/full)"), 1, "cannot write to the standard output");
    };
    const Scratch scratch;
    const std::string checkpoint = scratch.path("checkpoint");
    const std::vector<char> bytes = checkpoint_of(RandomWeights{1}(llama2c_config()));
    std::ofstream{checkpoint, std::ios::binary}.write(bytes.data(), std::ssize(bytes));
    check_fails(CELLAR_GENERATE " --tokens 1");
    check_fails(CELLAR_LLAMA2C " --tokens 1 " + checkpoint);
    for (const std::string program : {CELLAR_GENERATE, CELLAR_LLAMA2C, CELLAR_RWKV}) check_fails(program + " --help");
    check_refused(run("(" CELLAR_GENERATE " --tokens 1 --json /dev/full >/dev/null)"), 1,
                  "/dev/full: cannot be written");
    if (!has_rwkv()) CELLAR_SKIP("no RWKV model in ../shared");
    check_fails(CELLAR_RWKV " --tokens 1 " + tiny_rwkv);
}

} // namespace test_generate
