// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// A chat with a small language model in a terminal. Conversations share what their memories have in common, go back
// without computing anything again, and are saved to files.
#include "commands.hpp"
#include "generate/command_line.hpp"
#include "generate/file.hpp"
#include "generate/flags.hpp"
#include "generate/huggingface.hpp"
#include "generate/model.hpp"
#include "interrupt.hpp"
#include "manner.hpp"
#include "pool/text_model.hpp"
#include "pool/text_pool.hpp"
#include "prompt.hpp"
#include "speaker.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace {

struct Options {
    llama::ModelFlags model;
    std::string colour = "auto";
    std::int64_t host_bytes = 0;
    std::string user = "ROMEO";
    std::string speaker = "JULIET";
    std::string stop = "\n\n";
    chat::SpeechOptions speech;
    chat::Place place;
};

void declare(CLI::App& app, Options& o) {
    llama::declare(app, o.model, {"float", "half"});
    app.add_option("--user", o.user, "the character that you are")->capture_default_str();
    app.add_option("--speaker", o.speaker, "the character that the model is")->capture_default_str();
    app.add_option("--opening", o.place.opening, "text that every conversation begins with");
    app.add_option("--tokens", o.speech.tokens, "bytes of a reply at most")
        ->check(CLI::Range(1, 10'000'000))
        ->capture_default_str();
    app.add_option("--stop", o.stop, "text that ends a reply; default: an empty line");
    app.add_option("--conversations", o.place.conversations, "at a time")
        ->check(CLI::Range(1, 62))
        ->capture_default_str();
    app.add_option("--host-bytes", o.host_bytes, "for prefixes that leave the memory; 0: evicted")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 50))
        ->capture_default_str();
    app.add_option("--folder", o.place.folder, "of the files that /save writes")->capture_default_str();
    app.add_option("--color", o.colour, "colours of /map")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
}

int run(Options o) {
    llama::Llama model{llama::read_weights(llama::Safetensors::read(o.model.model)), llama::Products::row_by_row};
    llama::resolve(o.model, model.config());
    llama::expect_bytes(model.config());
    o.speech.seed = o.model.seed;
    o.speech.temperature = o.model.temperature;
    o.place.model = llama::fingerprint(o.model.model);
    o.place.colour = o.colour == "always" || (o.colour == "auto" && isatty(STDOUT_FILENO) != 0);
    const llama::PoolLimits limits{
        .texts = o.place.conversations, .context = o.model.context, .prefixes = {.offloaded_bytes = o.host_bytes}};
    const auto pool = llama::make_pool(model.config(), limits, o.model.element);
    llama::ByteModel bytes{model, *pool};
    const chat::Play manner{o.user, o.speaker, o.stop};
    chat::Speaker speaker{bytes, *pool, manner, o.speech};
    chat::Commands commands{bytes, *pool, speaker, o.place, std::cout};
    chat::catch_interrupts();
    chat::read_lines(commands);
    return llama::done;
}

} // namespace

int main(int argc, char** argv) {
    return llama::command("chat", "A chat with a small language model", argc, argv, declare, run);
}
