// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cellar/interop/ggml_model.hpp>

#include <cstddef>
#include <cstdint>
#include <ggml-cpp.h>
#include <gguf.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

/// Something in a file, as a sentence: the file, what it has, and what was expected.
class FileError : public std::runtime_error {
public:
    FileError(const std::string& path, const std::string& what) : std::runtime_error{path + ": " + what} {}
};

/// Read-only memory with the contents of a file.
class MappedFile {
public:
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    char* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    char* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A GGUF file: metadata by their keys, and tensors by their names, whose data are mapped. Throws `FileError` if it is
/// none, or ends too early.
class GgufFile {
public:
    explicit GgufFile(const std::string& path);

    const std::string& path() const { return path_; }
    const gguf_context* metadata() const { return metadata_.get(); }

    /// The value of a key, or nothing if there is none.
    std::optional<cellar::models::ConfigValue> value(const std::string& key) const {
        return cellar::models::gguf_keys(metadata())(key);
    }

    /// Null if there is none. Its data are those of the file.
    ggml_tensor* tensor(const std::string& name) const { return ggml_get_tensor(tensors_.get(), name.c_str()); }

    /// Sixteen hexadecimal digits that tell models apart, by all metadata and the first and last bytes of each tensor.
    std::string fingerprint() const;

    [[noreturn]] void fail(const std::string& what) const { throw FileError{path_, what}; }

private:
    std::string path_;
    MappedFile mapped_;
    gguf_context_ptr metadata_;
    ggml_context_ptr tensors_;
    ggml_backend_buffer_ptr buffer_; // over mapped_
};

} // namespace engine
