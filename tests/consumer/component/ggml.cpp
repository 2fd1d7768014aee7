// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/cellar.hpp>
#include <cellar/interop/ggml.hpp>

// A tensor of ggml becomes rows for put.
int main() {
    const ggml_context_ptr context{ggml_init({1 << 16, nullptr, false})};
    const ggml_tensor* const tensor = ggml_new_tensor_3d(context.get(), cellar::ggml::type_of<float>, 4, 2, 3);
    const cellar::StridedView<const float, 3> rows = cellar::ggml::rows<float>(*tensor);
    return rows.extent(0) == 3 && rows.extent(1) == 2 && rows.extent(2) == 4 ? 0 : 1;
}
