// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "architecture.hpp"

#include <generate/file.hpp>
#include <stdexcept>
#include <string>

namespace folder {

const Architecture& architecture_of(std::string_view model_type) {
    std::string names;
    for (const Architecture& known : architectures) {
        if (known.model_type == model_type) return known;
        names += (names.empty() ? "" : ", ") + std::string{known.model_type};
    }
    throw std::runtime_error{"the model is a " + llama::in_quotes(model_type) + ", expected one of " + names};
}

} // namespace folder
