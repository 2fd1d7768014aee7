// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// The program with its memory on Kokkos, run as a command.
#include "generate_command.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace test_generate_kokkos {

namespace {

// Passive waiting, because tests run in parallel.
Outcome generate_on_kokkos(const std::string& flags) {
    return run("OMP_WAIT_POLICY=passive KOKKOS_NUM_THREADS=4 " CELLAR_GENERATE " --backend kokkos " + flags);
}

nlohmann::json report(Outcome (&command)(const std::string&), const std::string& flags) {
    const Scratch scratch;
    const std::string json = scratch.path("report.json");
    const Outcome o = command(flags + " --json " + json);
    CAPTURE(flags);
    CAPTURE(o.error);
    REQUIRE(o.code == 0);
    CHECK(o.error.empty());
    return nlohmann::json::parse(content(json));
}

void check_beyond_the_context(const nlohmann::json& r) {
    CHECK(r.at("backend") == "kokkos");
    CHECK(r.at("shifts") > 0);
    CHECK(r.at("check").at("after_shift") > 0);
    CHECK(r.at("check").at("passed") == true);
}

} // namespace

TEST_CASE("generate on Kokkos: the most likely text equals that of Eigen, beyond the context") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        const std::string flags = "--model " + file + " --tokens 200 --context 64 --temperature 0";
        const auto eigen = report(generate, flags);
        const auto kokkos = report(generate_on_kokkos, flags);
        CHECK(eigen.at("backend") == "eigen");
        CHECK(eigen.at("execution_space").is_null());
        CHECK_FALSE(kokkos.at("execution_space").get<std::string>().empty());
        check_beyond_the_context(kokkos);
        for (const char* same : {"text", "shifts", "evicted", "cache", "states"})
            CHECK(kokkos.at(same) == eigen.at(same));
    }
}

TEST_CASE("generate on Kokkos: every layout and element type passes the check") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        for (const std::string flags :
             {"--layout permuted", "--cache-type half", "--layout permuted --cache-type bf16"})
            check_beyond_the_context(
                report(generate_on_kokkos, "--model " + file + " --tokens 120 --context 64 " + flags));
    }
}

TEST_CASE("generate on Kokkos: drafts do not change the text") {
    for (const std::string& file : {plain_model, hybrid_model}) {
        const std::string flags = "--model " + file + " --tokens 300 --context 128 --temperature 0";
        const auto plain = report(generate_on_kokkos, flags);
        const auto drafted = report(generate_on_kokkos, flags + " --draft 4");
        check_beyond_the_context(drafted);
        CHECK(drafted.at("text") == plain.at("text"));
        CHECK(drafted.at("draft").at("accepted") > 0);
        CHECK(drafted.at("draft").at("accepted") < drafted.at("draft").at("drafted"));
    }
}

TEST_CASE("generate on Kokkos: a prompt may be longer than the context") {
    std::string prompt;
    while (prompt.size() < 400) prompt += "What light through yonder window breaks? ";
    const Outcome o = generate_on_kokkos("--prompt '" + prompt + "' --tokens 20 --context 100");
    CAPTURE(o.error);
    CHECK(o.code == 0);
    CHECK(o.out.find("\nbackend  kokkos on ") != std::string::npos);
}

TEST_CASE("generate on Kokkos: an error is one line") {
    check_refused(generate_on_kokkos("--prompt ''"), 1, "--prompt is empty");
    check_refused(generate_on_kokkos("--model /no/such/model"), 1, "/no/such/model: cannot be opened");
}

} // namespace test_generate_kokkos
