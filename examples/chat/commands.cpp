// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "commands.hpp"

#include "characters.hpp"
#include "interrupt.hpp"
#include "saved.hpp"

#include <filesystem>
#include <stdexcept>
#include <utility>

namespace chat {

struct Commands::Command {
    const char* name;
    enum { no_name, may_have_name, needs_name } argument;
    const char* description;
    void (Commands::*run)(const std::string& argument);
};

const Commands::Command Commands::all[] = {
    {"/save", Command::may_have_name, "writes the conversation to a file, by its own name or another", &Commands::save},
    {"/load", Command::needs_name, "reads a conversation from a file and goes to it", &Commands::load},
    {"/fork", Command::needs_name, "goes on with a copy of the conversation", &Commands::fork},
    {"/open", Command::needs_name, "goes to another conversation, or begins it", &Commands::open},
    {"/close", Command::no_name, "ends the conversation and goes to the first of the others", &Commands::close},
    {"/undo", Command::no_name, "takes the last turn back", &Commands::undo},
    {"/retry", Command::no_name, "replaces the last reply by another one", &Commands::retry},
    {"/text", Command::no_name, "shows the whole conversation", &Commands::text},
    {"/list", Command::no_name, "lists the conversations", &Commands::list},
    {"/map", Command::no_name, "draws which conversation has which cells", &Commands::map},
    {"/stats", Command::no_name, "shows what was computed, and what the memory has", &Commands::stats},
    {"/help", Command::no_name, "lists the commands", &Commands::help},
    {"/quit", Command::no_name, "ends the program", nullptr},
};

Commands::Commands(llama::TextModel& model, llama::Texts& pool, Speaker& speaker, Place place, std::ostream& out)
    : model_{model},
      pool_{pool},
      speaker_{speaker},
      place_{std::move(place)},
      out_{out},
      conversations_{place_.conversations} {
    begin("main");
}

bool Commands::run(const std::string& line) {
    if (line.empty()) return true;
    if (line.front() != '/') {
        say(line);
        return true;
    }
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, end);
    const std::string argument = end == line.size() ? "" : line.substr(end + 1);
    for (const Command& command : all) {
        if (command.name != name) continue;
        if (command.argument == Command::needs_name && argument.empty())
            throw std::runtime_error{name + ": no name was given, expected " + name + " NAME"};
        if (command.argument == Command::no_name && !argument.empty())
            throw std::runtime_error{name + ": '" + argument + "' was given, expected nothing after " + name};
        if (command.run == nullptr) return false;
        (this->*command.run)(argument);
        return true;
    }
    throw std::runtime_error{"'" + name + "' is no command, expected one that /help lists"};
}

void Commands::say(const std::string& line) {
    finish(speaker_.say(conversations_.current(), line, listener()));
}

void Commands::save(const std::string& name) {
    const Conversation& c = conversations_.current();
    const std::string file = path(name.empty() ? c.name : name);
    chat::save(file, place_.model, c, pool_);
    out_ << "saved " << file << ": " << c.turns.size() << " turns, " << c.tokens.size() << " tokens\n";
}

void Commands::load(const std::string& name) {
    const std::string file = path(name);
    const auto read = [&](Conversation& c) { chat::load(file, place_.model, c, pool_, model_.vocabulary()); };
    if (Conversation* const existing = conversations_.find(name)) {
        read(*existing);
        conversations_.go_to(*existing);
    } else {
        add(name, read);
    }
    const Conversation& c = conversations_.current();
    out_ << "loaded " << file << ": " << c.turns.size() << " turns, " << c.tokens.size() << " tokens\n";
}

void Commands::fork(const std::string& name) {
    const Conversation& from = conversations_.current();
    add(name, [&](Conversation& to) {
        to.tokens = from.tokens;
        to.turns = from.turns;
        to.begin = from.begin;
        speaker_.remember(to);
    });
}

