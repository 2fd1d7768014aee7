// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace serve {

/// What a user says, and how long the reply is.
struct Turn {
    int wait = 0; ///< steps after the reply before it
    std::string say = {};
    int reply = 0; ///< bytes
};

/// A user, who arrives at a step with a shared prompt and goes on from reply to reply. A step is one forward pass.
struct User {
    int at = 0;
    std::uint64_t seed = 0;  ///< of the random numbers of the replies
    std::string system = {}; ///< a prompt that users share; may be empty
    std::vector<Turn> turns = {};

    /// Bytes of the whole conversation.
    std::int64_t length() const;
};

using Trace = std::vector<User>;

/// A file has a user in each line, as JSON:
///
///     {"at": 3, "seed": 7, "system": "ESCALUS:\n...", "turns": [{"wait": 0, "say": "ROMEO:\n...", "reply": 24}, ...]}
///
/// Throws if a line has anything else; the message names the line.
Trace read_trace(const std::string& path);

void write_trace(std::ostream& stream, const Trace& trace);

struct TraceOptions {
    std::uint64_t seed = 1;
    int users = 48;
    int systems = 3;     ///< different shared prompts
    double interval = 4; ///< mean steps from one arrival to the next; the intervals are exponentially distributed
    int turns = 3;       ///< of a user at most
    int reply = 32;      ///< bytes of a reply at most
    int length = 256;    ///< of a conversation at most
};

/// A random trace, the same for the same options with every standard library.
Trace random_trace(const TraceOptions& options);

} // namespace serve
