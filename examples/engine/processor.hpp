// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <ggml-cpp.h>
#include <vector>

namespace engine {

/// ggml's backend for the processor, which may come from a plugin: so nothing of it is called by name.
class Processor {
public:
    explicit Processor(int threads);

    int threads() const { return threads_; }
    ggml_backend_t backend() const { return backend_.get(); }
    ggml_backend_buffer_type_t buffer_type() const { return ggml_backend_dev_buffer_type(device_); }

    /// The kind of memory in which products with these weights are fastest: one that packs them, or the ordinary one.
    ggml_backend_buffer_type_t best_for(const ggml_tensor& weights) const;

private:
    int threads_;
    ggml_backend_dev_t device_;
    ggml_backend_ptr backend_;
    std::vector<ggml_backend_buffer_type_t> packed_;
};

} // namespace engine
