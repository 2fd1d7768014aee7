// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "generate.hpp"

#include "decoder.hpp"
#include "model_folder.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <generate/sampler.hpp>
#include <ostream>
#include <span>
#include <stdexcept>
#include <vector>

namespace folder {

namespace {

constexpr std::size_t batch = 64;

/// The tokens that end a text: one, or a list.
std::vector<int> ends_of(const nlohmann::json& config) {
    const auto& text = config.contains("text_config") ? config.at("text_config") : config;
    const nlohmann::json end = text.value("eos_token_id", nlohmann::json{});
    if (end.is_number_integer()) return {end.get<int>()};
    std::vector<int> all;
    for (const nlohmann::json& one : end)
        if (one.is_number_integer()) all.push_back(one.get<int>());
    return all;
}

/// The logits after the last of the tokens.
Matrix feed(const Decoder& decoder, Memory& memory, std::span<const int> tokens) {
    Matrix logits;
    while (!tokens.empty()) {
        const auto part = tokens.first(std::min(batch, tokens.size()));
        auto result = decoder.forward(memory, cellar::Sequence{0}, memory.next(cellar::Sequence{0}), part);
        if (!result) throw std::runtime_error{"the memory refuses: " + to_string(result.error())};
        logits = result->bottomRows(1);
        tokens = tokens.subspan(part.size());
    }
    return logits;
}

} // namespace

void generate(const Request& request, std::ostream& out) {
    const ModelFolder folder{request.folder};
    const Tokenizer tokenizer{folder.path_of("tokenizer.json")};
    std::vector<int> text = tokenizer.encode(request.prompt);
    if (text.empty()) throw std::runtime_error{"the prompt has no tokens, expected at least one"};
    const int needed = static_cast<int>(text.size()) + request.tokens;
    const int context = request.context != 0 ? request.context : needed;
    if (context < needed) throw std::runtime_error{"the context is smaller than the prompt and the tokens to generate"};
    const Decoder decoder{folder, context};
    for (const int token : text)
        if (token >= decoder.vocabulary()) throw std::runtime_error{"the tokenizer has tokens that the model has not"};

    const cellar::models::MemoryLimits limits{.attention = {.capacity = context, .batch = int{batch}}};
    out << decoder.description().architecture << ", " << decoder.description().layers.size()
        << " layers; memory: " << decoder.memory_bytes(limits).total() << " bytes\n\n"
        << request.prompt << std::flush;

    Memory memory = decoder.make_memory(limits);
    llama::Sampler sample{request.seed, request.temperature};
    const std::vector<int> ends = ends_of(folder.config());
    Matrix logits = feed(decoder, memory, text);
    const auto begin = std::chrono::steady_clock::now();
    int made = 0;
    for (; made < request.tokens; ++made) {
        const int token = sample(logits);
        if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
        out << tokenizer.decode({token}) << std::flush;
        logits = feed(decoder, memory, std::span{&token, 1});
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    out << "\n\n" << made << " tokens, " << made / std::max(seconds.count(), 1e-9) << " per second\n";
}

} // namespace folder
