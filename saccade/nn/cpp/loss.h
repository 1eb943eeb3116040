// Label-smoothed cross-entropy of many rows behind an output layer, with its gradients:
//
//     logits = W x + b,    slope = softmax(logits) - s / V - (1 - s) [target],    dx = slope W,    dW = slope^T x
//
// Logits exist for some rows at a time only, few enough for the caches. All three products are the same tile, over
// tables that are laid out for it once.
#pragma once

#include <omp.h>
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <new>

#include "products.h"

#if defined(__AVX512BF16__)
struct Pair {
    static constexpr long EACH = 2;
    static uint32_t rounded(float x) {  // to the nearest, of two as near the even one
        const uint32_t bits = __builtin_bit_cast(uint32_t, x);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    static float atom(float first, float second) {
        return __builtin_bit_cast(float, rounded(first) | rounded(second) << 16);
    }
    static Floats add(Floats sum, Floats weights, float x) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512)weights, (__m512bh)_mm512_set1_ps(x));
    }
};
#define HAS_PAIRS 1
#else
#define HAS_PAIRS 0
#endif

struct Loss {
    int64_t rows, width, words, at_once;  // at_once: rows whose logits exist at a time
    const float *x, *weight, *bias;       // (rows, width), (words, width), (words,) or none
    const int64_t* target;                // (rows,)
    double smoothing;
    float *x_gradient, *weight_gradient, *bias_gradient;  // as x, weight and bias, zero at first; or none
    double *smoothed, *surprise;          // (rows,) each
    int64_t* correct;                     // (rows,)
};

// Room for numbers that are written before they are read, much of it in large pages where the system has them: to be given
// small ones anew at each update takes longer than to fill them.
struct Numbers {
    static constexpr size_t PAGE = 1 << 21;
    const std::align_val_t apart;
    float* const room;
    explicit Numbers(size_t count)
        : apart(std::align_val_t(4 * count < 2 * PAGE ? 64 : PAGE)), room((float*)::operator new(4 * count, apart)) {
#if defined(MADV_HUGEPAGE)
        if ((size_t)apart == PAGE) madvise(room, 4 * count, MADV_HUGEPAGE);
#endif
    }
    Numbers(const Numbers&) = delete;
    ~Numbers() { ::operator delete(room, apart); }
    operator float*() const { return room; }
};

// Neighbours in a row as one: x (width) -> (depth).
template <typename Kind>
static void lay_along(const float* x, long width, float* to) {
    for (long i = 0; i + Kind::EACH <= width; i += Kind::EACH) to[i / Kind::EACH] = Kind::atom(x[i], x[i + Kind::EACH - 1]);
    if (width % Kind::EACH) to[width / Kind::EACH] = Kind::atom(x[width - 1], 0.0f);
}

// Neighbours in a column as one: x (rows, width), every `stride` -> (rows / EACH, wide), padded with zeros.
template <typename Kind>
static void lay_across(const float* x, long rows, long width, long stride, float* to, long wide) {
    for (long row = 0; row < rows; row += Kind::EACH, to += wide) {
        const float *first = x + row * stride, *second = x + (row + Kind::EACH - 1) * stride;
        if (row + Kind::EACH <= rows)
            for (long i = 0; i < width; i++) to[i] = Kind::atom(first[i], second[i]);
        else
            for (long i = 0; i < width; i++) to[i] = Kind::atom(first[i], 0.0f);
        for (long i = width; i < wide; i++) to[i] = 0.0f;
    }
}

// y (rows, width) += x W over whole panels and the rest of one.
template <typename Kind>
static void add_product(long rows, const float* x, long row, long next, long inputs, const float* table, long wide,
                        float* y, long width) {
    float part[TILE * PANEL];
    for (long first = 0; first < width; first += PANEL) {
        const long count = std::min(PANEL, width - first);
        if (count == PANEL) {
            tiles<Kind>(rows, x, row, next, inputs, table + first, wide, y + first, width, y + first, width);
            continue;
        }
        tiles<Kind>(rows, x, row, next, inputs, table + first, wide, (const float*)nullptr, 0L, part, PANEL);
        for (long r = 0; r < rows; r++)
            for (long i = 0; i < count; i++) y[r * width + first + i] += part[r * PANEL + i];
    }
}

// The loss of a row, whose logits become its slope.
static void take_slope(const Loss& loss, long row, float* line) {
    const long words = loss.words;
    const float at_target = line[loss.target[row]], s = (float)loss.smoothing;
    float largest = -INFINITY, total = 0.0f, all = 0.0f;
#pragma omp simd reduction(max : largest)
    for (long i = 0; i < words; i++) largest = line[i] > largest ? line[i] : largest;
#pragma omp simd reduction(+ : all, total)
    for (long i = 0; i < words; i++) {
        all += line[i];
        line[i] = exponential(line[i] - largest);
        total += line[i];
    }
    const double log_sum = (double)largest + log((double)total);
    loss.surprise[row] = log_sum - at_target;
    loss.smoothed[row] = log_sum - (1 - loss.smoothing) * at_target - loss.smoothing * all / words;
    loss.correct[row] = at_target == largest;
    const float factor = 1.0f / total, less = s / words;
    for (long i = 0; i < words; i++) line[i] = line[i] * factor - less;
    line[loss.target[row]] -= 1.0f - s;
}

