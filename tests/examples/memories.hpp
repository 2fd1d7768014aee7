// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "llama/config.hpp"
#include "llama/memory.hpp"

#include <memory>
#include <string>

// The caches that the tests choose from, compiled once.
std::unique_ptr<llama::TextMemory> neox_memory(const llama::Config& config, const std::string& layout,
                                               const std::string& element, int capacity, int batch);
std::unique_ptr<llama::TextMemory> interleaved_memory(const llama::Config& config, const std::string& layout,
                                                      int capacity, int batch);
