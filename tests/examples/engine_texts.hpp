// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "commands.hpp"
#include "pool/text_pool.hpp"
#include "random_gguf.hpp"

#include <cstddef>
#include <ggml.h>
#include <span>
#include <string>
#include <vector>

// What tests of the engine beside libllama compute.

/// Tokens of a text; each number has another one.
inline std::vector<int> text_of(int length, int number, int vocabulary = 160) {
    std::vector<int> text;
    for (int i = 0; i < length; ++i) text.push_back((i * 37 + number * 11 + i * i * number) % vocabulary);
    return text;
}

/// Tokens [begin, end) of a text, for a batch.
inline llama::NewTokens part(int number, std::span<const int> text, int begin, int end) {
    return {number, text.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))};
}

/// The path of a file with this model. Files stay until the tests end.
inline std::string written(const RandomModel& random) {
    static const Scratch folder;
    const std::string path = folder.path(random.architecture + "-" + ggml_type_name(random.type) + "-"
                                         + std::to_string(random.layers) + "-" + std::to_string(random.head_dim));
    write_gguf(path, random);
    return path;
}
