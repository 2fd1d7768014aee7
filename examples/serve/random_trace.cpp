// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "trace.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <random>

namespace serve {

namespace {

/// The beginnings of scenes. Each is a shared prompt.
constexpr std::array<const char*, 6> scenes = {
    "PRINCE:\nRebellious subjects, enemies to peace,\nProfaners of this neighbour-stained steel!\n\n",
    "CHORUS:\nTwo households, both alike in dignity,\nIn fair Verona, where we lay our scene.\n\n",
    "GLOUCESTER:\nNow is the winter of our discontent\nMade glorious summer by this sun of York.\n\n",
    "MENENIUS:\nThere was a time when all the body's members\nRebell'd against the belly.\n\n",
    "DUKE VINCENTIO:\nOf government the properties to unfold,\nWould seem in me to affect speech.\n\n",
    "FRIAR LAURENCE:\nThe grey-eyed morn smiles on the frowning night,\nChequering the clouds.\n\n",
};

constexpr std::array<const char*, 12> lines = {
    "Good morrow, cousin.",  "What news?",          "Speak, good sir.", "Is it even so?",  "Where is my lord?",
    "Why, what means this?", "Peace, I say!",       "Tell me more.",    "Art thou a man?", "Who comes here?",
    "Alas the day!",         "How fares the king?",
};

class Random {
public:
    explicit Random(std::uint64_t seed) : random_{seed} {}

    /// In [0, 1). The distributions of <random> differ between libraries.
    double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
    /// In [from, to].
    int between(int from, int to) { return from + static_cast<int>(uniform() * (to - from + 1)); }

private:
    std::mt19937_64 random_;
};

} // namespace

Trace random_trace(const TraceOptions& o) {
    Random random{o.seed};
    Trace trace;
    double arrival = 0;
    for (int i = 0; i < o.users; ++i) {
        arrival += -o.interval * std::log(1 - random.uniform());
        User user{.at = static_cast<int>(arrival), .seed = o.seed * 1'000'003 + static_cast<std::uint64_t>(i)};
        user.system = scenes[static_cast<std::size_t>(random.between(0, o.systems - 1)) % scenes.size()];
        const int turns = random.between(1, o.turns);
        for (int turn = 0; turn < turns; ++turn) {
            const std::string line = lines[static_cast<std::size_t>(random.between(0, 11))];
            Turn next{.wait = turn == 0 ? 0 : random.between(5, 40),
                      .say = (turn == 0 ? "ROMEO:\n" : "\n\nROMEO:\n") + line + "\n\nJULIET:\n",
                      .reply = random.between(std::max(1, o.reply / 2), o.reply)};
            if (user.length() + static_cast<int>(next.say.size()) + next.reply > o.length) break;
            user.turns.push_back(std::move(next));
        }
        if (!user.turns.empty()) trace.push_back(std::move(user));
    }
    return trace;
}

} // namespace serve
