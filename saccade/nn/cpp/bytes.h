// Rows and tiles in eight bits: four inputs of an output lie side by side, and each row has a scale of its own.
#pragma once

#include "matrix_unit.h"
#include "tiles.h"

#if HAS_BYTES
// What sums of products in eight bits stand for.
static inline Floats scaled(Ints sum, float row, Floats factor, Floats more) {
    return multiply_add(as_floats(sum) * all_lanes(row), factor, more);
}

// A panel in eight bits: y = s_o m (sum_i (W + 128) q - 128 sum_i q) + b, with the scale m and the sum of each row; and no
// less than `least`.
template <int rows, typename Coming>
static void tile(const int8_t* x, long depth, const float* scales, const int32_t* sums,
                 const uint8_t* panel, const float* scale, const float* bias, float* y, long stride, Coming ahead,
                 float least) {
    Ints sum[rows][PARTS];
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < PARTS; part++) sum[row][part] = (Ints)(Words{} - 128 * sums[row]);
    for (long i = 0; i < depth; i += 4, panel += 4 * PANEL) {
        ahead.fetch();
        Ints weights[PARTS];
        for (int part = 0; part < PARTS; part++) weights[part] = load(panel + 4 * part * LANES);
        for (int row = 0; row < rows; row++) {
            int32_t inputs;
            memcpy(&inputs, x + row * depth + i, 4);
            for (int part = 0; part < PARTS; part++) sum[row][part] = add_products(sum[row][part], weights[part], inputs);
        }
    }
    Floats factor[PARTS], more[PARTS] = {};
    for (int part = 0; part < PARTS; part++) {
        factor[part] = *(const Anywhere*)(scale + part * LANES);
        if (bias) more[part] = *(const Anywhere*)(bias + part * LANES);
    }
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
        for (int part = 0; part < PARTS; part++)
            *(Anywhere*)(y + row * stride + part * LANES) =
                no_less_than(scaled(sum[row][part], scales[row], factor[part], more[part]), all_lanes(least));
}

// What is the largest level of a row: its largest number.
static float largest_size(const float* x, long count) {
    int32_t bits = __builtin_bit_cast(int32_t, 1e-30f);
#pragma omp simd reduction(max : bits)
    for (long i = 0; i < count; i++)  // in the order of their bits positive numbers grow, and NaN is the largest
        bits = std::max(bits, __builtin_bit_cast(int32_t, x[i]) & 0x7fffffff);
    return __builtin_bit_cast(float, bits);
}

constexpr float ROUNDED = 12582912.0f;  // a number of this size has no fractions: its last bits are what was added

// |x - x'|, of a row and of what eight bits make of it.
static float rounded_off(const float* x, long count) {
    const float largest = largest_size(x, count), factor = LEVELS / largest, scale = largest / LEVELS;
    double square = 0.0;
#pragma omp simd reduction(+ : square)
    for (long i = 0; i < count; i++) {
        const double off = x[i] - (x[i] * factor + ROUNDED - ROUNDED) * scale;
        square += off * off;
    }
    return (float)sqrt(square);
}
#endif

// Rows in eight bits, each with a scale of its own.
struct Quantised {
    struct alignas(64) Line {  // of a cache: what lies across two of them takes twice as long to read
        int8_t numbers[64];
    };
    std::vector<Line> lines;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    long depth;

    void make_room(long rows, long inputs) {
        const long count = padded(rows, MatrixUnit::ROWS) * padded(inputs, MatrixUnit::WHOLE);
        lines.resize(std::max<size_t>(lines.size(), padded(count, sizeof(Line)) / sizeof(Line)));
        scales.resize(std::max<size_t>(scales.size(), rows));
        sums.resize(std::max<size_t>(sums.size(), rows));
    }

    int8_t* at(long row) { return (int8_t*)lines.data() + row * depth; }

    void set(const float* x, long row, long inputs) {
#if HAS_BYTES
        const float* from = x + row * inputs;
        int8_t* to = at(row);
        const float largest = largest_size(from, inputs), factor = LEVELS / largest;
        int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < inputs; i++) {
            const int8_t rounded = (int8_t)__builtin_bit_cast(int32_t, from[i] * factor + ROUNDED);
            to[i] = rounded;
            sum += rounded;
        }
        for (long i = inputs; i < depth; i++) to[i] = 0;
        sums[row] = sum;
        scales[row] = largest / LEVELS;
#endif
    }
};
