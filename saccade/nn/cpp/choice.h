// What a search goes on with: the best words of each hypothesis, and of these the best ways of each sentence. NaN counts as
// larger than all.
#pragma once

#include "vectors.h"

template <typename Number>
static bool before(Number a, Number b) {
    return a > b || (a != a && b == b);
}

// The `count` largest of a row, each less `shift`, largest first and of equals the first.
static void largest(const float* line, float shift, long width, long count, float* best, int64_t* place) {
    long found = 0, i = 0;
    float least = NAN;  // only what is more may be among them; more than NaN is everything
    const auto offer = [&](long its) {
        const float number = line[its] - shift;
        if (found == count && !before(number, best[count - 1])) return;
        long at = found < count ? found++ : count - 1;
        for (; at > 0 && before(number, best[at - 1]); at--) best[at] = best[at - 1], place[at] = place[at - 1];
        best[at] = number, place[at] = its;
        if (found == count) least = best[count - 1];
    };
    const Floats less = all_lanes(shift);
    const auto above_least = [&](long from) { return above(*(const Anywhere*)(line + from) - less, least); };
    const auto offer_lanes = [&](long from) {
        for (uint32_t bits = above_least(from); bits; bits &= bits - 1) offer(from + __builtin_ctz(bits));
    };
    constexpr long MANY = ABREAST * LANES;
    if (count <= LANES && width >= LANES * MANY) {  // as many are no less than the last of the best that lanes have
        float highest[LANES];
        highest_of_lanes(line, width, highest);
        largest(highest, shift, LANES, count, best, place);
        if (std::isfinite(best[count - 1])) least = std::nextafter(best[count - 1], -INFINITY);
    }
    for (; i + MANY <= width; i += MANY) {  // few are more
        uint32_t any = 0;
        for (long v = 0; v < ABREAST; v++) any |= above_least(i + v * LANES);
        for (long v = 0; any && v < ABREAST; v++) offer_lanes(i + v * LANES);
    }
    for (; i + LANES <= width; i += LANES) offer_lanes(i);
    for (; i < width; i++) offer(i);
}

// The best ways to go on, `count` for each sentence: of which row, with which word, its log-probability and that of all;
// and the highest log-probability of each row.
struct Ways {
    int64_t *row, *word;
    double *log_p, *score, *highest;
};

// How they are found: `width` rows of each sentence offer their `each` best words.
struct Choice {
    long width, each, count;
    std::vector<float> best;  // (rows, each)
    std::vector<int64_t> place;

    Choice(long rows, long width, long each, long count)
        : width(width), each(each), count(count), best(rows * each), place(rows * each) {}

    // The first half, of one row: log-probabilities, or logits with the logarithm of their sum.
    void look_at(const float* logits, float log_sum, long words, long row) {
        largest(logits, log_sum, words, each, best.data() + row * each, place.data() + row * each);
    }

    // The same where nobody asks how probable words are and `each` is one: the best has 0, and what is no number stays none.
    void take(long word, float logit, long row) {
        place[row] = word, best[row] = logit == -INFINITY ? logit : logit - logit;
    }

    // The second half, of one sentence whose rows have been looked at; best first and of equals the first.
    void choose(const double* score, long sentence, const Ways& ways) const {
        std::vector<long> next(width);  // of each row: how many of its words are taken
        for (long i = sentence * count; i < (sentence + 1) * count; i++) {
            long from = -1;
            for (long w = 0; w < width; w++) {
                if (next[w] == each) continue;
                const long row = sentence * width + w;
                const double sum = score[row] + best[row * each + next[w]];
                if (from < 0 || before(sum, ways.score[i])) from = w, ways.score[i] = sum;
            }
            ways.row[i] = sentence * width + from;
            const long at = ways.row[i] * each + next[from]++;
            ways.word[i] = place[at], ways.log_p[i] = best[at];
        }
        for (long row = sentence * width; row < (sentence + 1) * width; row++) ways.highest[row] = best[row * each];
    }
};
