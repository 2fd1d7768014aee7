// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// Declares what the sources need of HIP, for a clang without HIP's own headers. Included before everything else.

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))

struct dim3 {
    unsigned x;
    unsigned y = 1;
    unsigned z = 1;

    __host__ __device__ dim3(unsigned n) : x{n} {}
};

// <<<>>> calls this before the kernel.
extern "C" int __hipPushCallConfiguration(dim3 blocks, dim3 threads, unsigned long bytes = 0, void* stream = nullptr);

struct HipIndex {
    unsigned x;
    unsigned y;
};

#define blockIdx                                                                                                       \
    HipIndex {                                                                                                         \
        __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y()                                           \
    }
#define threadIdx                                                                                                      \
    HipIndex {                                                                                                         \
        __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y()                                             \
    }

__device__ float expf(float);
__device__ float logf(float);
__device__ float tanhf(float);
