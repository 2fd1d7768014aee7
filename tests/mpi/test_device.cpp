// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "backend/worker.hpp"

#define CELLAR_DEVICES cellar_test::WorkerBackend
#include "device_suite.hpp"

namespace {

void start_devices() {}

} // namespace