void Commands::open(const std::string& name) {
    if (Conversation* const existing = conversations_.find(name)) {
        conversations_.go_to(*existing);
    } else {
        begin(name);
    }
}

void Commands::close(const std::string&) {
    const int text = conversations_.current().text;
    conversations_.remove_current();
    pool_.clear(text);
}

void Commands::undo(const std::string&) {
    expect_turn();
    speaker_.undo(conversations_.current());
}

void Commands::retry(const std::string&) {
    expect_turn();
    finish(speaker_.retry(conversations_.current(), listener()));
}

void Commands::text(const std::string&) {
    out_ << model_.text(conversations_.current().tokens) << '\n';
}

void Commands::list(const std::string&) {
    for (const Conversation& c : conversations_.all()) {
        out_ << (&c == &conversations_.current() ? "* " : "  ") << c.name << ": " << c.turns.size() << " turns, "
             << c.tokens.size() << " tokens\n";
    }
}

void Commands::map(const std::string&) {
    out_ << pool_.map(place_.colour);
    for (const Conversation& c : conversations_.all()) out_ << "sequence " << c.text << " is " << c.name << '\n';
}

void Commands::stats(const std::string&) {
    Conversation& c = conversations_.current();
    const cellar::PrefixStatistics tree = pool_.prefixes();
    const llama::PoolUse use = pool_.use();
    out_ << c.name << ": " << c.turns.size() << " turns, " << c.tokens.size() << " tokens, the model sees "
         << c.visible().size() << '\n'
         << "tokens: " << speaker_.work().computed << " computed, " << speaker_.work().attached << " attached\n"
         << "tree: " << tree.snapshots << " snapshots, " << tree.hits << " hits, " << tree.partial_hits
         << " partial hits, " << tree.misses << " misses, " << tree.evictions << " evicted\n"
         << "cells: " << use.live << " of conversations, " << use.kept << " of the tree alone, " << use.free()
         << " free\n"
         << "memory: " << pool_.bytes() << " bytes\n";
}

void Commands::help(const std::string&) {
    for (const Command& command : all) {
        std::string usage = command.name;
        if (command.argument == Command::needs_name) usage += " NAME";
        if (command.argument == Command::may_have_name) usage += " [NAME]";
        usage.resize(14, ' ');
        out_ << usage << command.description << '\n';
    }
    out_ << "Anything else is said to the model. Ctrl-C stops a reply, and twice ends the program.\n";
}

void Commands::begin(const std::string& name) {
    add(name, [&](Conversation& c) {
        c.tokens = model_.tokens(place_.opening);
        speaker_.remember(c);
    });
}

/// Adds a conversation, and goes to it. If fill(it) throws, it is gone again.
template <class F>
void Commands::add(const std::string& name, F fill) {
    Conversation* const before = conversations_.all().empty() ? nullptr : &conversations_.current();
    Conversation& c = conversations_.add(name);
    try {
        fill(c);
    } catch (...) {
        pool_.clear(c.text);
        if (before != nullptr) {
            conversations_.remove_current();
            conversations_.go_to(*before);
        }
        throw;
    }
}

void Commands::expect_turn() {
    const Conversation& c = conversations_.current();
    if (c.turns.empty()) throw std::runtime_error{"'" + c.name + "' has no turns, expected at least one"};
}

Listener Commands::listener() {
    expect_interrupt();
    return {.write = [this, shown = WholeCharacters{}](
                         const std::string& text) mutable { out_ << shown.add(text) << std::flush; },
            .is_interrupted = was_interrupted};
}

void Commands::finish(bool complete) {
    const int last = conversations_.current().tokens.back();
    if (const std::string text = model_.text({&last, 1}); text.empty() || text.back() != '\n') out_ << '\n';
    if (!complete) out_ << "[stopped]\n";
    out_ << std::flush;
}

std::string Commands::path(const std::string& name) const {
    check_name(name);
    return (std::filesystem::path{place_.folder} / (name + ".chat")).string();
}

} // namespace chat
