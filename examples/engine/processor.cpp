// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "processor.hpp"

#include <stdexcept>

namespace engine {

namespace {

template <class F>
F function(ggml_backend_dev_t device, const char* name) {
    return reinterpret_cast<F>(ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name));
}

ggml_backend_dev_t find_device() {
    static const bool loaded = (ggml_backend_load_all(), true);
    static_cast<void>(loaded);
    const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (device == nullptr) throw std::runtime_error{"ggml has no backend for the processor"};
    return device;
}

} // namespace

Processor::Processor(int threads)
    : threads_{threads}, device_{find_device()}, backend_{ggml_backend_dev_init(device_, nullptr)} {
    if (const auto set = function<ggml_backend_set_n_threads_t>(device_, "ggml_backend_set_n_threads"))
        set(backend_.get(), threads);
    if (const auto extra = function<ggml_backend_dev_get_extra_bufts_t>(device_, "ggml_backend_dev_get_extra_bufts"))
        for (auto* type = extra(device_); type != nullptr && *type != nullptr; ++type) packed_.push_back(*type);
}

ggml_backend_buffer_type_t Processor::best_for(const ggml_tensor& weights) const {
    constexpr int tokens = 512;
    const ggml_context_ptr context{
        ggml_init({.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})};
    for (const ggml_backend_buffer_type_t type : packed_) {
        ggml_tensor* const w = ggml_dup_tensor(context.get(), &weights);
        ggml_tensor* const product =
            ggml_mul_mat(context.get(), w, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, w->ne[0], tokens));
        const ggml_backend_buffer_ptr empty{ggml_backend_buft_alloc_buffer(type, 0)};
        w->buffer = empty.get();
        const bool supported = ggml_backend_dev_supports_op(device_, product);
        w->buffer = nullptr;
        if (supported) return type;
        ggml_reset(context.get());
    }
    return buffer_type();
}

} // namespace engine
