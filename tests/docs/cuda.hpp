// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>

// The calls of CUDA in own_memory.cu. Without a compiler for CUDA, they work on the host, as late as a device may: what
// is enqueued is done when the stream is synchronised, and not before.
#if !defined(__CUDACC__)

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#define __global__
#define __device__

struct HostIndex {
    unsigned x;
};
inline HostIndex blockIdx{0};
inline HostIndex threadIdx{0};
inline constexpr HostIndex blockDim{128};

struct HostStream {
    std::vector<std::function<void()>> work;
};
using cudaStream_t = HostStream*;
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "out of memory";
}
inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new HostStream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    for (const auto& work : std::exchange(stream->work, {})) work();
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaStreamSynchronize(stream);
    delete stream;
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
    *data = static_cast<T*>(std::malloc(bytes));
    return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
    std::free(data);
    return cudaSuccess;
}
/// From pageable memory of the host, CUDA copies at once to memory of its own. To the host, it waits.
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    const auto* const first = static_cast<const char*>(from);
    if (kind == cudaMemcpyHostToDevice) {
        stream->work.push_back(
            [to, staged = std::vector<char>{first, first + bytes}] { std::memcpy(to, staged.data(), staged.size()); });
    } else {
        cudaStreamSynchronize(stream);
        std::memcpy(to, from, bytes);
    }
    return cudaSuccess;
}

#endif

namespace own_memory {

inline void check(cudaError_t error) {
    if (error == cudaErrorMemoryAllocation) throw std::bad_alloc{};
    if (error != cudaSuccess) throw std::runtime_error{cudaGetErrorString(error)};
}

/// The number of a thread of a kernel.
__device__ inline std::int64_t index() {
    return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

/// Enqueues a kernel with so many threads, or some more.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::int64_t threads, cudaStream_t stream, Arguments... arguments) {
    const auto blocks = static_cast<unsigned>((threads + 127) / 128);
    if (blocks == 0) return;
#if defined(__CUDACC__)
    kernel<<<blocks, 128, 0, stream>>>(arguments...);
    check(cudaGetLastError());
#else
    stream->work.push_back([=] {
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments...);
    });
#endif
}

} // namespace own_memory
