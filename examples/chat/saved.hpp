// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "conversation.hpp"
#include "pool/text_pool.hpp"
#include <cellar/files/file_options.hpp>

#include <string>

namespace chat {

/// Writes a conversation and what the memory has of it to one file. `model` tells models apart. The tokens are in a
/// note of the snapshot, so a crash cannot part them. `progress` may be empty.
void save(const std::string& path, const std::string& model, const Conversation& conversation, llama::Texts& pool,
          const cellar::FileProgress& progress = {});

/// Reads a conversation into one that exists: everything but the name and the number is replaced. Throws if the file
/// does not suit, or has tokens from `vocabulary` on; the conversation is then as it was.
void load(const std::string& path, const std::string& model, Conversation& conversation, llama::Texts& pool,
          int vocabulary = 256);

} // namespace chat
