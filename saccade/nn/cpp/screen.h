// The best word of a row, where nobody asks how probable it is. Logits in eight bits say which few words it may be, and
// theirs are computed in float32, in the order of the packed table: the answer is the whole table's, to the bit.
//
//     |w x - w' x'| <= |w - w'| |x| + |w'| |x - x'|   with the weights w of a word, a state x, and both in eight bits: w', x'
//
// and what float32 loses on the way comes on top: of a sum of n products no more than n 2^-24 |w| |x|, of which four times as
// much is allowed for both sums together, with |w| <= |w'| + |w - w'| and |x'| <= |x| + |x - x'|; a bias is added in few
// roundings of the sum itself.
#pragma once

#include <cfloat>

#include "choice.h"
#include "products.h"

struct Screen {
    const Map* rough;             // the table in eight bits
    const float* table;           // (words, width), as it is; there are LANES words or more
    const float *error, *length;  // of each word: |w - w'| and |w'|
};

#if HAS_BYTES
// Where a search for the best word of a row stands: words are offered as many at a time as there are lanes.
class Best {
    const Screen& screen;
    const float *x, *rough;
    int32_t waiting[LANES] = {};
    long count = 0;

    // Logits of the words that wait, in the order of sums of the packed table.
    Floats logits() const {
        const long width = screen.rough->inputs, block = block_of(width);
        thread_local std::vector<float> panel;
        panel.resize(std::max<size_t>(panel.size(), width * LANES));
        float start[LANES] = {}, sums[LANES];
        for (long lane = 0; lane < LANES; lane++) {
            const float* weights = screen.table + waiting[lane] * width;
            for (long i = 0; i < width; i++) panel[i * LANES + lane] = weights[i];
            if (screen.rough->bias) start[lane] = screen.rough->bias[waiting[lane]];
        }
        const float* bias = screen.rough->bias ? start : nullptr;
        for (long i = 0; i < width; i += block)
            tile<Single, 1, 1>(x + i, 0, 1, std::min(block, width - i), panel.data() + i * LANES, LANES, i ? sums : bias,
                               0, sums, LANES);
        return *(const Anywhere*)sums;
    }

   public:
    float logit = -INFINITY;
    long word = 0;      // of equals the first
    long computed = 0;  // words

    Best(const Screen& screen, const float* x, const float* rough) : screen(screen), x(x), rough(rough) {}

    void offer(long its) {
        waiting[count++] = (int32_t)its;
        if (count == LANES) settle();
    }

    void settle() {
        if (!count) return;
        const Floats found = logits();
        for (long lane = 0; lane < count; lane++) {
            const long its = waiting[lane];
            if (rough[its] == -INFINITY) continue;  // it is forbidden
            const float now = found[lane];
            if (before(now, logit) || (now == logit && its < word)) logit = now, word = its;
        }
        computed += count, count = 0;
    }
};

// Of a state x whose logits in eight bits are given, -inf where a word is forbidden. A state that is none gives NaN.
static Best best_of(const Screen& screen, const float* x, const float* rough) {
    const long words = screen.rough->outputs, width = screen.rough->inputs;
    Best best(screen, x, rough);
    double square = 0.0;
#pragma omp simd reduction(+ : square)
    for (long i = 0; i < width; i++) square += (double)x[i] * x[i];
    const float size = (float)sqrt(square) + FLT_MIN, off = rounded_off(x, width) + FLT_MIN;
    if (!std::isfinite(size + off)) {
        best.logit = NAN;
        return best;
    }
    const float lost = (width + 32) * 0x1p-22f;
    const Floats by_error = all_lanes(size * (1.0f + lost)), by_length = all_lanes(off + lost * (size + 2.0f * off));
    const Floats a_little_more = all_lanes(1.0f + 0x1p-18f), a_little_less = all_lanes(1.0f - 0x1p-18f);
    const auto each = [&](auto look) {  // the last ones twice where words are no multiple of lanes
        for (long i = 0; i < words; i += LANES) look(std::min(i, words - LANES));
    };

    Floats highest = all_lanes(-INFINITY);  // of each lane, and where
    Words place{};
    each([&](long i) {
        const Floats now = *(const Anywhere*)(rough + i);
        const Words higher = now > highest, here = Words{} + (int32_t)i;
        highest = higher ? now : highest, place = higher ? here : place;
    });
    for (int lane = 0; lane < LANES; lane++) best.offer(place[lane] + lane);

    const float least = std::nextafter(best.logit, -INFINITY);
    each([&](long i) {
        const Floats now = *(const Anywhere*)(rough + i);
        const Floats radius = multiply_add(by_error, *(const Anywhere*)(screen.error + i),
                                           by_length * *(const Anywhere*)(screen.length + i));
        const Floats most = now + radius;
        for (uint32_t bits = above(most * (most > 0.0f ? a_little_more : a_little_less), least); bits; bits &= bits - 1)
            best.offer(i + __builtin_ctz(bits));
    });
    best.settle();
    return best;
}
#endif
