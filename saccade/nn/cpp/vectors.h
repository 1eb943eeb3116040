// As many numbers at once as the processor takes: floats, sums of products in eight bits, exponentials.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#if defined(__AVX512F__)
constexpr long LANES = 16;
#elif defined(__AVX__)
constexpr long LANES = 8;
#else
constexpr long LANES = 4;
#endif
constexpr long PARTS = LANES == 16 ? 4 : 2;  // of a panel: with more, sums of six rows would not fit into the registers
constexpr long PANEL = PARTS * LANES;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef float Anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));  // how floats lie in memory
typedef int32_t Words __attribute__((vector_size(4 * LANES)));
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The same number in all lanes; the sum with zero that other vectors of GCC ask for is one instruction more.
static inline Floats all_lanes(float x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_set1_ps(x);
#elif defined(__AVX__)
    return (Floats)_mm256_set1_ps(x);
#else
    return Floats{x, x, x, x};
#endif
}

// a b + c, rounded once wherever the processor can: in every tile alike, so that no row depends on its neighbours.
static inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// x, or `least` where x is less; a NaN stays one.
static inline Floats no_less_than(Floats x, Floats least) {
#if defined(__AVX512F__)
    return (Floats)_mm512_max_ps((__m512)least, (__m512)x);
#elif defined(__AVX__)
    return (Floats)_mm256_max_ps((__m256)least, (__m256)x);
#else
    return x < least ? least : x;
#endif
}

// Which lanes are among so many first ones.
static inline Words first_lanes(long count) {
    Words lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane < Words{} + (int32_t)count;
}

// The largest of all lanes.
static inline float largest_of(Floats x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#elif defined(__AVX__)
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
#else
    return std::max(std::max(x[0], x[1]), std::max(x[2], x[3]));
#endif
}

constexpr long ABREAST = 4;  // vectors at a time, where each would have to wait for the one before

// The largest that each lane has of whole vectors; NaN is none.
static void highest_of_lanes(const float* x, long count, float* highest) {
    Floats found[ABREAST];
    for (Floats& each : found) each = all_lanes(-INFINITY);
    const auto look_at = [&](Floats& each, Floats now) { each = now > each ? now : each; };
    long i = 0;
    for (; i + ABREAST * LANES <= count; i += ABREAST * LANES)
        for (long v = 0; v < ABREAST; v++) look_at(found[v], *(const Anywhere*)(x + i + v * LANES));
    for (; i + LANES <= count; i += LANES) look_at(found[0], *(const Anywhere*)(x + i));
    for (long v = 1; v < ABREAST; v++) look_at(found[0], found[v]);
    *(Anywhere*)highest = found[0];
}

// The largest of so many numbers; NaN is none.
static float largest_of(const float* x, long count) {
    float highest[LANES], found = -INFINITY;
    highest_of_lanes(x, count, highest);
    for (float each : highest) found = std::max(found, each);
    for (long i = count / LANES * LANES; i < count; i++) found = x[i] > found ? x[i] : found;
    return found;
}

// A bit for each lane that is more than `least`, or NaN.
static inline uint32_t above(Floats x, float least) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(least), _CMP_NLE_UQ);
#elif defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)x, _mm256_set1_ps(least), _CMP_NLE_UQ));
#else
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits |= (uint32_t) !(x[lane] <= least) << lane;
    return bits;
#endif
}

// The sums of four vectors, side by side: two steps for all four at once, and the rest for what is left of them.
static inline void four_sums(Floats a, Floats b, Floats c, Floats d, float* sums) {
#if defined(__AVX512F__)
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps((__m512)a, (__m512)b), _mm512_unpackhi_ps((__m512)a, (__m512)b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps((__m512)c, (__m512)d), _mm512_unpackhi_ps((__m512)c, (__m512)d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), upper);
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#elif defined(__AVX__)
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b), _mm256_unpackhi_ps((__m256)a, (__m256)b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d), _mm256_unpackhi_ps((__m256)c, (__m256)d));
    const __m256 all = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#else
    const Floats each[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) sums[i] = (each[i][0] + each[i][2]) + (each[i][1] + each[i][3]);
#endif
}

// The sum of one.
static inline float sum_of(Floats x) {
    float sums[4];
    four_sums(x, x, x, x, sums);
    return sums[0];
}

// Eight bits: sums of four products of unsigned weights (w + 128) and signed inputs.
// Without instructions for four, sums of two products must fit into sixteen bits: inputs then have fewer levels.
#if defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#if defined(__AVX512BW__)
typedef __m512i Ints;
static inline Ints load(const void* at) { return _mm512_loadu_si512(at); }
static inline Floats as_floats(Ints x) { return (Floats)_mm512_cvtepi32_ps(x); }
#if defined(__AVX512VNNI__)
constexpr int LEVELS = 127;
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    // as written: of the intrinsic, GCC copies every sum, and with more than sixteen of them it takes them to memory
    const Ints each = _mm512_set1_epi32(inputs);
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(each));
    return sum;
}
#else
constexpr int LEVELS = 63;
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    const Ints pairs = _mm512_maddubs_epi16(weights, _mm512_set1_epi32(inputs));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif
#else
typedef __m256i Ints;
static inline Ints load(const void* at) { return _mm256_loadu_si256((const __m256i*)at); }
static inline Floats as_floats(Ints x) { return (Floats)_mm256_cvtepi32_ps(x); }
#if defined(__AVXVNNI__)
constexpr int LEVELS = 127;
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    const Ints each = _mm256_set1_epi32(inputs);
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(weights), "x"(each));  // as above
    return sum;
}
#else
constexpr int LEVELS = 63;
static inline Ints add_products(Ints sum, Ints weights, int32_t inputs) {
    const Ints pairs = _mm256_maddubs_epi16(weights, _mm256_set1_epi32(inputs));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif
#endif
constexpr long LANES_OF_INTS = sizeof(Ints) / 4;
static_assert(LANES_OF_INTS == LANES, "a panel has the same width in floats and in bytes");
#define HAS_BYTES 1
#else
#define HAS_BYTES 0
#endif

// e^x of x up to 88, to seven digits: 2^n times a polynomial of the rest, which is off by 3e-9 at most.
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;  // a NaN stays one
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;  // rounded: no fractions are that far
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.3814595879e-3f;
    p = p * r + 8.3687056560e-3f;
    p = p * r + 4.1668387298e-2f;
    p = p * r + 1.6666520725e-1f;
    p = p * r + 4.9999993453e-1f;
    p = p * r * r + r + 1.0f;
    return __builtin_bit_cast(float, __builtin_bit_cast(int32_t, p) + (__builtin_bit_cast(int32_t, shifted) << 23));
}

// The same of any x; from 88 on it stays as it is.
static inline float any_exponential(float x) { return exponential(x > 88.0f ? 88.0f : x); }
