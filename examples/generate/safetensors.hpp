// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "file.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace llama {

/// A file in the safetensors format: the length of the header in 8 bytes, the header as JSON, then the data of the
/// tensors. (https://huggingface.co/docs/safetensors) The constructor checks the whole file, so reading needs no more
/// checks.
class Safetensors {
public:
    using Metadata = std::map<std::string, std::string>;

    explicit Safetensors(File file);

    Safetensors(const Safetensors&) = delete; // data_ points into file_
    Safetensors& operator=(const Safetensors&) = delete;
    Safetensors(Safetensors&&) = default;
    Safetensors& operator=(Safetensors&&) = default;

    static Safetensors read(const std::string& path) { return Safetensors{read_file(path)}; }

    const std::string& name() const { return file_.name; }
    const Metadata& metadata() const { return metadata_; }

    std::vector<std::string> tensor_names() const;
    bool has(const std::string& tensor) const { return tensors_.contains(tensor); }

    /// The elements of a tensor as float, row by row.
    std::vector<float> tensor(const std::string& name, const std::vector<std::int64_t>& shape) const;

    [[noreturn]] void fail(const std::string& what) const { throw FileError{file_.name, what}; }

private:
    enum class Type { f16, bf16, f32 };

    struct Tensor {
        Type type{};
        std::vector<std::int64_t> shape;
        std::uint64_t begin = 0; // in data_
        std::uint64_t end = 0;
    };

    class HeaderReader;

    static std::uint64_t size_of(Type type) { return type == Type::f32 ? 4 : 2; }

    /// Checks the lengths, sets data_ and returns the header.
    std::string header_text();

    /// Checks that every byte of the data belongs to exactly one tensor.
    void check_coverage() const;

    std::vector<float> convert(const Tensor& tensor) const;

    File file_;
    std::span<const char> data_;
    Metadata metadata_;
    std::map<std::string, Tensor> tensors_;
};

} // namespace llama