template <typename Kind>
static void smoothed_loss(const Loss& loss, int threads) {
    constexpr long EACH = Kind::EACH, BLOCK = 256;  // inputs of a product whose part of a table stays in the second cache
    const long width = loss.width, words = loss.words, most = padded(std::min(loss.at_once, loss.rows), EACH);
    const long depth = padded(width, EACH) / EACH, wide = padded(width, PANEL), panels = padded(words, PANEL) / PANEL;
    const long across = panels * PANEL + LANES;  // no power of two: rows would push each other out of the caches
    const bool wanted = loss.x_gradient || loss.weight_gradient || loss.bias_gradient;
    const bool as_is = EACH == 1 && wide == width;  // tables may be read as they lie
    const bool lays_down = loss.x_gradient && !as_is, lays_told = loss.weight_gradient && !as_is, pairs = EACH > 1;
    Numbers up(panels * PANEL * depth), bias(panels * PANEL), logits(most * across);
    Numbers down(lays_down ? padded(words, EACH) / EACH * wide : 0), told(lays_told ? most / EACH * wide : 0);
    Numbers asked(most * depth), by_row(pairs ? most * across / EACH : 0), by_word(pairs ? most / EACH * across : 0);
    const float *of_rows = pairs ? by_row : logits, *of_words = pairs ? by_word : logits;
    for (long i = 0; i < panels * PANEL; i++) bias[i] = loss.bias && i < words ? loss.bias[i] : 0.0f;
    Meeting meeting;
    Quantised unused;
#pragma omp parallel num_threads(threads)
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), meeting, unused};
        const Share of_panels = team.of(panels);
        std::vector<float> line(depth);
        // the tables of the layer, laid out once
        for (long first = of_panels.first * PANEL; first < of_panels.last * PANEL; first++) {
            std::fill(line.begin(), line.end(), 0.0f);
            if (first < words) lay_along<Kind>(loss.weight + first * width, width, line.data());
            float* to = up + first / PANEL * PANEL * depth + first % PANEL;
            for (long i = 0; i < depth; i++) to[i * PANEL] = line[i];
        }
        if (lays_down) {
            const Share own = team.of(padded(words, EACH) / EACH);
            const long first = own.first * EACH, last = std::min<long>(own.last * EACH, words);
            lay_across<Kind>(loss.weight + first * width, last - first, width, width, down + own.first * wide, wide);
        }
        for (long first = 0; first < loss.rows; first += loss.at_once) {
            const long rows = std::min<long>(loss.at_once, loss.rows - first), atoms = padded(rows, EACH) / EACH;
            const Share own = team.of(atoms);  // rows of one pair are one thread's
            const long begin = own.first * EACH, end = std::min(own.last * EACH, rows);
            const float* x = loss.x + first * width;
            for (long row = begin; row < end; row++) lay_along<Kind>(x + row * width, width, asked + row * depth);
            if (lays_told)
                lay_across<Kind>(x + begin * width, end - begin, width, width, told + own.first * wide, wide);
            team.wait();
            // logits, and what they cost
            for (long panel = of_panels.first; panel < of_panels.last; panel++)
                for (long row = 0; row < rows; row += TILE)
                    tiles<Kind>(std::min(TILE, rows - row), asked + row * depth, depth, 1L, depth,
                                up + panel * PANEL * depth, PANEL, bias + panel * PANEL, 0L,
                                logits + row * across + panel * PANEL, across);
            team.wait();
            for (long row = begin; row < end; row++) take_slope(loss, first + row, logits + row * across);
            if (!wanted) continue;
            if (pairs) {
                for (long row = begin; row < end; row++)
                    lay_along<Kind>(logits + row * across, words, by_row + row * (across / EACH));
                lay_across<Kind>(logits + begin * across, end - begin, words, across, by_word + own.first * across, across);
            }
            team.wait();
            // gradients: of x by its rows, of the tables by words
            const float *table = as_is ? loss.weight : down, *vectors = as_is ? x : told;
            const long between = across / EACH;
            for (long word = 0; loss.x_gradient && word < words; word += BLOCK * EACH) {
                const long inputs = padded(std::min(BLOCK * EACH, words - word), EACH) / EACH, at = word / EACH;
                for (long row = begin; row < end; row += TILE)
                    add_product<Kind>(std::min(TILE, end - row), of_rows + row * between + at, between, 1L, inputs,
                                      table + at * wide, wide, loss.x_gradient + (first + row) * width, width);
            }
            const Share own_words = team.of(words);
            if (loss.weight_gradient)
                for (long word = own_words.first; word < own_words.last; word += TILE)
                    add_product<Kind>(std::min(TILE, own_words.last - word), of_words + word, 1L, across, atoms,
                                      vectors, wide, loss.weight_gradient + word * width, width);
            if (loss.bias_gradient)
                for (long row = 0; row < rows; row++)
                    for (long word = own_words.first; word < own_words.last; word++)
                        loss.bias_gradient[word] += logits[row * across + word];
            team.wait();
        }
    }
}
