// y = phi(W x + b) of few rows, by a team of threads.
//
// A table W (outputs x inputs) is cut into panels of PANEL outputs, which lie in memory as they are multiplied: input by
// input (in eight bits, four inputs at a time). A tile of a few rows and one panel is kept in registers.
#pragma once

#include <type_traits>

#include "threads.h"
#include "vectors.h"

constexpr long TILE = 6;  // rows of a tile: with more, their sums would not fit into the registers

struct Map {
    int64_t inputs, outputs;
    int64_t bytes;        // whether the table has eight bits
    const void* packed;   // floats (panels, inputs, PANEL), or bytes (panels, inputs / 4, PANEL, 4)
    const float* scale;   // of each output, in eight bits
    const float* bias;    // or none; both padded to whole panels
};

enum Activation : int64_t { NONE, RELU, GELU, GELU_TANH, SILU, SIGMOID };

static long padded(long number, long to) { return (number + to - 1) / to * to; }

static void activate(float* x, long count, int64_t activation) {
    switch (activation) {
        case RELU:
            for (long i = 0; i < count; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
            break;
        case GELU:
            for (long i = 0; i < count; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678f));
            break;
        case GELU_TANH:
            for (long i = 0; i < count; i++) {
                const float twice = 1.59576912f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
                x[i] *= 1.0f - 1.0f / (any_exponential(twice) + 1.0f);
            }
            break;
        case SILU:
            for (long i = 0; i < count; i++) x[i] /= 1.0f + any_exponential(-x[i]);
            break;
        case SIGMOID:
            for (long i = 0; i < count; i++) x[i] = 1.0f / (1.0f + any_exponential(-x[i]));
            break;
    }
}

// Numbers as tiles take them, 32 bits at a time: a float, or two in bfloat16, whose products are summed in one go.
struct Single {
    static constexpr long EACH = 1;
    static float atom(float first, float) { return first; }
    static Floats add(Floats sum, Floats weights, float x) { return multiply_add(weights, all_lanes(x), sum); }
};

// Memory that will be read soon, brought nearer piece by piece: otherwise it would wait while products are made. So many
// tiles fetch a panel together.
template <long tiles>
struct Ahead {
    static constexpr long PIECE = 4 * PANEL / tiles, LINE = 64;  // bytes: of what a tile reads for an input
    const char* at;

    void fetch() {
        for (long line = 0; line < PIECE; line += LINE) __builtin_prefetch(at + line, 0, 2);
        at += PIECE;
    }
};

// Of the tiles of so many rows, how many fetch what comes. A core of Intel's waits for few lines at a time: all its tiles
// share them, because many lines with every input would hold up the products. On AMD's two whole tiles do (docs/log.md).
static long fetching_tiles(long rows, bool bytes) {
#if defined(__x86_64__) || defined(__i386__)
    static const bool waits_for_few = __builtin_cpu_is("intel");
#else
    constexpr bool waits_for_few = false;
#endif
    if (!waits_for_few) return rows < 2 * TILE ? 0 : 2;
    return rows == 1 && !bytes ? 0 : std::min(padded(rows, TILE) / TILE, 4L);  // one row is read as fast as memory is
}

struct Nothing {
    void fetch() {}
};

// y (rows, a panel or some parts of it) = x W: the next row of x is `row` away, its next input `next`, and that of the
// panel `below`. What is at `start`, if anything, comes on top; its next row is `same` away, 0 for a bias.
template <typename Kind, int rows, int parts, typename Coming = Nothing>
static void tile(const float* x, long row, long next, long inputs, const float* panel, long below, const float* start,
                 long same, float* y, long stride, Coming ahead = {}) {
    Floats sum[rows][parts] = {};
    for (long i = 0; i < inputs; i++, panel += below, x += next) {
        ahead.fetch();
        Floats weights[parts];
        for (int part = 0; part < parts; part++) weights[part] = *(const Anywhere*)(panel + part * LANES);
        for (int r = 0; r < rows; r++)
            for (int part = 0; part < parts; part++) sum[r][part] = Kind::add(sum[r][part], weights[part], x[r * row]);
    }
    if (start)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            for (int part = 0; part < parts; part++) sum[r][part] += *(const Anywhere*)(start + r * same + part * LANES);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < parts; part++) *(Anywhere*)(y + r * stride + part * LANES) = sum[r][part];
}

// `each` with the number of rows of a tile as a constant.
template <typename Each>
__attribute__((always_inline)) static inline void with_rows(long rows, Each each) {
    switch (rows) {
        case 1: return each(std::integral_constant<int, 1>{});
        case 2: return each(std::integral_constant<int, 2>{});
        case 3: return each(std::integral_constant<int, 3>{});
        case 4: return each(std::integral_constant<int, 4>{});
        case 5: return each(std::integral_constant<int, 5>{});
        default: return each(std::integral_constant<int, TILE>{});
    }
}

