// Steps of a search in one call: in each sentence the best ways go on, hypotheses end among them, and a sentence is over when
// nothing better can come. Where something else happens, and in the last step, the choice is left to the search.
#pragma once

#include "choice.h"
#include "screen.h"
#include "step.h"

struct Stretch {
    int64_t steps;              // at most
    int64_t each, count;        // words of each row and ways of each sentence that are looked at
    int64_t end;                // the word that ends a hypothesis
    const int64_t* forbidden;   // words that may not follow
    int64_t forbidden_count;
    int64_t scored;             // whether log-probabilities are asked for; otherwise only the best word of each row
    const Screen* screen;       // ... and how it may be found, or none
    int64_t looked_at, computed;  // of all words: those that the screen looked at, and those whose logits it took
    const double* factor;       // (steps,): a hypothesis that ends in a step has this times its score as a rank ...
    const double* last_factor;  // (sentences,): ... and one that is as long as it may be
    double* ranks;              // (sentences, best): the highest of those that ended, highest first, in and out
    int64_t best;
    double* score;              // (rows,), of what was written before a step, in and out
    int64_t *row, *word;        // (steps - 1, rows): of all but the last, which row goes on with which word ...
    double* log_p;              // ... and its log-probability
    int64_t *ended_in, *ended;  // (ends,): in which step which row came to its end ...
    double* end_log_p;          // ... and the log-probability of that
    int64_t ends;
    int64_t* left;              // (sentences_left,): sentences that are not over, in the order of `score` and `last`
    int64_t sentences_left;
    Ways last;                  // ways to go on after the last step
    uint8_t* sees;              // (rows, filled) of the last step, if the first had one
};

// The rows that go on, one sentence after the other; rows of notes are numbered as they were at first.
class Going {
    Stretch& stretch;
    Step step;  // the first; later ones have fewer sentences
    const long width, all_rows;
    std::vector<int64_t> token, at, cell, place;
    std::vector<long> on;    // (rows,): with which way each goes on
    std::vector<char> over;  // (sentences,)
    std::atomic<long> ends{0}, stirred{-1};
    Seen seen[2];

   public:
    Going(const Step& given, Stretch& stretch)
        : stretch(stretch),
          step(given),
          width(given.rows / given.sentences),
          all_rows(given.rows),
          token(given.tokens, given.tokens + given.rows),
          at(given.at, given.at + given.rows),
          cell(given.cell, given.cell + given.rows),
          place(given.sentences),
          on(given.rows),
          over(given.sentences) {
        const long filled = step.filled + (stretch.steps - 1) * width;
        for (long sentence = 0; sentence < step.sentences; sentence++) place[sentence] = sentence;
        step.tokens = token.data(), step.at = at.data(), step.cell = cell.data(), step.place = place.data();
        for (int i = 0; i < 2 && step.sees; i++) seen[i] = room_of_thread.own[i].of(all_rows, filled);
    }

    // The step with this number.
    Step its(long number) const {
        const long angles = number * all_rows * (step.head_width / 2);
        Step now = step;
        now.filled += number * width;
        if (number) now.sees = nullptr;
        if (step.sine) now.sine += angles, now.cosine += angles;
        return now;
    }

    const Seen& seen_in(long number) const { return seen[number % 2]; }

    // Settles with which ways a sentence goes on: with one for each row, or with none, because all is at an end. Otherwise
    // somebody has to choose, and nothing is settled.
    bool settles(long sentence, long number) {
        const Ways& ways = stretch.last;
        const long first = sentence * stretch.count;
        long found = 0, ended = 0;
        for (long row = sentence * width; row < (sentence + 1) * width; row++)
            if (!std::isfinite(ways.highest[row])) return false;
        for (long i = first; i < first + stretch.count && (i < first + width || found < width); i++) {
            if (!std::isfinite(ways.score[i])) return false;
            if (ways.word[i] == stretch.end)
                ended++;
            else if (found < width)
                on[sentence * width + found++] = i;
        }
        over[sentence] = !found;
        if (ended || std::isfinite(ranks_of(sentence)[stretch.best - 1])) stirred = number;
        return found == width || (!found && ended);
    }

    // Whether a sentence may be over after this step: asked when all are settled.
    bool stirs(long number) const { return stirred == number; }

    // Writes down which rows of a sentence go on in this step, and which end. Only the first ways may end.
    void note(long sentence, long number) {
        const Ways& ways = stretch.last;
        const long first = sentence * stretch.count, first_row = sentence * width, noted_row = place[sentence] * width;
        double *ranks = ranks_of(sentence), *worst = ranks + stretch.best - 1, highest = -INFINITY;
        for (long i = first; i < first + width; i++) {
            if (ways.word[i] != stretch.end) continue;
            const double rank = ways.score[i] * stretch.factor[number];
            if (below(rank, *worst)) continue;
            const long entry = ends++;
            stretch.ended_in[entry] = number, stretch.end_log_p[entry] = ways.log_p[i];
            stretch.ended[entry] = noted_row + ways.row[i] - first_row;
            *worst = std::max(*worst, rank);
            std::sort(ranks, ranks + stretch.best, std::greater<double>());
        }
        for (long w = 0; w < width && !over[sentence]; w++) {
            const long row = first_row + w, way = on[row], line = number * all_rows + noted_row + w;
            stretch.row[line] = noted_row + ways.row[way] - first_row, stretch.word[line] = ways.word[way];
            stretch.log_p[line] = ways.log_p[way], stretch.score[row] = ways.score[way];
            token[row] = ways.word[way], at[row] += 1, cell[row] += width;
            highest = std::max(highest, ways.score[way]);
            if (step.sees) inherit(seen[number % 2], ways.row[way], seen[(number + 1) % 2], row);
        }
        if (below(highest * stretch.last_factor[place[sentence]], *worst)) over[sentence] = true;
    }

