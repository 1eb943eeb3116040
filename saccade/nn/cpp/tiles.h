// Products of a few rows and one panel of a table, which are kept in registers: a tile.
//
// A panel has PANEL outputs and lies in memory as it is multiplied: input by input.
#pragma once

#include <type_traits>

#include "vectors.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

constexpr long TILE = 6;  // rows of a tile: with more, their sums would not fit into the registers

static long padded(long number, long to) { return (number + to - 1) / to * to; }

// In float32 a panel of many inputs is taken block by block, each for all rows: what a tile reads, and what comes next, then
// stay in the second cache.
static long block_of(long inputs) {
    constexpr long BLOCK = 512;
    return inputs < 2 * BLOCK ? inputs : BLOCK;
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

// Whether two whole tiles fetch what comes sooner than several that share in it: so it is on AMD's cores up to Zen 4. Later
// ones, and Intel's, wait for few lines at a time, and many lines with every input would hold up the products (docs/log.md).
// Of processors that are not x86 nothing is known.
static bool two_tiles_fetch() {
#if defined(__x86_64__) || defined(__i386__)
    constexpr unsigned ZEN_4 = 0x19;  // the family of Zen 3, too
    unsigned signature = 0, unused;
    if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &signature, &unused, &unused, &unused)) return false;
    return (signature >> 8 & 0xf) + (signature >> 20 & 0xff) <= ZEN_4;
#else
    return true;
#endif
}

// Of the tiles of so many rows, how many fetch what comes.
static long fetching_tiles(long rows, bool bytes) {
    static const bool two = two_tiles_fetch();
    if (two) return rows < 2 * TILE ? 0 : 2;
    return rows == 1 && !bytes ? 0 : std::min(padded(rows, TILE) / TILE, 4L);  // one row is read as fast as memory is
}

struct Nothing {
    void fetch() {}
};

// y (rows, a panel or some parts of it) = x W: the next row of x is `row` away, its next input `next`, and that of the
// panel `below`. What is at `start`, if anything, comes on top; its next row is `same` away, 0 for a bias. What is
// `rectified` has 0 for negative sums.
template <typename Kind, int rows, int parts, typename Coming = Nothing>
static void tile(const float* x, long row, long next, long inputs, const float* panel, long below, const float* start,
                 long same, float* y, long stride, Coming ahead = {}, bool rectified = false) {
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
    if (rectified)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            for (int part = 0; part < parts; part++) sum[r][part] = no_less_than(sum[r][part], Floats{});
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
