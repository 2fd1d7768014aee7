// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "saved.hpp"

#include <cellar/files/snapshot_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace chat {

namespace {

const std::string note_name = "chat";

std::string note_of(const Conversation& c) {
    nlohmann::ordered_json turns = nlohmann::ordered_json::array();
    for (const Turn& turn : c.turns) turns.push_back({turn.begin, turn.first, turn.prompt_end, turn.attempt});
    return nlohmann::ordered_json{{"begin", c.begin}, {"turns", turns}, {"tokens", c.tokens}}.dump();
}

/// The note of a file. `cellar::load` reads the file again, and takes it only with this note.
std::string read_note(const std::string& path) {
    const auto notes = cellar::read_notes(path);
    if (!notes) throw std::runtime_error{to_string(notes.error())};
    const auto note = notes->find(note_name);
    if (note == notes->end()) throw std::runtime_error{path + ": a file of something else, expected a conversation"};
    return note->second;
}

/// True if the parts of a conversation fit each other.
bool is_consistent(const Conversation& c, int vocabulary) {
    const auto length = static_cast<int>(c.tokens.size());
    const auto is_token = [&](int token) { return token >= 0 && token < vocabulary; };
    int end = 0;
    for (const Turn& turn : c.turns) {
        if (turn.begin < 0 || turn.begin > turn.first || turn.first < end || turn.prompt_end <= turn.first)
            return false;
        end = turn.prompt_end;
    }
    return !c.turns.empty() && end <= length && c.begin >= 0 && c.begin < length
           && std::all_of(c.tokens.begin(), c.tokens.end(), is_token);
}

Conversation parsed(const std::string& path, const std::string& note, int vocabulary) {
    Conversation c;
    try {
        const auto json = nlohmann::json::parse(note);
        json.at("begin").get_to(c.begin);
        json.at("tokens").get_to(c.tokens);
        for (const auto& turn : json.at("turns")) {
            const auto numbers = turn.get<std::array<int, 4>>();
            c.turns.push_back({numbers[0], numbers[1], numbers[2], numbers[3]});
        }
    } catch (const nlohmann::json::exception&) {
        c.tokens.clear();
    }
    if (!is_consistent(c, vocabulary)) throw std::runtime_error{path + ": a conversation that contradicts itself"};
    return c;
}

} // namespace

void save(const std::string& path, const std::string& model, const Conversation& c, llama::Texts& pool,
          const cellar::FileProgress& progress) {
    if (c.turns.empty()) throw std::runtime_error{"'" + c.name + "' has no turns, expected at least one"};
    pool.save(path, c.text, {.model = model, .notes = {{note_name, note_of(c)}}, .write = {.progress = progress}});
}

void load(const std::string& path, const std::string& model, Conversation& conversation, llama::Texts& pool,
          int vocabulary) {
    const std::string note = read_note(path);
    Conversation c = parsed(path, note, vocabulary);
    pool.load(path, conversation.text, {.model = model, .notes = {{note_name, note}}});
    conversation.begin = c.begin;
    conversation.tokens = std::move(c.tokens);
    conversation.turns = std::move(c.turns);
    pool.keep(conversation.text, conversation.remembered());
}

} // namespace chat