template <typename Kind, int parts = PARTS, typename... Rest>
static void tiles(long rows, Rest... rest) {
    with_rows(rows, [&](auto number) { tile<Kind, number, parts>(rest...); });
}

// y (rows, width) = x W, or more of it, over a width of whole vectors.
static void multiply(long rows, const float* x, long row, long next, long inputs, const float* table, long below, float* y,
                     long stride, long width, bool more = false) {
    for (long r = 0; r < rows; r += TILE)
        for (long first = 0; first < width; first += PANEL) {
            const long count = std::min(TILE, rows - r);
            float* to = y + r * stride + first;
            const float* start = more ? to : nullptr;
            const auto parts = [&](auto number) {
                tiles<Single, number>(count, x + r * row, row, next, inputs, table + first, below, start, stride, to,
                                      stride);
            };
            switch (std::min(PARTS, (width - first) / LANES)) {
                case 1: parts(std::integral_constant<int, 1>{}); break;
                case 2: parts(std::integral_constant<int, 2>{}); break;
                case 3: parts(std::integral_constant<int, 3>{}); break;
                default: parts(std::integral_constant<int, PARTS>{});
            }
        }
}

// Columns as rows, padded with zeros: x (cells, width), every `stride` -> (width, across).
static void turn_over(const float* x, long stride, long cells, long width, float* to, long across) {
    for (long i = 0; i < width; i++) {
        for (long cell = 0; cell < cells; cell++) to[i * across + cell] = x[cell * stride + i];
        for (long cell = cells; cell < across; cell++) to[i * across + cell] = 0.0f;
    }
}

#if HAS_BYTES
// A panel in eight bits: y = s_o m (sum_i (W + 128) q - 128 sum_i q) + b, with the scale m and the sum of each row.
template <int rows, typename Coming>
static void tile(const int8_t* x, long depth, const float* scales, const int32_t* sums,
                 const uint8_t* panel, const float* scale, const float* bias, float* y, long stride, Coming ahead) {
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
                multiply_add(as_floats(sum[row][part]) * all_lanes(scales[row]), factor[part], more[part]);
}
#endif

// Rows in eight bits, each with a scale of its own.
struct Quantised {
    std::vector<int8_t> numbers;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    long depth;

    void make_room(long rows, long inputs) {
        numbers.resize(std::max<size_t>(numbers.size(), rows * padded(inputs, 4)));
        scales.resize(std::max<size_t>(scales.size(), rows));
        sums.resize(std::max<size_t>(sums.size(), rows));
    }

    void set(const float* x, long row, long inputs) {
#if HAS_BYTES
        const float* from = x + row * inputs;
        int8_t* to = numbers.data() + row * depth;
        int32_t bits = __builtin_bit_cast(int32_t, 1e-30f), sum = 0;
#pragma omp simd reduction(max : bits)
        for (long i = 0; i < inputs; i++)  // in the order of their bits positive numbers grow, and NaN is the largest
            bits = std::max(bits, __builtin_bit_cast(int32_t, from[i]) & 0x7fffffff);
        const float largest = __builtin_bit_cast(float, bits), factor = LEVELS / largest;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < inputs; i++) {
            const int8_t rounded = (int8_t)__builtin_bit_cast(int32_t, from[i] * factor + 12582912.0f);  // its last bits
            to[i] = rounded;
            sum += rounded;
        }
        for (long i = inputs; i < depth; i++) to[i] = 0;
        sums[row] = sum;
        scales[row] = largest / LEVELS;
#endif
    }
};

// The threads of a parallel region. They share out tables and heads, and rows, too, unless these are few: then each thread
// has norms and numbers in eight bits of all rows in a room of its own, which is sooner done than waited for.
struct Team {
    int thread, threads;
    Meeting& meeting;
    Quantised& quantised;  // of all threads, or its own where rows are few
    bool few = false;

    Share of(long count) const { return share(count, thread, threads); }

    Share of_rows(long rows) const { return few ? Share{0, rows} : of(rows); }

    void wait() const {
        if (threads > 1) meeting.wait(threads);
    }

    void wait_for_rows() const {
        if (!few) wait();
    }

    // y = phi(W x + b), plus what is in `add`, times what is in `times`: of some rows at a time, where there are many.
    void apply(const Map& map, const float* x, float* y, long rows, int64_t activation = NONE,
               const float* add = nullptr, const float* times = nullptr) const {
        constexpr long ROWS = 64 * TILE;
        for (long row = 0; row < rows; row += ROWS) {
            const long first = row * map.outputs;
            apply_to(map, x + row * map.inputs, y + first, std::min(ROWS, rows - row), activation, from(add, first),
                     from(times, first));
        }
    }

