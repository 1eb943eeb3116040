// Steps of a search in one call, as long as nothing ends: the best ways of each sentence go on. At the first step in which
// something may end the choice is left to the search, which knows the rules.
#pragma once

#include "choice.h"
#include "step.h"

struct Stretch {
    int64_t steps;             // at most
    int64_t each, count;       // words of each row and ways of each sentence that are looked at
    int64_t end;               // the word that ends a hypothesis
    const int64_t* forbidden;  // words that may not follow
    int64_t forbidden_count;
    const double* bar;         // (sentences,): where no row is above it, nothing better may come
    double* score;             // (rows,), of what was written before a step, in and out
    int64_t *row, *word;       // (steps - 1, rows): of all but the last, which row goes on with which word ...
    double* log_p;             // ... and its log-probability
    Ways last;                 // ways to go on after the last step
    uint8_t* sees;             // (rows, filled) of the last step, where there was one of the first
};

// Whether the first ways of a sentence, one for each of its rows, go on, and nothing else can happen.
static bool nothing_ends(const Stretch& stretch, const Ways& ways, long sentence, long width) {
    double highest = -INFINITY;
    for (long i = sentence * stretch.count; i < sentence * stretch.count + width; i++) {
        if (ways.word[i] == stretch.end || !std::isfinite(ways.score[i])) return false;
        highest = std::max(highest, ways.score[i]);
    }
    for (long row = sentence * width; row < (sentence + 1) * width; row++)
        if (!std::isfinite(ways.highest[row])) return false;
    return highest > stretch.bar[sentence];
}

// Cells that a row sees after a step: those of the row that it came from, and its own.
static void inherit(const Seen& seen, long from, Seen& next, long row, long cell) {
    const int count = seen.counts[from];
    std::copy(seen.of(from), seen.of(from) + count, next.of(row));
    next.of(row)[count] = (int)cell;
    next.counts[row] = count + 1;
}

// Tokens, places and cells of rows that go on.
struct Going {
    std::vector<int64_t> token, at, cell;

    explicit Going(const Step& step)
        : token(step.tokens, step.tokens + step.rows),
          at(step.at, step.at + step.rows),
          cell(step.cell, step.cell + step.rows) {}
};

// How many steps were taken, 0 where a token has no row in the table. Threads agree after each of them whether it was the
// last.
static long take_stretch(const Block* blocks, const Step& given, const Stretch& stretch, int threads) {
    if (!given.rows || !knows_tokens(given)) return 0;
    const long width = given.rows / given.sentences, words = given.predict->outputs;
    const long waves = given.head_width / 2 * given.rows;
    Going going(given);
    Choice choice(given.rows, width, stretch.each, stretch.count);
    Meeting meeting;
    std::atomic<long> last{stretch.steps - 1};
    Step first = given;
    first.tokens = going.token.data(), first.at = going.at.data(), first.cell = going.cell.data();

    share_out(blocks, first, given.filled + (stretch.steps - 1) * width, threads, meeting, [&](Part part) {
        Step& step = part.step;
        const Team& team = part.team;
        const Ways& ways = stretch.last;
        const long first_row = part.first_sentence * width;
        const Share rows = team.of(step.rows), sentences = team.of(step.sentences);
        const Seen* seen = list_cells(part, false);
        for (long number = 0;; number++) {
            take(blocks, part, seen);
            for (long row = rows.first; row < rows.last; row++) {
                float* logits = step.log_p + row * words;
                const float log_sum = log_sum_of(logits, words);
                for (long i = 0; i < stretch.forbidden_count; i++) logits[stretch.forbidden[i]] = -INFINITY;
                choice.look_at(logits, log_sum, words, first_row + row);
            }
            team.wait();
            for (long own = sentences.first; own < sentences.last; own++) {
                const long sentence = part.first_sentence + own;
                choice.choose(stretch.score, sentence, ways);
                if (!nothing_ends(stretch, ways, sentence, width)) last = number;  // whoever says so, says the same
            }
            if (part.threads > 1) meeting.wait(part.threads);  // all of them, also those that work apart
            if (last <= number) break;

            Seen& next = part.room.own[(number + 1) % 2];
            for (long own = sentences.first; own < sentences.last; own++)
                for (long w = 0; w < width; w++) {
                    const long row = own * width + w, global = first_row + row;
                    const long way = (part.first_sentence + own) * stretch.count + w, note = number * given.rows + global;
                    stretch.row[note] = ways.row[way], stretch.word[note] = ways.word[way];
                    stretch.log_p[note] = ways.log_p[way], stretch.score[global] = ways.score[way];
                    going.token[global] = ways.word[way], going.at[global] += 1, going.cell[global] += width;
                    if (seen) inherit(*seen, ways.row[way] - first_row, next, row, going.cell[global]);
                }
            if (seen) seen = &next;
            if (step.sine) step.sine += waves, step.cosine += waves;
            step.filled += width;
            team.wait();
        }
        for (long row = rows.first; stretch.sees && row < rows.last; row++) {
            uint8_t* line = stretch.sees + (first_row + row) * step.filled;
            std::fill(line, line + step.filled, 0);
            for (long c = 0; c < seen->counts[row]; c++) line[seen->of(row)[c]] = 1;
        }
    });
    return last + 1;
}
