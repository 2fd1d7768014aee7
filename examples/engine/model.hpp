// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "architecture.hpp"
#include "gguf_file.hpp"
#include "processor.hpp"
#include "weights.hpp"

#include <string>

namespace engine {

/// A model from a file, ready to be computed. Throws `FileError` if the file is none that the engine knows.
class Model {
public:
    Model(const std::string& path, int threads)
        : file_{path}, processor_{threads}, shape_{read_shape(file_)}, weights_{file_, shape_, processor_} {}
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    const GgufFile& file() const { return file_; }
    const Processor& processor() const { return processor_; }
    const Shape& shape() const { return shape_; }
    const Weights& weights() const { return weights_; }

private:
    GgufFile file_;
    Processor processor_;
    Shape shape_;
    Weights weights_;
};

} // namespace engine