    static const float* from(const float* all, long first) { return all ? all + first : nullptr; }

    // y = phi(found) + add, or phi(found) times: what is left to do of a row and a panel; found may be y itself.
    static void finish(float* found, long width, int64_t activation, const float* add, const float* times, float* y) {
        if (activation != NONE) activate(found, width, activation);
        if (add)
            for (long i = 0; i < width; i++) y[i] = add[i] + found[i];
        else if (times)
            for (long i = 0; i < width; i++) y[i] = times[i] * found[i];
        else if (found != y)
            memcpy(y, found, width * sizeof(float));
    }

    // In float32 a panel of many inputs is taken block by block, each for all rows: what a tile reads, and what comes next,
    // then stay in the second cache.
    void apply_to(const Map& map, const float* x, float* y, long rows, int64_t activation, const float* add,
                  const float* times) const {
        if (map.bytes) {
            quantised.depth = padded(map.inputs, 4);  // the same from every thread
            const Share own = of_rows(rows);
            for (long row = own.first; row < own.last; row++) quantised.set(x, row, map.inputs);
            wait_for_rows();
        }
        constexpr long BLOCK = 512;
        const long panels = padded(map.outputs, PANEL) / PANEL, depth = map.bytes ? quantised.depth / 4 : map.inputs;
        const long block = map.bytes || depth < 2 * BLOCK ? depth : BLOCK;
        const long fetching = fetching_tiles(rows, map.bytes);
        const Share own = of(panels);
        thread_local std::vector<float> sums;
        sums.resize(std::max<size_t>(sums.size(), rows * PANEL));
        for (long number = own.first; number < own.last; number++) {
            const long first = number * PANEL, width = std::min<long>(PANEL, map.outputs - first);
            const bool direct = width == PANEL && !add && !times;  // either may be y itself
            float* const to = direct ? y + first : sums.data();
            const long stride = direct ? map.outputs : PANEL;
            for (long begin = 0; begin < depth; begin += block)
                for (long row = 0; row < rows; row += TILE) {
                    const bool last = begin + block >= depth, done = last && number + 1 == own.last;
                    const Share part{begin, std::min(begin + block, depth)};
                    multiply(map, x, row, rows, number, part, to + row * stride, stride, done ? 0 : fetching);
                    if (!last) continue;
                    for (long r = row; r < std::min(row + TILE, rows); r++) {
                        const long line = r * map.outputs + first;
                        finish(to + r * stride, width, activation, from(add, line), from(times, line), y + line);
                    }
                }
        }
        wait();
    }

    // A tile of these rows, from `row` on, and a block of a panel; so many of the first ones fetch the next block.
    void multiply(const Map& map, const float* x, long row, long rows, long number, Share block, float* y, long stride,
                  long fetching) const {
        constexpr long EACH = 4 * PANEL;  // bytes of an input, or of four in eight bits
        const long depth = map.bytes ? quantised.depth / 4 : map.inputs, size = (block.last - block.first) * EACH;
        const char* panel = (const char*)map.packed + (number * depth + block.first) * EACH;
        const auto with = [&](auto tiles) {
            const Ahead<tiles> next{panel + size + row / TILE * (size / tiles)};
            multiply(map, x, row, rows, number, block, panel, y, stride, next);
        };
        switch (row < fetching * TILE ? fetching : 0) {
            case 1: return with(std::integral_constant<long, 1>{});
            case 2: return with(std::integral_constant<long, 2>{});
            case 3: return with(std::integral_constant<long, 3>{});
            case 4: return with(std::integral_constant<long, 4>{});
            default: return multiply(map, x, row, rows, number, block, panel, y, stride, Nothing{});
        }
    }

    template <typename Coming>
    void multiply(const Map& map, const float* x, long row, long rows, long number, Share block, const void* panel,
                  float* y, long stride, Coming ahead) const {
        const float* bias = map.bias ? map.bias + number * PANEL : nullptr;
        const long count = std::min(TILE, rows - row), inputs = map.inputs, begin = block.first;
        if (!map.bytes)
            return tiles<Single>(count, x + row * inputs + begin, inputs, 1L, block.last - begin, (const float*)panel,
                                 PANEL, begin ? y : bias, begin ? stride : 0L, y, stride, ahead);
#if HAS_BYTES
        const int8_t* from = quantised.numbers.data() + row * quantised.depth;
        const float *scales = quantised.scales.data() + row, *scale = map.scale + number * PANEL;
        const int32_t* sums = quantised.sums.data() + row;
        with_rows(count, [&](auto its) {
            tile<its>(from, quantised.depth, scales, sums, (const uint8_t*)panel, scale, bias, y, stride, ahead);
        });
#endif
    }
};
