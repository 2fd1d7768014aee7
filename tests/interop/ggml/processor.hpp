// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <atomic>
#include <ggml-cpp.h>

namespace ggml_test {

/// Loads ggml's plugins, once.
inline void load_plugins() {
    [[maybe_unused]] static const bool are_loaded = (ggml_backend_load_all(), true);
}

/// ggml's backend for the processor. It may be a plugin, so its functions are found by name.
class Processor {
public:
    explicit Processor(int threads)
        : device_{(load_plugins(), ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU))},
          backend_{ggml_backend_dev_init(device_, nullptr)} {
        function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(backend_.get(), threads);
        function<ggml_backend_set_abort_callback_t>("ggml_backend_set_abort_callback")(backend_.get(), aborts, this);
    }
    Processor(const Processor&) = delete;
    Processor& operator=(const Processor&) = delete;

    ggml_backend_t backend() const { return backend_.get(); }

    /// Computations end once ggml has asked this often whether they shall; -1: they do not.
    void abort_after(int questions) { questions_ = questions; }

private:
    template <class F>
    F function(const char* name) const {
        return reinterpret_cast<F>(ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device_), name));
    }
    static bool aborts(void* processor) {
        std::atomic<int>& questions = static_cast<Processor*>(processor)->questions_;
        return questions >= 0 && questions-- == 0;
    }

    ggml_backend_dev_t device_;
    ggml_backend_ptr backend_;
    std::atomic<int> questions_{-1};
};

} // namespace ggml_test
