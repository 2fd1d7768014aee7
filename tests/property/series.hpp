// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

namespace property {

// Every run draws the same cases, so that a new failure means a change in the code.
inline const bool settled = [] {
    const char* given = std::getenv("RC_PARAMS");
    const bool counts = given != nullptr && std::string{given}.find("max_success") != std::string::npos;
    setenv("RC_PARAMS", "seed=20261121", 0);
    return counts;
}();

/// The time that this process has computed: what other processes do makes no difference.
inline double computed_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// True if a property holds for `least` random cases, and for as many others with the next seeds, until
/// CELLAR_PROPERTY_SECONDS in the environment are over (0 if it is not set). If not, prints the smallest failing case
/// found, and how to reproduce it, to stderr. RC_PARAMS in the environment sets rapidcheck's first seed, another number
/// of cases, and cases to reproduce.
template <class Property>
bool holds(const std::string& name, int least, const Property& property) {
    const char* given = std::getenv("CELLAR_PROPERTY_SECONDS");
    const double end = computed_seconds() + (given == nullptr ? 0 : std::atof(given));
    rc::detail::TestMetadata metadata;
    metadata.id = metadata.description = name;
    rc::detail::TestParams parameters = rc::detail::configuration().testParams;
    if (!settled) parameters.maxSuccess = least;
    do {
        std::cerr << "\n- " << name << ", seed " << parameters.seed << '\n';
        const auto result = rc::detail::checkTestable(property, metadata, parameters);
        rc::detail::printResultMessage(result, std::cerr);
        std::cerr << '\n';
        if (!result.template is<rc::detail::SuccessResult>()) return false;
        ++parameters.seed;
    } while (computed_seconds() < end);
    return true;
}

} // namespace property
