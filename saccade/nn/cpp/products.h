// y = phi(W x + b) of few rows, by a team of threads.
//
// A table W (outputs x inputs) is cut into panels of PANEL outputs, which lie in memory as they are multiplied: input by
// input (in eight bits, four inputs at a time).
#pragma once

#include "bytes.h"
#include "threads.h"

struct Map {
    int64_t inputs, outputs;
    int64_t bytes;        // whether the table has eight bits
    const void* packed;   // floats (panels, inputs, PANEL), or bytes (panels, inputs / 4, PANEL, 4)
    const float* scale;   // of each output, in eight bits
    const float* bias;    // or none; both padded to whole panels
};

enum Activation : int64_t { NONE, RELU, GELU, GELU_TANH, SILU, SIGMOID };

// All but RELU, which tiles do themselves.
static void activate(float* x, long count, int64_t activation) {
    switch (activation) {
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

    void apply_to(const Map& map, const float* x, float* y, long rows, int64_t activation, const float* add,
                  const float* times) const {
        if (map.bytes) {
            quantised.depth = padded(map.inputs, MatrixUnit::WHOLE);  // the same from every thread
            const Share own = of_rows(rows);
            for (long row = own.first; row < own.last; row++) quantised.set(x, row, map.inputs);
            wait_for_rows();
        }
        const long panels = padded(map.outputs, PANEL) / PANEL, depth = map.bytes ? quantised.depth / 4 : map.inputs;
        const long block = map.bytes ? depth : block_of(depth);
        const long fetching = fetching_tiles(rows, map.bytes);
        const bool rectified = activation == RELU;  // by the tiles: nothing is left to do
        if (rectified) activation = NONE;
        const MatrixUnit unit(map.bytes && rows >= MatrixUnit::LEAST);
        const long high = unit.used ? MatrixUnit::MOST : TILE;
        const Share own = of(panels);
        thread_local std::vector<float> sums;
        sums.resize(std::max<size_t>(sums.size(), rows * PANEL));
        for (long number = own.first; number < own.last; number++) {
            const long first = number * PANEL, width = std::min<long>(PANEL, map.outputs - first);
            const bool direct = width == PANEL && !add && !times;  // either may be y itself
            float* const to = direct ? y + first : sums.data();
            const long stride = direct ? map.outputs : PANEL;
            for (long begin = 0; begin < depth; begin += block)
                for (long row = 0; row < rows; row += high) {
                    const bool last = begin + block >= depth, done = last && number + 1 == own.last;
                    const Share part{begin, std::min(begin + block, depth)};
                    if (unit.used)
                        multiply_by_unit(map, row, rows, number, to + row * stride, stride, !done, rectified);
                    else
                        multiply(map, x, row, rows, number, part, to + row * stride, stride, done ? 0 : fetching,
                                 last && rectified);
                    if (!last) continue;
                    for (long r = row; r < std::min(row + high, rows); r++) {
                        const long line = r * map.outputs + first;
                        finish(to + r * stride, width, activation, from(add, line), from(times, line), y + line);
                    }
                }
        }
        wait();
    }

    // As many of these rows as the matrix unit takes, from `row` on, and a panel; all such parts share in fetching the
    // next one.
    void multiply_by_unit(const Map& map, long row, long rows, long number, float* y, long stride, bool fetching,
                          bool rectified) const {
#if HAS_BYTES
        constexpr long MOST = MatrixUnit::MOST, PAIR = 2;  // vectors at a time
        constexpr long LINES = PANEL;                      // of a cache in 64 inputs of a panel
        const long depth = quantised.depth, count = std::min(MOST, rows - row), across = MatrixUnit::across(count);
        const long rest = rows % MOST, parts = rows / MOST * 2 + (rest ? PANEL / MatrixUnit::across(rest) : 0);
        const long lines = fetching ? (LINES + parts - 1) / parts : 0, panel = PANEL * depth;
        const uint8_t* weights = (const uint8_t*)map.packed + number * panel;
        alignas(64) int32_t sums[MOST * MOST];
        static constexpr float none[PAIR * LANES] = {};
        const Floats least = all_lanes(rectified ? 0.0f : -INFINITY);
        const float* scales = quantised.scales.data() + row;
        const int32_t* of_rows = quantised.sums.data() + row;
        for (long first = 0; first < PANEL; first += across) {
            const long part = row / MOST * 2 + first / across;
            const char* ahead = (const char*)weights + panel + part * lines * depth;
            MatrixUnit::sum(count, quantised.at(row), depth, weights + 4 * first, sums, ahead, lines);
            for (long o = 0; o < across; o += PAIR * LANES) {
                const float* scale = map.scale + number * PANEL + first + o;
                const float* bias = map.bias ? map.bias + number * PANEL + first + o : none;
                Floats factor[PAIR], more[PAIR];
                for (int v = 0; v < PAIR; v++) {
                    factor[v] = *(const Anywhere*)(scale + v * LANES);
                    more[v] = *(const Anywhere*)(bias + v * LANES);
                }
                for (long r = 0; r < count; r++)
                    for (int v = 0; v < PAIR; v++) {
                        const Words sum = (Words)load(sums + r * across + o + v * LANES) - 128 * of_rows[r];
                        *(Anywhere*)(y + r * stride + first + o + v * LANES) =
                            no_less_than(scaled((Ints)sum, scales[r], factor[v], more[v]), least);
                    }
            }
        }
#endif
    }

    // A tile of these rows, from `row` on, and a block of a panel; so many of the first ones fetch the next block.
    void multiply(const Map& map, const float* x, long row, long rows, long number, Share block, float* y, long stride,
                  long fetching, bool rectified) const {
        constexpr long EACH = 4 * PANEL;  // bytes of an input, or of four in eight bits
        const long depth = map.bytes ? quantised.depth / 4 : map.inputs, size = (block.last - block.first) * EACH;
        const char* panel = (const char*)map.packed + (number * depth + block.first) * EACH;
        const auto with = [&](auto tiles) {
            const Ahead<tiles> next{panel + size + row / TILE * (size / tiles)};
            multiply(map, x, row, rows, number, block, panel, y, stride, next, rectified);
        };
        switch (row < fetching * TILE ? fetching : 0) {
            case 1: return with(std::integral_constant<long, 1>{});
            case 2: return with(std::integral_constant<long, 2>{});
            case 3: return with(std::integral_constant<long, 3>{});
            case 4: return with(std::integral_constant<long, 4>{});
            default: return multiply(map, x, row, rows, number, block, panel, y, stride, Nothing{}, rectified);
        }
    }

    template <typename Coming>
    void multiply(const Map& map, const float* x, long row, long rows, long number, Share block, const void* panel,
                  float* y, long stride, Coming ahead, bool rectified) const {
        const float* bias = map.bias ? map.bias + number * PANEL : nullptr;
        const long count = std::min(TILE, rows - row), inputs = map.inputs, begin = block.first;
        if (!map.bytes)
            return tiles<Single>(count, x + row * inputs + begin, inputs, 1L, block.last - begin, (const float*)panel,
                                 PANEL, begin ? y : bias, begin ? stride : 0L, y, stride, ahead, rectified);
#if HAS_BYTES
        const int8_t* from = quantised.at(row);
        const float *scales = quantised.scales.data() + row, *scale = map.scale + number * PANEL;
        const int32_t* sums = quantised.sums.data() + row;
        with_rows(count, [&](auto its) {
            tile<its>(from, quantised.depth, scales, sums, (const uint8_t*)panel, scale, bias, y, stride, ahead,
                      rectified ? 0.0f : -INFINITY);
        });
#endif
    }
};
