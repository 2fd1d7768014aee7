// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "gguf_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace engine {

namespace {

std::string reason() {
    return std::generic_category().message(errno);
}

/// One value of an array, or of a key (`data` points to it).
std::optional<double> number_at(gguf_type type, const void* data, std::size_t i) {
    const auto at = [&]<class T>(T) { return static_cast<double>(static_cast<const T*>(data)[i]); };
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_BOOL:
        return at(std::uint8_t{});
    case GGUF_TYPE_INT8:
        return at(std::int8_t{});
    case GGUF_TYPE_UINT16:
        return at(std::uint16_t{});
    case GGUF_TYPE_INT16:
        return at(std::int16_t{});
    case GGUF_TYPE_UINT32:
        return at(std::uint32_t{});
    case GGUF_TYPE_INT32:
        return at(std::int32_t{});
    case GGUF_TYPE_FLOAT32:
        return at(float{});
    case GGUF_TYPE_UINT64:
        return at(std::uint64_t{});
    case GGUF_TYPE_INT64:
        return at(std::int64_t{});
    case GGUF_TYPE_FLOAT64:
        return at(double{});
    default:
        return std::nullopt;
    }
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

std::optional<std::string> GgufFile::text(const std::string& key) const {
    const std::int64_t id = gguf_find_key(metadata_.get(), key.c_str());
    if (id < 0) return std::nullopt;
    if (gguf_get_kv_type(metadata_.get(), id) != GGUF_TYPE_STRING) fail(key + " is no text, expected one");
    return gguf_get_val_str(metadata_.get(), id);
}

std::optional<double> GgufFile::number(const std::string& key) const {
    const auto found = numbers(key);
    if (!found) return std::nullopt;
    if (found->size() != 1) fail(key + " has " + std::to_string(found->size()) + " numbers, expected one");
    return found->front();
}

std::optional<std::vector<double>> GgufFile::numbers(const std::string& key) const {
    const std::int64_t id = gguf_find_key(metadata_.get(), key.c_str());
    if (id < 0) return std::nullopt;
    gguf_type type = gguf_get_kv_type(metadata_.get(), id);
    const bool is_array = type == GGUF_TYPE_ARRAY;
    if (is_array) type = gguf_get_arr_type(metadata_.get(), id);
    if (type == GGUF_TYPE_STRING || type == GGUF_TYPE_ARRAY) fail(key + " has no numbers, expected some");
    const void* const data = is_array ? gguf_get_arr_data(metadata_.get(), id) : gguf_get_val_data(metadata_.get(), id);
    std::vector<double> found;
    for (std::size_t i = 0; i < (is_array ? gguf_get_arr_n(metadata_.get(), id) : 1); ++i) {
        const auto value = number_at(type, data, i);
        if (!value) fail(key + " has no numbers, expected some");
        found.push_back(*value);
    }
    return found;
}

} // namespace engine
