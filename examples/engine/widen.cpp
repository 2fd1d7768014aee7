// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "widen.hpp"

#include "gguf_file.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ggml-cpp.h>
#include <ggml.h>
#include <gguf.h>

namespace engine {

void widen(const std::string& from, const std::string& to) {
    const GgufFile file{from};
    if (!std::ofstream{to, std::ios::app}) throw FileError{to, "cannot be written"}; // before all of the work
    const std::int64_t count = gguf_get_n_tensors(file.metadata());
    const auto tensor = [&](std::int64_t i) { return file.tensor(gguf_get_tensor_name(file.metadata(), i)); };
    std::size_t bytes = 0;
    for (std::int64_t i = 0; i < count; ++i)
        bytes += ggml_tensor_overhead() + 64 + static_cast<std::size_t>(ggml_nelements(tensor(i))) * sizeof(float);
    const ggml_context_ptr context{ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = false})};
    const gguf_context_ptr written{gguf_init_empty()};
    if (!context || !written) throw FileError{to, "there is not enough memory for its weights"};
    gguf_set_kv(written.get(), file.metadata());
    gguf_set_val_u32(written.get(), "general.file_type", 0); // all in floats
    for (std::int64_t i = 0; i < count; ++i) {
        const ggml_tensor* const own = tensor(i);
        ggml_tensor* const wide = ggml_new_tensor(context.get(), GGML_TYPE_F32, GGML_MAX_DIMS, own->ne);
        ggml_set_name(wide, own->name);
        if (own->type == GGML_TYPE_F32) {
            std::memcpy(wide->data, own->data, ggml_nbytes(own));
        } else {
            const ggml_to_float_t convert = ggml_get_type_traits(own->type)->to_float;
            if (convert == nullptr) file.fail(std::string{"the tensor "} + own->name + " is of no type with values");
            convert(own->data, static_cast<float*>(wide->data), ggml_nelements(own));
        }
        gguf_add_tensor(written.get(), wide);
    }
    if (!gguf_write_to_file(written.get(), to.c_str(), false)) throw FileError{to, "cannot be written"};
}

} // namespace engine
