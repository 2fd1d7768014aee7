// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversations.hpp"
#include "pool/text_model.hpp"
#include "speaker.hpp"

#include <ostream>
#include <string>

namespace chat {

struct Place {
    std::string folder = "."; ///< of the files
    std::string model;        ///< tells models apart
    std::string opening;      ///< what every conversation begins with
    int conversations = 8;    ///< at a time
    bool colour = false;
};

/// Carries out the lines of the user: commands, which begin with '/', and what is said.
class Commands {
public:
    Commands(llama::TextModel& model, llama::Texts& pool, Speaker& speaker, Place place, std::ostream& out);

    /// Throws `std::runtime_error` if the line cannot be carried out; the conversations are then as they were. Returns
    /// false after /quit.
    bool run(const std::string& line);

    const std::string& current() { return conversations_.current().name; }

private:
    struct Command;
    static const Command all[];

    void say(const std::string& line);
    void save(const std::string& name);
    void load(const std::string& name);
    void fork(const std::string& name);
    void open(const std::string& name);
    void close(const std::string&);
    void undo(const std::string&);
    void retry(const std::string&);
    void text(const std::string&);
    void list(const std::string&);
    void map(const std::string&);
    void stats(const std::string&);
    void help(const std::string&);

    void begin(const std::string& name);
    template <class F>
    void add(const std::string& name, F fill);
    void expect_turn();
    Listener listener();
    void finish(bool complete);
    std::string path(const std::string& name) const;

    llama::TextModel& model_;
    llama::Texts& pool_;
    Speaker& speaker_;
    Place place_;
    std::ostream& out_;
    Conversations conversations_;
};

} // namespace chat