    // After a step, by one thread: the last sentences take the places of those that are over. Whether any is left.
    bool close_up(long number) {
        for (long sentence = 0; sentence < step.sentences; sentence++)
            while (sentence < step.sentences && over[sentence]) move(--step.sentences, sentence, seen[(number + 1) % 2]);
        step.rows = step.sentences * width;
        return step.sentences;
    }

    // What is to be known after the last step.
    void end(long number) {
        const long filled = step.filled + number * width;
        const Seen& last = seen[number % 2];
        stretch.ends = ends, stretch.sentences_left = step.sentences;
        std::copy(place.begin(), place.begin() + step.sentences, stretch.left);
        for (long row = 0; stretch.sees && row < step.rows; row++) {
            uint8_t* line = stretch.sees + row * filled;
            std::fill(line, line + filled, 0);
            for (long c = 0; c < last.counts[row]; c++) line[last.of(row)[c]] = 1;
        }
    }

   private:
    double* ranks_of(long sentence) const { return stretch.ranks + place[sentence] * stretch.best; }

    // Whether it is, for certain: of what is nearly the same, the search itself has to tell.
    static bool below(double rank, double other) { return rank < other - 1e-9 * std::abs(other); }

    // After a step a row sees the cells of the row that it came from, and its own.
    void inherit(const Seen& now, long from, const Seen& next, long row) const {
        const int count = now.counts[from];
        std::copy(now.of(from), now.of(from) + count, next.of(row));
        next.of(row)[count] = (int)cell[row];
        next.counts[row] = count + 1;
    }

    void move(long from, long to, const Seen& next) {
        if (from == to) return;
        over[to] = over[from], place[to] = place[from];
        for (long w = 0; w < width; w++) {
            const long row = to * width + w, old = from * width + w;
            token[row] = token[old], at[row] = at[old], cell[row] = cell[old], stretch.score[row] = stretch.score[old];
            if (!next) continue;
            next.counts[row] = next.counts[old];
            std::copy(next.of(old), next.of(old) + next.counts[old], next.of(row));
        }
    }
};

// A row's best words, among logits that are changed; how many the screen had to compute.
static long look_at(const Stretch& stretch, Choice& choice, const float* state, float* logits, long words, long row) {
    const float log_sum = stretch.scored ? log_sum_of(logits, words) : 0.0f;
    for (long i = 0; i < stretch.forbidden_count; i++) logits[stretch.forbidden[i]] = -INFINITY;
#if HAS_BYTES
    if (stretch.screen) {
        const Best best = best_of(*stretch.screen, state, logits);
        choice.take(best.word, best.logit, row);
        return best.computed;
    }
#endif
    choice.look_at(logits, log_sum, words, row);
    if (!stretch.scored) choice.take(choice.place[row], choice.best[row], row);
    return 0;
}

// How many steps were taken, 0 where a token has no row in the table. Threads agree after each of them whether it was the
// last, and share out anew what is left.
static long take_stretch(const Block* blocks, Step step, Stretch& stretch, int threads) {
    if (!step.rows || !knows_tokens(step)) return 0;
    if (stretch.screen) step.predict = stretch.screen->rough;
    const long width = step.rows / step.sentences, words = step.predict->outputs;
    Choice choice(step.rows, width, stretch.each, stretch.count);
    std::atomic<long> last{stretch.steps - 1}, looked_at{0}, computed{0};
    Seen real;
    if (step.real) real = room_of_thread.real.of(step.sentences, step.cells);
    make_room(room_of_thread, step);
    Going going(step, stretch);

    together(blocks, step, threads, [&](const Crew& crew, int thread, int all) {
        for (long number = 0;; number++) {
            const Part part = crew.part(going.its(number), thread, all);
            const Sight sight{going.seen_in(number), real};
            if (!number) part.list(sight);
            const float* states = take(blocks, part, sight);

            const Share rows = part.team.of(part.step.rows), sentences = part.team.of(part.step.sentences);
            long taken = 0;
            for (long own = rows.first; own < rows.last; own++)
                taken += look_at(stretch, choice, states + own * step.width, part.step.log_p + own * words, words,
                                 part.first_row + own);
            if (stretch.screen) looked_at += (rows.last - rows.first) * words, computed += taken;
            part.team.wait();
            const long first = part.first_row / width;
            for (long sentence = first + sentences.first; sentence < first + sentences.last; sentence++) {
                choice.choose(stretch.score, sentence, stretch.last);
                if (!going.settles(sentence, number)) last = number;  // whoever says so, says the same
            }
            crew.wait(all);
            if (last <= number) break;

            const bool stirs = going.stirs(number);
            for (long sentence = first + sentences.first; sentence < first + sentences.last; sentence++)
                going.note(sentence, number);
            if (!stirs) {  // all go on as they are
                part.team.wait();
                continue;
            }
            crew.wait(all);
            if (!thread && !going.close_up(number)) last = number;
            crew.wait(all);
            if (last <= number) break;
        }
    });
    going.end(last);
    stretch.looked_at = looked_at, stretch.computed = computed;
    return last + 1;
}
