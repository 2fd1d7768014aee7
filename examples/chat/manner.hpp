// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "pool/text_model.hpp"

#include <span>
#include <string>
#include <vector>

namespace chat {

/// How what is said is written for a model.
class Manner {
public:
    virtual ~Manner() = default;

    /// Appends what the user says, and the beginning of the reply.
    virtual void say(std::vector<int>& tokens, const std::string& line) const = 0;
    /// True if nothing more belongs to the reply.
    virtual bool ends(std::span<const int> reply) const = 0;
};

/// As a play, in bytes: the name of a character in a line of its own, what is said, an empty line.
class Play final : public Manner {
public:
    /// `stop` ends a reply; if it is empty, nothing does.
    Play(std::string user, std::string speaker, std::string stop)
        : user_{std::move(user)}, speaker_{std::move(speaker)}, stop_{std::move(stop)} {}

    void say(std::vector<int>& tokens, const std::string& line) const override;
    bool ends(std::span<const int> reply) const override;

private:
    std::string user_;
    std::string speaker_;
    std::string stop_;
};

} // namespace chat
