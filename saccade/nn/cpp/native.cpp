// What Python calls. Everything else is included, so that one command compiles it for the processor at hand.
#include "loss.h"
#include "short_attention.h"
#include "step.h"

template <typename Number>
static bool before(Number a, Number b) {
    return a > b || (a != a && b == b);
}

// The `count` largest of a row, largest first and of equals the first.
static void largest(const float* line, long width, long count, float* best, int64_t* place) {
    long found = 0;
    const auto offer = [&](long i) {
        if (found == count && !before(line[i], best[count - 1])) return;
        long at = found < count ? found++ : count - 1;
        for (; at > 0 && before(line[i], best[at - 1]); at--) best[at] = best[at - 1], place[at] = place[at - 1];
        best[at] = line[i], place[at] = i;
    };
    long i = 0;
    for (; i < std::min<long>(count, width); i++) offer(i);
    for (; i + LANES <= width; i += LANES)  // few are larger than what was found
        for (uint32_t bits = above(*(const Anywhere*)(line + i), best[count - 1]); bits; bits &= bits - 1)
            offer(i + __builtin_ctz(bits));
    for (; i < width; i++) offer(i);
}

extern "C" {

int64_t panel() { return PANEL; }
int64_t lanes() { return LANES; }
int64_t has_bytes() { return HAS_BYTES; }
int64_t has_pairs() { return HAS_PAIRS; }
int64_t levels() {
#if HAS_BYTES
    return LEVELS;
#else
    return 0;
#endif
}

void pack_floats(const float* table, float* packed, int64_t outputs, int64_t inputs) {
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < inputs; i++)
            for (long c = 0; c < PANEL; c++)
                packed[first * inputs + i * PANEL + c] = first + c < outputs ? table[(first + c) * inputs + i] : 0.0f;
}

void pack_bytes(const int8_t* table, uint8_t* packed, int64_t outputs, int64_t inputs) {
    const long depth = padded(inputs, 4);
    for (long first = 0; first < outputs; first += PANEL)
        for (long i = 0; i < depth; i++)
            for (long c = 0; c < PANEL; c++) {
                const bool inside = first + c < outputs && i < inputs;
                const int number = inside ? table[(first + c) * inputs + i] : 0;
                packed[first * depth + i / 4 * 4 * PANEL + 4 * c + i % 4] = (uint8_t)(number + 128);
            }
}

void apply(const Map* map, const float* x, float* y, int64_t rows, int64_t threads) {
    thread_local Quantised quantised;
    Quantised& shared = quantised;
    Meeting meeting;
    if (map->bytes) shared.make_room(rows, map->inputs);
#pragma omp parallel num_threads(threads) if (rows * map->outputs * map->inputs > (1 << 18))
    Team{omp_get_thread_num(), omp_get_num_threads(), meeting, shared}.apply(*map, x, y, rows);
}

void log_softmax(float* x, int64_t rows, int64_t width, int64_t threads) {
    Meeting meeting;
    Quantised unused;
#pragma omp parallel num_threads(threads) if (rows * width > (1 << 16))
    log_softmax(Team{omp_get_thread_num(), omp_get_num_threads(), meeting, unused}, x, rows, width);
}

// The best ways to go on for each sentence, whose `width` hypotheses have these scores: `count` of the `each` best words
// of every hypothesis, best first and of equals the first, and the highest of every row. NaN counts as larger than all.
void continuations(const float* log_p, const double* score, int64_t sentences, int64_t width, int64_t words,
                   int64_t each, int64_t count, int64_t* row, int64_t* word, double* chosen, double* total,
                   double* highest, int64_t threads) {
    const long rows = sentences * width;
    thread_local std::vector<float> room;
    thread_local std::vector<int64_t> places;
    room.resize(std::max<size_t>(room.size(), rows * each));
    places.resize(std::max<size_t>(places.size(), rows * each));
    float* best = room.data();
    int64_t* place = places.data();
#pragma omp parallel for num_threads(threads) if (rows * words > (1 << 16))
    for (long r = 0; r < rows; r++) largest(log_p + r * words, words, each, best + r * each, place + r * each);
    std::vector<long> next(width);  // of each hypothesis: how many of its words are taken
    for (long sentence = 0; sentence < sentences; sentence++) {
        std::fill(next.begin(), next.end(), 0);
        for (long i = sentence * count; i < (sentence + 1) * count; i++) {
            long from = -1;
            for (long w = 0; w < width; w++) {
                if (next[w] == each) continue;
                const long r = sentence * width + w;
                const double sum = score[r] + best[r * each + next[w]];
                if (from < 0 || before(sum, total[i])) from = w, total[i] = sum;
            }
            row[i] = sentence * width + from;
            const long at = row[i] * each + next[from]++;
            word[i] = place[at], chosen[i] = best[at];
        }
    }
    for (long r = 0; r < rows; r++) highest[r] = best[r * each];
}

void cross_entropy(const Loss* loss, int64_t in_pairs, int64_t threads) {
#if HAS_PAIRS
    if (in_pairs) return smoothed_loss<Pair>(*loss, (int)threads);
#endif
    smoothed_loss<Single>(*loss, (int)threads);
}

void short_attention(const ShortAttention* of, int64_t backward, int64_t threads) {
    backward ? attend_short_backward(*of, (int)threads) : attend_short(*of, (int)threads);
}

int64_t transformer_step(const Block* blocks, const Step* step, int64_t threads) { return run(blocks, step, (int)threads); }
}
