// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// What every vector can do, for one level of instructions. Included once for each level, and once more for each family
// of kernels, with these macros:
//   CELLAR_KERNELS: the namespace within cellar::detail,
//   CELLAR_VECTOR: the vector's type, see vector.hpp,
//   CELLAR_TARGET: the attribute that makes the compiler use these instructions, whatever its flags, and a comma.
// A template cannot do this: an attribute cannot depend on its arguments. Without these macros the file is empty.
#ifdef CELLAR_KERNELS

// NOLINTNEXTLINE(modernize-concat-nested-namespaces): they are, but for the macro's
namespace cellar::detail::CELLAR_KERNELS {

#define CELLAR_INLINE [[CELLAR_TARGET gnu::always_inline]] inline

using Vector = CELLAR_VECTOR;
using Floats = Vector::Floats;
using Ints = Vector::Ints;
using Unsigned = std::uint32_t __attribute__((vector_size(sizeof(Ints))));
inline constexpr int lanes = Vector::lanes;
using Lanes = std::make_index_sequence<std::size_t{lanes}>;

template <class E>
CELLAR_INLINE Floats load(const E* from) {
    return Vector::load(from);
}
CELLAR_INLINE void store(float* to, Floats floats) {
    std::memcpy(to, &floats, sizeof(floats));
}

template <std::size_t... I>
CELLAR_INLINE Floats broadcast(float x, std::index_sequence<I...>) {
    return Floats{(static_cast<void>(I), x)...};
}
CELLAR_INLINE Floats broadcast(float x) {
    return broadcast(x, Lanes{});
}

// Lane i of the result is lane I of a, or lane I - lanes of b.
template <std::size_t... I, class V>
CELLAR_INLINE V shuffle(V a, V b) {
#if defined(__CUDACC__) // nvcc does not expand packs among the arguments of the builtin
    return V{(I < sizeof...(I) ? a[I % sizeof...(I)] : b[I % sizeof...(I)])...};
#else
    return __builtin_shufflevector(a, b, static_cast<int>(I)...);
#endif
}
#if !defined(__CUDACC__)
// Four lanes, from 4 * Part on.
template <std::size_t Part, class V>
CELLAR_INLINE auto part(V v) {
    constexpr int first = 4 * Part;
    return __builtin_shufflevector(v, v, first, first + 1, first + 2, first + 3);
}
#endif
// Interleaves n lanes of a and of b each, from `First` on: a0 b0 a1 b1 ...
template <std::size_t First, class V, std::size_t... I>
CELLAR_INLINE V zip(V a, V b, std::index_sequence<I...>) {
    return shuffle<(First + I / 2 + I % 2 * sizeof...(I))...>(a, b);
}
template <std::size_t First, class V, std::size_t... I>
CELLAR_INLINE V zip_fours(V a, V b, std::index_sequence<I...>) {
    return shuffle<(I / 4 * 4 + First + I % 4 / 2 + I % 2 * lanes)...>(a, b);
}
// Lane 4 p + i of v[j] becomes lane 4 p + j of v[i], for four vectors.
template <class V>
CELLAR_INLINE void transpose_fours(V* v) {
    constexpr Lanes all;
    const V even[] = {zip_fours<0>(v[0], v[2], all), zip_fours<0>(v[1], v[3], all)};
    const V odd[] = {zip_fours<2>(v[0], v[2], all), zip_fours<2>(v[1], v[3], all)};
    v[0] = zip_fours<0>(even[0], even[1], all);
    v[1] = zip_fours<2>(even[0], even[1], all);
    v[2] = zip_fours<0>(odd[0], odd[1], all);
    v[3] = zip_fours<2>(odd[0], odd[1], all);
}
// Lane i becomes lane i + By, around.
template <std::size_t By, std::size_t... I>
CELLAR_INLINE Floats rotate(Floats v, std::index_sequence<I...>) {
    return shuffle<((I + By) % lanes)...>(v, v);
}
// Lanes 2 i and 2 i + 1 change places.
template <std::size_t... I>
CELLAR_INLINE Floats swap_neighbours(Floats v, std::index_sequence<I...>) {
    return shuffle<(I ^ 1)...>(v, v);
}

// Lanes whose index has bit Half: the sums of two lanes of b that are Half apart; the others: those of a.
template <std::size_t Half, std::size_t... I>
CELLAR_INLINE Floats sum_pairs(Floats a, Floats b, std::index_sequence<I...>) {
    constexpr auto of_b = [](std::size_t i) { return (i & Half) != 0 ? std::size_t{lanes} : 0; };
    return shuffle<(I + of_b(I))...>(a, b) + shuffle<((I ^ Half) + of_b(I))...>(a, b);
}
// Lane i of the result in v[0] is the sum of the lanes of v[i].
template <std::size_t... I>
CELLAR_INLINE void sum_lanes(Floats* v, std::index_sequence<I...>) {
    constexpr std::size_t half = sizeof...(I);
    ((v[I] = sum_pairs<half>(v[I], v[I + half], Lanes{})), ...);
    if constexpr (half > 1) sum_lanes(v, std::make_index_sequence<half / 2>{});
}

// Element i of v[j] becomes element j of v[i], for n vectors of n lanes: vectors i and i + n / 2 are interleaved into
// vectors 2i and 2i + 1, log2(n) times. Without loops, because -O2 does not unroll them, and the vectors would lie in
// memory instead of registers.
template <std::size_t Rounds, class V, std::size_t... I>
CELLAR_INLINE void transpose(V* v, std::index_sequence<I...> halves) {
    constexpr std::size_t half = sizeof...(I);
    constexpr std::make_index_sequence<2 * half> all;
    V next[2 * half];
    ((next[2 * I] = zip<0>(v[I], v[I + half], all), next[2 * I + 1] = zip<half>(v[I], v[I + half], all)), ...);
    ((v[2 * I] = next[2 * I], v[2 * I + 1] = next[2 * I + 1]), ...);
    if constexpr (Rounds > 2) transpose<Rounds / 2>(v, halves);
}

#undef CELLAR_INLINE

} // namespace cellar::detail::CELLAR_KERNELS

#endif
