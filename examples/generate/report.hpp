// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "memory.hpp"
#include "session.hpp"

#include <cstdint>
#include <ostream>
#include <string>

namespace llama {

/// Tokens and the time that they took.
struct Pace {
    std::int64_t tokens = 0;
    double seconds = 0;

    double per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// What a run of `generate` has to say.
struct Report {
    std::string model;
    std::int64_t parameters = 0;
    std::string backend;
    std::string execution_space; ///< of Kokkos; empty if another backend does the work
    std::string layout;
    std::string cache_type;
    int context = 0;
    std::uint64_t seed = 0;
    double temperature = 0;
    std::string prompt;
    std::string text; ///< what was generated, as bytes
    Pace prefill;
    Pace decode;
    std::int64_t drafted = 0;  ///< tokens that were guessed
    std::int64_t accepted = 0; ///< of these
    MemoryUse memory;
    int shifts = 0;
    Check check;
};

void print(std::ostream& stream, const Report& r);

/// As JSON. The model may well write bytes that are no UTF-8: they are replaced.
void write_json(std::ostream& stream, const Report& r);

} // namespace llama
