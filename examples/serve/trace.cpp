// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trace.hpp"

#include "generate/file.hpp"

#include <nlohmann/json.hpp>

#include <iterator>
#include <sstream>

namespace serve {

namespace {

using Json = nlohmann::ordered_json;

/// Reads one line of a trace.
class LineReader {
public:
    LineReader(const std::string& path, int number) : where_{path + ":" + std::to_string(number)} {}

    User user(const std::string& line) const {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object()) fail("not a JSON object");
        User user;
        user.at = number(json, "at", 0);
        user.seed = static_cast<std::uint64_t>(number(json, "seed", 0, 1'000'000'000));
        user.system = text(json, "system");
        if (!json.contains("turns") || !json["turns"].is_array() || json["turns"].empty())
            fail("'turns' is no list of turns");
        for (const Json& turn : json["turns"]) {
            user.turns.push_back({number(turn, "wait", 0), text(turn, "say"), number(turn, "reply", 1)});
            if (user.turns.back().say.empty()) fail("'say' is empty, expected at least one byte");
        }
        return user;
    }

private:
    [[noreturn]] void fail(const std::string& what) const { throw llama::FileError{where_, what}; }

    // Steps and bytes have a limit that leaves room to add them up in an int.
    int number(const Json& json, const char* name, int least, int most = 1'000'000) const {
        if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer() || json[name] < least
            || json[name] > most) {
            fail(std::string{"'"} + name + "' is " + (json.is_object() ? json.value(name, Json{}).dump() : "missing")
                 + ", expected a number from " + std::to_string(least) + " to " + std::to_string(most));
        }
        return json[name].get<int>();
    }

    std::string text(const Json& json, const char* name) const {
        if (!json.contains(name) || !json[name].is_string()) fail(std::string{"'"} + name + "' is no text");
        return json[name].get<std::string>();
    }

    std::string where_;
};

} // namespace

std::int64_t User::length() const {
    std::int64_t length = std::ssize(system);
    for (const Turn& turn : turns) length += std::ssize(turn.say) + turn.reply;
    return length;
}

Trace read_trace(const std::string& path) {
    const llama::File file = llama::read_file(path);
    std::istringstream lines{std::string{file.bytes.begin(), file.bytes.end()}};
    Trace trace;
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        if (!line.empty()) trace.push_back(LineReader{path, number}.user(line));
    }
    if (trace.empty()) throw llama::FileError{path, "has no users, expected at least one"};
    return trace;
}

void write_trace(std::ostream& stream, const Trace& trace) {
    for (const User& user : trace) {
        Json turns = Json::array();
        for (const Turn& turn : user.turns)
            turns.push_back({{"wait", turn.wait}, {"say", turn.say}, {"reply", turn.reply}});
        stream << Json{{"at", user.at}, {"seed", user.seed}, {"system", user.system}, {"turns", turns}}.dump() << '\n';
    }
}

} // namespace serve
