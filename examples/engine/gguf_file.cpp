// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gguf_file.hpp"

#include "generate/file.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace engine {

namespace {

std::string reason() {
    return std::generic_category().message(errno);
}

} // namespace

MappedFile::MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw FileError{path, "cannot be opened: " + reason()};
    struct stat status {};
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
        close(file);
        throw FileError{path, "is no file with contents"};
    }
    size_ = static_cast<std::size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const std::string failure = mapped == MAP_FAILED ? reason() : "";
    close(file);
    if (!failure.empty()) throw FileError{path, "cannot be mapped: " + failure};
    data_ = static_cast<char*>(mapped);
}

MappedFile::~MappedFile() {
    munmap(data_, size_);
}

GgufFile::GgufFile(const std::string& path) : path_{path}, mapped_{path} {
    ggml_context* tensors = nullptr;
    metadata_.reset(gguf_init_from_buffer(mapped_.data(), mapped_.size(), {.no_alloc = true, .ctx = &tensors}));
    tensors_.reset(tensors);
    if (!metadata_) fail("is no GGUF file, or a damaged one");
    const std::size_t begin = gguf_get_data_offset(metadata_.get());
    buffer_.reset(ggml_backend_cpu_buffer_from_ptr(mapped_.data(), mapped_.size()));
    for (std::int64_t i = 0; i < gguf_get_n_tensors(metadata_.get()); ++i) {
        const std::string name = gguf_get_tensor_name(metadata_.get(), i);
        const std::size_t offset = begin + gguf_get_tensor_offset(metadata_.get(), i);
        ggml_tensor* const t = tensor(name);
        if (offset > mapped_.size() || ggml_nbytes(t) > mapped_.size() - offset)
            fail("ends within the tensor " + name + ", expected a whole file");
        if (offset % 32 != 0) fail("the tensor " + name + " is not aligned to 32 bytes");
        if (ggml_backend_tensor_alloc(buffer_.get(), t, mapped_.data() + offset) != GGML_STATUS_SUCCESS)
            fail("the tensor " + name + " has no room in the file");
    }
}

std::string GgufFile::fingerprint() const {
    constexpr std::size_t sample = 4096; // bytes
    llama::Fingerprint hash;
    hash.add({mapped_.data(), std::min(mapped_.size(), gguf_get_data_offset(metadata()))});
    for (std::int64_t i = 0; i < gguf_get_n_tensors(metadata()); ++i) {
        const ggml_tensor* const t = tensor(gguf_get_tensor_name(metadata(), i));
        const std::span bytes{static_cast<const char*>(t->data), ggml_nbytes(t)};
        hash.add(bytes.first(std::min(sample, bytes.size())));
        hash.add(bytes.last(std::min(sample, bytes.size())));
    }
    return hash.digits();
}

} // namespace engine
